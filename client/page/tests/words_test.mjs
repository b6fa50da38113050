import assert from 'node:assert/strict';
import { test } from 'node:test';
import { source } from './source.mjs';

const {
  printable,
  clipped,
  label,
  durationInWords,
  grouped,
  count,
  millisecondsOfDumpName,
  parseRoute,
  formatRoute,
  idsOfDump,
  nameOfDump,
  plainName,
} = await source('text/printable.ts', 'text/wording.ts', 'route.ts', 'dump/program_frame.ts');

test('what a browser or a terminal obeys is written out, as the daemon writes it', () => {
  assert.equal(printable('a\x1b[31mb\n\x7f\u0085'), 'a\\x1b[31mb\\x0a\\x7f\\x85');
  assert.equal(printable('a\u202eb\u2066c\u061c\u2028'), 'a\\u{202e}b\\u{2066}c\\u{61c}\\u{2028}');
  assert.equal(printable('half \ud83d of a pair'), 'half \\u{d83d} of a pair');
  assert.equal(printable('Zähler 日本 😀 <b>'), 'Zähler 日本 😀 <b>');
});

test('a clipped text has no half of a pair at its end', () => {
  assert.equal(clipped('ab😀', 3), 'ab');
  assert.equal(clipped('ab😀', 4), 'ab😀');
  assert.equal(label('x'.repeat(1 << 20), 3), 'xxx…');
});

test('durations have two significant digits', () => {
  assert.deepEqual(['0.000000412s', '0.000085s', '0.0012s', '3s', '41.6s', '7200s', undefined].map(durationInWords), [
    '412 ns',
    '85 us',
    '1.2 ms',
    '3.0 s',
    '42 s',
    '2 h',
    '0 ns',
  ]);
});

test('numbers are grouped, and one is no plural', () => {
  assert.equal(grouped('9007199254740991'), '9,007,199,254,740,991');
  assert.deepEqual(
    [count(1, 'thread'), count('10000', 'thread'), count(2, 'process', 'processes')],
    ['1 thread', '10,000 threads', '2 processes'],
  );
});

test('the name of a dump says when it was taken', () => {
  assert.equal(
    millisecondsOfDumpName('processes/2686-673551/dumps/20261123T204248698Z-1'),
    Date.UTC(2026, 10, 23, 20, 42, 48, 698),
  );
  assert.ok(Number.isNaN(millisecondsOfDumpName('processes/1-1/dumps/x')));
});

test('an address is read as it was written, whatever stands in it', () => {
  const path = ['dumps', 'a/b?c#d%', '<script>'];
  const route = parseRoute(formatRoute(path, { q: 'x&y=z #', tab: '' }));
  assert.deepEqual(route.path, path);
  assert.deepEqual([...route.query], [['q', 'x&y=z #']]);
  assert.deepEqual(parseRoute('#/dumps/%E0%A4%A').path, ['dumps', '%E0%A4%A']);
  assert.deepEqual(idsOfDump(nameOfDump('7-8', '2026')), ['7-8', '2026']);
});

test('a plain name has no parameters', () => {
  assert.equal(plainName('orders::Transfer(orders::Order const&, bool)'), 'orders::Transfer');
  assert.equal(plainName('std::function<void (int)>::operator()(int) const'), 'std::function<void (int)>::operator()');
  assert.equal(plainName('(anonymous namespace)::Run(int)'), '(anonymous namespace)::Run');
  assert.equal(plainName('main.serve'), 'main.serve');
});
