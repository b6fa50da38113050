// dist/ is what src/ builds to, small enough, and works under a strict policy.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const MAX_GZIPPED = 80 * 1024;

test('dist is byte by byte what the sources build to', () => {
  const folder = mkdtempSync(join(tmpdir(), 'page-'));
  execFileSync('node', ['build.mjs', folder], { cwd: root });
  const files = readdirSync(folder).sort();
  assert.deepEqual(readdirSync(join(root, 'dist')).sort(), files);
  assert.deepEqual(files, ['index.html', 'page.css', 'page.js']);
  for (const file of files) {
    assert.ok(
      readFileSync(join(folder, file)).equals(readFileSync(join(root, 'dist', file))),
      `${file}: run npm run build, and commit dist`,
    );
  }
});

test('types are right', () => {
  execFileSync('node_modules/.bin/tsc', ['--noEmit'], { cwd: root, stdio: 'pipe' });
});

test('it is below 80 KiB, compressed', () => {
  const sizes = readdirSync(join(root, 'dist')).map(
    (file) => gzipSync(readFileSync(join(root, 'dist', file)), { level: 9 }).length,
  );
  const sum = sizes.reduce((all, size) => all + size, 0);
  console.log(`${sum} bytes compressed`);
  assert.ok(sum < MAX_GZIPPED, `${sum} bytes`);
});

test('no source makes elements of text', () => {
  const sources = readdirSync(join(root, 'src'), { recursive: true }).filter((file) => /\.tsx?$/.test(file));
  assert.ok(sources.length > 20);
  for (const file of sources)
    assert.doesNotMatch(readFileSync(join(root, 'src', file), 'utf8'), /innerHTML|insertAdjacentHTML|DOMParser/i, file);
});

test('nothing in it is inline, evaluated, or from elsewhere', () => {
  const html = readFileSync(join(root, 'dist/index.html'), 'utf8');
  assert.doesNotMatch(html, /<script(?![^>]*src=)|<style|\sstyle=|\son\w+=/);
  assert.deepEqual(
    [...html.matchAll(/(?:src|href)="([^"]*)"/g)].map((match) => match[1]),
    ['data:,', './page.css', './page.js'],
  );
  const script = readFileSync(join(root, 'dist/page.js'), 'utf8');
  assert.ok(!/\beval\(|new Function\(|document\.write/.test(script), 'the script evaluates text');
  assert.doesNotMatch(readFileSync(join(root, 'dist/page.css'), 'utf8'), /url\(|@import/);
});

test('the lock file names versions, and no registry', () => {
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  for (const [name, one] of Object.entries(lock.packages)) {
    assert.equal(one.resolved, undefined, name);
    if (name !== '') assert.match(one.integrity, /^sha512-/, name);
  }
  const { dependencies, devDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  for (const version of Object.values({ ...dependencies, ...devDependencies }))
    assert.match(version, /^\d+\.\d+\.\d+$/);
});
