// A stand-in for the daemon's HTTP listener, or a gateway's where it has answers of one: serves the page under its
// Content-Security-Policy, and answers by functions.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';

const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const TYPES = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
};

// Thrown by an answer: becomes an error of the Connect protocol.
export class Refusal extends Error {
  constructor(status, code, sentence) {
    super(sentence);
    this.status = status;
    this.code = code;
  }
}

async function bodyOf(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return JSON.parse(Buffer.concat(parts).toString());
}

function send(response, status, type, body) {
  response.writeHead(status, {
    'Content-Type': type,
    'Content-Security-Policy': POLICY,
    'X-Content-Type-Options': 'nosniff',
  });
  response.end(body);
}

async function answer(answers, method, request, response) {
  const json = 'application/json';
  try {
    if (request.method !== 'POST' || request.headers['content-type'] !== json)
      throw new Refusal(415, 'unknown', 'POST and application/json are wanted');
    if (request.headers['connect-protocol-version'] !== '1')
      throw new Refusal(400, 'invalid_argument', 'Connect-Protocol-Version is missing');
    if (answers[method] === undefined) throw new Refusal(404, 'unimplemented', `there is no method ${method}`);
    const body = await answers[method](await bodyOf(request), response);
    send(response, 200, json, typeof body === 'string' ? body : JSON.stringify(body));
  } catch (error) {
    send(
      response,
      error.status ?? 500,
      json,
      JSON.stringify({ code: error.code ?? 'internal', message: error.message }),
    );
  }
}

// Serves the files of `folder` and `answers` ({METHOD: request => response}) under `prefix`, on a free port of the loopback.
export async function serve(folder, answers, prefix = '/') {
  const calls = [];
  const server = createServer((request, response) => {
    const path = request.url.startsWith(prefix) ? request.url.slice(prefix.length) : '?';
    const method = /^stackd\.v1\.(?:Stackd|Fleet)\/(\w+)$/.exec(path)?.[1];
    const file = path === '' ? 'index.html' : path;
    if (method !== undefined) {
      calls.push(method);
      answer(answers, method, request, response);
    } else if (['index.html', 'page.js', 'page.css'].includes(file)) {
      const text = readFileSync(join(folder, file), 'utf8');
      const marked = answers.ListCrashes === undefined ? text : text.replace('<html ', '<html data-gateway ');
      send(response, 200, TYPES[file.split('.')[1]], marked);
    } else {
      send(response, 404, 'text/plain', 'not found');
    }
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const origin = `http://127.0.0.1:${server.address().port}`;
  return { origin, url: origin + prefix, calls, close: () => server.close() };
}
