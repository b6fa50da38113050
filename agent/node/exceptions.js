// Reports of uncaught errors.
//
// When the monitor is told of an error its stack is gone; names and places of it are in the error's text. So the stack is
// built up once more, of functions that do nothing but call each other and have these names and places. The dump is taken
// in the innermost. Names leave the process that way as they do in any dump, and nothing else: no message, no value.
'use strict';

const vm = require('vm');

const FRAME = /^    at (?:async )?(?:([^()]*) \()?([^()]*?):(\d+):\d+\)?$/;

/** The lines behind the message, which may have any lines itself; none where it is not clear which they are. */
function linesOf(error) {
  const { message, stack } = error;
  const head = stack.slice(0, stack.indexOf('\n'));
  const begin = message === '' && !head.includes(': ') ? head.length : stack.indexOf(': ') + 2;
  return stack.startsWith(`${message}\n`, begin) ? stack.slice(begin + message.length + 1).split('\n') : [];
}

/** A function of this name in this place: it calls the first of a list with the rest. */
function standIn(name, filename, line) {
  const key = JSON.stringify(name);
  const text = `({ ${key}(rest) { return rest[0](rest.slice(1)); } })[${key}]`;
  // By way of bytes, so that it is one piece: of others lines are not known.
  const script = new vm.Script(Buffer.from(text).toString(), { filename, lineOffset: line - 1 });
  return script.runInThisContext();
}

function typeOf(error) {
  try {
    const name = error.constructor.name;
    if (typeof name === 'string' && name !== '') return name;
  } catch {
    // Nothing, or an object of the program's that has none.
  }
  return typeof error;
}

/** Lines are lazy in V8: it keeps those of functions that have been part of an error's stack. */
function keepLines() {
  const before = Error.stackTraceLimit;
  Error.stackTraceLimit = Infinity;
  String(new Error().stack);
  Error.stackTraceLimit = before;
}

/** Functions with the names and places that the error went through, outermost first. A program may give an error any text. */
function standIns(error) {
  try {
    const frames = error instanceof Error ? linesOf(error).map((line) => FRAME.exec(line)).filter(Boolean) : [];
    return frames.reverse().map(([, name, file, line]) => standIn(name ?? '(anonymous)', file, Number(line)));
  } catch {
    return [];
  }
}

/** dump(type) on a stack of the functions that the error went through. */
function report(error, dump) {
  try {
    const type = typeOf(error);
    const functions = standIns(error);
    const innermost = () => { keepLines(); dump(type); };
    functions.push(standIn(`unhandled ${type}`, '', 1), innermost);
    functions[0](functions.slice(1));
  } catch {
    // Whatever happens here, the error is what it would have been.
  }
}

module.exports = { report };
