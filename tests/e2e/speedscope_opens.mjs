// Opens a file in speedscope's own page in Chromium, and prints as JSON what the page shows of it.
// speedscope_opens.mjs NODE_MODULES FILE
import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { extname, join, normalize } from 'node:path';

const [modules, file] = process.argv.slice(2);
const { chromium } = createRequire(join(modules, '/'))('playwright-core');
const page_folder = join(modules, 'speedscope/dist/release');
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.json': 'application/json' };

const server = createServer((request, response) => {
  const path = new URL(request.url, 'http://localhost').pathname;
  const asked = path === '/dump.json' ? file : join(page_folder, normalize(path === '/' ? '/index.html' : path));
  if (!existsSync(asked) || !statSync(asked).isFile()) return response.writeHead(404).end();
  response.writeHead(200, { 'Content-Type': TYPES[extname(asked)] ?? 'application/octet-stream' });
  createReadStream(asked).pipe(response);
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const origin = `http://127.0.0.1:${server.address().port}`;

const browser = await chromium.launch({
  executablePath: process.env.STACKD_TEST_CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
const page = await browser.newPage({ viewport: { width: 1280, height: 2400 } });
page.setDefaultTimeout(60_000);
const errors = [];
page.on('pageerror', (error) => errors.push(String(error)));
page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
page.on('dialog', (dialog) => {
  errors.push(dialog.message());
  dialog.dismiss();
});
page.on('request', (request) => {
  if (!/^(blob|data):/.test(request.url()) && !request.url().startsWith(origin)) errors.push(request.url());
});

await page.goto(`${origin}/#profileURL=${encodeURIComponent('/dump.json')}`);
await page.getByText('Sandwich').click();
await page.locator('table tr td').first().waitFor();
// A row: "4 (40%)" in all, "2 (20%)" in the function itself, the name.
const rows = await page.locator('table tr').allInnerTexts();
if (process.env.STACKD_TEST_PICTURE) await page.screenshot({ path: process.env.STACKD_TEST_PICTURE });
console.log(JSON.stringify({ title: await page.title(), rows, errors }));
await browser.close();
server.close();
