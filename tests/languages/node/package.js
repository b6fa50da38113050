// Uses the package that `npm install` put beside it: names, and a dump from inside, of a worker too.
'use strict';
const stackd = require('stackd');
const { Worker, isMainThread } = require('worker_threads');

if (isMainThread) {
  const installed = stackd.install();
  stackd.nameProcess('billing');
  stackd.nameThread('importer');
  const worker = new Worker(__filename);
  worker.on('message', () => {
    process.stdin.on('data', function dumpsItself() {
      console.log(JSON.stringify({ dumped: stackd.dumpNow(20000) }));
    });
    console.log(JSON.stringify({ ready: installed }));
  });
} else {
  stackd.nameThread('exporter');
  require('worker_threads').parentPort.postMessage('named');
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}
