// Programs of Node.js whose event loop is blocked, and some that are well: modes, as hang.h has them.
'use strict';
const childProcess = require('child_process');
const fs = require('fs');
const http = require('http');
const path = require('path');
const { Worker, isMainThread, workerData } = require('worker_threads');

const READ = [0], FUTEX = [202], EPOLL = [232, 281];
const ready = () => fs.writeSync(1, 'ready\n');

function waitFor(word, limitMs) {
  return Atomics.wait(new Int32Array(word), 0, 0, limitMs);
}

// "ready" when the main thread stays in one of these system calls.
function sayReady({ calls, begun }) {
  waitFor(begun);
  for (let quietLooks = 0; quietLooks < 20; waitFor(new SharedArrayBuffer(4), 5)) {
    const call = parseInt(fs.readFileSync(`/proc/self/task/${process.pid}/syscall`, 'utf8'), 10);
    quietLooks = calls.includes(call) ? quietLooks + 1 : 0;
  }
  ready();
}

// Calls it in a callback of the loop, where it blocks in one of these system calls.
function later(calls, body) {
  const begun = new SharedArrayBuffer(4);
  new Worker(__filename, { workerData: { calls, begun } }).on('online', function onOnline() {
    Atomics.store(new Int32Array(begun), 0, 1);
    Atomics.notify(new Int32Array(begun), 0);
    body();
  });
}

const modes = {
  // --- that hang ---
  exec_sync() {
    later(EPOLL, function runTool() { childProcess.execSync('sleep 3600'); });
  },
  fifo_read() {
    const fifo = path.join(process.env.STACKD_DIR, `orders-${process.pid}`);
    childProcess.execFileSync('mkfifo', [fifo]);
    fs.openSync(fifo, 'r+'); // so that it may be opened to read
    later(READ, function readOrders() { fs.readFileSync(fifo); });
  },
  atomics_main() {
    later(FUTEX, function awaitAnswer() { waitFor(new SharedArrayBuffer(4)); });
  },
  // The loop turns no more, and JavaScript runs.
  microtasks() {
    ready();
    setImmediate(function chain() { Promise.resolve().then(chain); });
  },
  expression() {
    ready();
    setImmediate(function validate() { /^(a+)+$/.test('a'.repeat(60) + '!'); });
  },

  // --- that are well ---
  idle_server() {
    http.createServer((_, response) => response.end('ok')).listen(0, '127.0.0.1', ready);
  },
  awaits_child() {
    childProcess.spawn('sleep', ['3600']).on('spawn', ready);
  },
  // As the worker of a pool that has nothing to do.
  worker_waits() {
    const never = new SharedArrayBuffer(4);
    new Worker(__filename, { workerData: { calls: EPOLL, begun: never } });
    setTimeout(ready, 200);
  },
  // A script that has not come to its loop.
  commands() {
    ready();
    childProcess.execSync('sleep 3600');
  },
};

if (isMainThread) {
  modes[process.argv[2]]();
} else {
  sayReady(workerData);
}
