// An HTTP server with a line of log for each request. It answers by file, by libuv's pool and by a timer. At its end it says how
// many requests it has answered.
//
//   node logging_server.js PORT
const http = require('http');
const crypto = require('crypto');
const fs = require('fs');

let answered = 0;

function answer(response, error, text) {
  answered += 1;
  response.end(error ? 'error' : text);
}

const ways = [
  (response) => fs.readFile(__filename, 'utf8', (error, text) => answer(response, error, text)),
  (response) => crypto.pbkdf2('stack', 'salt', 500, 16, 'sha1', (error, key) => answer(response, error, String(key?.toString('hex')))),
  (response) => setTimeout(() => answer(response, null, 'late\n'), 20),
];

const server = http.createServer((request, response) => {
  console.log(request.method + ' ' + request.url);
  ways[Number(request.url.slice(1)) % ways.length](response);
});
process.on('SIGTERM', () => {
  console.log('answered ' + answered);
  process.exit(0);
});
server.listen(Number(process.argv[2]), '127.0.0.1');
