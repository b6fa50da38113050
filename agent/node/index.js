// stackd for Node.js: see README.md.
'use strict';

const path = require('path');
const { isMainThread } = require('worker_threads');
const exceptions = require('./exceptions.js');

const NONE = { install: () => -1, nameThread: () => -1, nameProcess: () => -1, dumpNow: () => -1,
  dumpException: () => -1, heartbeatRegister: () => -1, beat: () => -1, suspend: () => -1, unregister: () => -1 };

function load() {
  // The kill switch comes before anything is loaded; and no fault of ours may keep a program from starting.
  if (!['', '0'].includes(process.env.STACKD_DISABLE ?? '')) return NONE;
  try {
    return require('./stackd.node');
  } catch (error) {
    if (process.env.STACKD_DEBUG) console.error(`stackd: ${error.message}`);
    return NONE;
  }
}

const native = load();

/** Puts the agent into this process, if it is not there yet. False where it cannot be, or is switched off. */
function install() {
  return native.install(path.join(__dirname, 'libstackd_agent.so')) === 0;
}

/** Names the calling thread, main or worker, in dumps: at most 15 bytes. */
function nameThread(name) {
  return native.nameThread(String(name)) === 0;
}

/** Names this process in `stackctl ps`: at most 63 bytes. */
function nameProcess(name) {
  return native.nameProcess(String(name)) === 0;
}

/** Asks for a dump of this process, and waits until it was taken, at most `timeoutMs`. */
function dumpNow(timeoutMs = 2000) {
  return native.dumpNow(timeoutMs) === 0;
}

/** A promise to beat at least every `limitMs`; where it is broken there is a dump. Watched from the first beat on. */
class Heartbeat {
  #number;

  constructor(name, limitMs) {
    this.#number = native.heartbeatRegister(String(name), limitMs);
  }

  beat() {
    if (this.#number >= 0) native.beat(this.#number);
  }

  /** Not watched until the next beat. */
  suspend() {
    if (this.#number >= 0) native.suspend(this.#number);
  }

  end() {
    if (this.#number >= 0) native.unregister(this.#number);
    this.#number = -1;
  }
}

let loop = null;

/** The event loop of this thread beats by itself, and keeps nothing alive. 0: no longer. */
function watchEventLoop(limitMs = 5000) {
  if (loop !== null) {
    clearInterval(loop.timer);
    loop.heartbeat.end();
    loop = null;
  }
  if (limitMs <= 0) return;
  const heartbeat = new Heartbeat(isMainThread ? 'event loop' : 'event loop of a worker', Math.max(limitMs, 100));
  const timer = setInterval(() => heartbeat.beat(), Math.max(limitMs / 4, 25));
  timer.unref();
  // From its first turn on: what the program does before that may rightly take long.
  setTimeout(() => heartbeat.beat(), 0).unref();
  loop = { timer, heartbeat };
}

// A loop that has ended does not beat, and that is well.
process.on('exit', () => watchEventLoop(0));

/** From now on an uncaught error is the dump of a crash, before it is what it was before. The dump has the functions
 * that the error went through and its type, never its message. */
function dumpOnUncaughtExceptions(timeoutMs = 2000) {
  process.on('uncaughtExceptionMonitor', (error) => {
    exceptions.report(error, (type) => native.dumpException(type, timeoutMs));
  });
}

module.exports = { install, nameThread, nameProcess, dumpNow, Heartbeat, watchEventLoop, dumpOnUncaughtExceptions };
