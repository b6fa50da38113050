// An HTTP server as Node programs are: an event loop, libuv's pool, a worker that makes garbage. Says "ready PORT".
//
//   node busy_server.js            waits for requests
//   node busy_server.js compute    one more worker computes without a break
const http = require('http');
const crypto = require('crypto');
const { Worker, isMainThread, workerData } = require('worker_threads');

function makeGarbage() {
  const garbage = [];
  for (let i = 0; i < 1e4; ++i) garbage.push({ i });
  return garbage.length;
}

function compute() {
  for (let value = 1; ; value = (Math.imul(value, 1664525) + 1013904223) | 0) if (value === 0.5) return;
}

if (isMainThread) {
  new Worker(__filename, { workerData: 'garbage' });
  if (process.argv[2] === 'compute') new Worker(__filename, { workerData: 'compute' });
  const server = http.createServer((request, response) =>
    crypto.pbkdf2('stack', 'salt', 500, 16, 'sha1', (error, key) => response.end(error ? 'error' : key.toString('hex'))));
  server.listen(0, '127.0.0.1', () => console.log('ready ' + server.address().port));
} else if (workerData === 'compute') {
  compute();
} else {
  setInterval(makeGarbage, 50);
}
