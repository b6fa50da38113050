// Situations that a Node.js process can be in, by name. Each writes "ready" when it is about to be there, with the stack that
// the language itself tells of that place.
'use strict';
Error.stackTraceLimit = 100;
const fs = require('fs');
const v8 = require('v8');
const vm = require('vm');
const { Worker, isMainThread, workerData } = require('worker_threads');

function ready() {
  fs.writeSync(1, JSON.stringify({ ready: true, stack: new Error().stack }) + '\n');
}

function tellAndOpen(path) { ready(); fs.openSync(path, 'r'); }
function viaBuiltin(path) { [path].map(function mapper(each) { tellAndOpen(each); }); }
globalThis.enterAgain = function enterAgain(path) { viaBuiltin(path); };

function natively(what, ...functions) {
  v8.setFlagsFromString('--allow-natives-syntax');
  return functions.map((each) => new Function('f', `return ${what}(f)`)(each));
}

// Functions that are compiled. What they call is never the same: it stays a call.
function callCompiled(compile, make, path) {
  function innermost(call, path) { return call(path) === path ? 1 : 2; }
  function middle(call, path) {
    return innermost(call, path) + 1;
  }
  function outermost(call, path) {
    let n = 1;
    n += middle(call, path);
    return n;
  }
  natively('%PrepareFunctionForOptimization', innermost, middle, outermost);
  for (const each of [(x) => x, (x) => x + 1, (x) => x + 2, (x) => x + 3, (x) => x + 4, (x) => x + 5]) outermost(each, path);
  compile(innermost, middle, outermost);
  outermost((x) => x + 6, path);
  const isExpected = compile === optimize ? 1 << 4 : 1 << 15;
  if ((natively('%GetOptimizationStatus', outermost)[0] & isExpected) === 0) throw new Error('it is not compiled');
  outermost(make(outermost), path);
}

// Two functions are compiled into the third.
function optimize(innermost, middle, outermost) { natively('%OptimizeFunctionOnNextCall', outermost); }
function makeBaseline(...functions) { natively('%CompileBaseline', ...functions); }

const situations = {
  // A call that does not return, below JavaScript, C++, JavaScript and a builtin.
  blocked(path) { vm.runInThisContext('(function inVm(path) { enterAgain(path); })')(path); },
  loop() { ready(); (function countingLoop() { for (;;) { /* nothing */ } })(); },
  math() {
    function addUp(n) { let x = n; for (;;) { x += Math.sin(x) + Math.sqrt(x * x + 1); if (x === -1) return x; } }
    ready();
    addUp(1);
  },
  // Optimized code, all of it compiled into one.
  inlined() {
    function inner(x) { return x * 31 + 7; }
    function middle(x) { return inner(x) ^ x; }
    function hotOuter() { let x = 1; for (;;) { x = middle(x) | 0; } }
    ready();
    hotOuter();
  },
  // Compiled code that has called something that does not return.
  optimized(path) { callCompiled(optimize, () => tellAndOpen, path); },
  baseline(path) { callCompiled(makeBaseline, () => tellAndOpen, path); },
  // So many constants, variables and properties that bytecodes need wide operands to name them.
  wide(path) {
    const lines = Array.from({ length: 400 }, (_, i) => `  const v${i} = 'text ${i}' + call.name;`);
    const source = `(function wide(call, path) {\n${lines.join('\n')}\n  call(path, v0, v399);\n})`;
    // By way of bytes, so that it is one piece: of others lines are not known.
    const wide = vm.runInThisContext(Buffer.from(source).toString(), { filename: '/wide.js' });
    wide(() => 1, path);
    makeBaseline(wide);
    wide(tellAndOpen, path);
  },
  // Optimized code that V8 gives up while it is on the stack.
  givenUp(path) {
    callCompiled(optimize, (outermost) => function givesUp(path) {
      natively('%DeoptimizeFunction', outermost);
      tellAndOpen(path);
    }, path);
  },
  atomics() { ready(); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0); },
  regex() { ready(); (function evilRegex() { return /^(a+)+$/.test('a'.repeat(60) + 'b'); })(); },
  sort() {
    const numbers = [];
    for (let i = 0; i < 2e6; i++) numbers.push((i * 7919) % 1000003);
    ready();
    (function sortsForEver() { for (;;) numbers.slice().sort(function compare(a, b) { return a - b; }); })();
  },
  idle() { ready(); setInterval(() => {}, 1000); },
  workers() {
    for (const what of ['atomics', 'loop']) new Worker(__filename, { workerData: what });
    setTimeout(() => situations.idle(), 500);
  },
  deep() {
    function deeper(n) { if (n === 0) { ready(); for (;;) { /* nothing */ } } return deeper(n - 1) + 1; }
    deeper(3000);
  },
  // Rarely needed characters.
  names(path) {
    const o = { 'größe λ 😀'() { tellAndOpen(path); } };
    o['größe λ 😀']();
  },
  abort() { ready(); (function abortsHere() { process.abort(); })(); },
  segv(addon) { ready(); (function faultsHere() { process.dlopen({ exports: {} }, addon); })(); },
  memory() { ready(); (function eatsMemory() { const all = []; for (;;) all.push(new Array(1000).fill(1.5)); })(); },
  overflow() {
    let caught = 0;
    for (let i = 0; i < 20; i++) {
      try { (function recursesForEver() { recursesForEver(); })(); } catch (error) { if (error instanceof RangeError) caught++; }
    }
    fs.writeSync(1, `caught ${caught}\n`);
  },
  // A load far behind the end of a memory of one page.
  traps() {
    const bytes = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 6, 1, 96, 1, 127, 1, 127, 3, 2, 1, 0, 5, 3, 1, 0, 1, 7, 5, 1, 1,
      102, 0, 0, 10, 9, 1, 7, 0, 32, 0, 40, 2, 0, 11]);
    const instance = new WebAssembly.Instance(new WebAssembly.Module(bytes));
    let caught = 0;
    for (let i = 0; i < 10000; i++) {
      try { instance.exports.f(0x7ffffff0); } catch (error) { if (error instanceof WebAssembly.RuntimeError) caught++; }
    }
    fs.writeSync(1, `caught ${caught}\n`);
  },
  // With --expose-gc: collects nearly all the time.
  collects() {
    const kept = [];
    for (let i = 0; i < 100000; i++) kept.push({ i, next: kept[i - 1] });
    function collectAll() { gc(); return kept.length; }
    function collectForEver() { for (let n = 1; n > 0;) n = collectAll(); }
    ready();
    collectForEver();
  },
  // Garbage, code made and optimized, code thrown away; every function's name begins with "churn".
  churn(seconds) {
    function churnFib(n) { return n < 2 ? n : churnFib(n - 1) + churnFib(n - 2); }
    const until = Date.now() + 1000 * seconds;
    ready();
    let n = 0;
    (function churnMain() {
      while (Date.now() < until) {
        n += churnFib(14);
        const made = new Function('x', `return [x].map(function churnMade(y) { return y + ${n}; })[0]`);
        n += made(1) % 3;
        const o = {};
        for (let i = 0; i < 200; i++) o['k' + (i + n % 50)] = [i, String(n)];
        JSON.parse(JSON.stringify(o));
      }
    })();
    fs.writeSync(1, `churned\n`);
  },
};

if (isMainThread) situations[process.argv[2]](process.argv[3]);
else situations[workerData]();
