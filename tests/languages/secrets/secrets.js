// A string and a number in every kind of place that a program of JavaScript has for values; a worker waits, the main thread runs.
'use strict';
const { Worker, isMainThread, workerData } = require('worker_threads');
const fs = require('fs');

class Keeper {
  #text;
  constructor(text, number) { this.#text = text; this.number = number; this.copies = new Map([[text, { number, parts: [text] }]]); }
  wait(text) {
    const local = `${text}!${this.#text}`;
    try {
      throw new Error(text);
    } catch (error) {
      Atomics.wait(new Int32Array(workerData.shared), 0, 0, Infinity);
      return [local, error];
    }
  }
}

function spin(text, number) {
  const local = text + number;
  const closure = () => local.length + text.length;
  fs.writeSync(1, 'ready\n');
  for (;;) if (closure() === 0) return local;
}

if (isMainThread) {
  const lines = Buffer.alloc(256);
  const [text, hex] = lines.toString('utf8', 0, fs.readSync(0, lines)).split('\n');
  const number = BigInt('0x' + hex);
  const worker = new Worker(__filename, { workerData: { text, number, shared: new SharedArrayBuffer(4) }, name: 'keeper' });
  worker.on('online', () => setTimeout(() => spin(text, number), 200));
} else {
  new Keeper(workerData.text, workerData.number).wait(workerData.text);
}
