// A page in Debian's Chromium, watched: no error, no request to another origin, no violation of the policy.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { RECORDED } from './answers.mjs';
import { serve } from './server.mjs';

const here = dirname(fileURLToPath(import.meta.url));
export const DIST = join(here, '../dist');
const RECORDED_AT = Math.max(...RECORDED.dumps.map((dump) => Date.parse(dump.createTime)));
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
// Where pictures of the views are put; they are looked at, not compared.
const PICTURES = process.env.STACKD_PAGE_PICTURES;

let running;
function launched() {
  running ??= chromium.launch({
    executablePath: process.env.STACKD_TEST_CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox'],
  });
  return running;
}
export async function closeBrowser() {
  await (await running)?.close();
}

// Runs `test` with a page at `address` that is answered by `answers`, or by the daemon at `url`.
export async function withPage({ answers, url, address = '', prefix = '/', width = 1280, expectErrors = false }, test) {
  const server =
    url === undefined ? await serve(DIST, answers, prefix) : { url, origin: new URL(url).origin, close() {} };
  const context = await (await launched()).newContext({ viewport: { width, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  // What was recorded is an hour old: the page shows a process that is gone for a day.
  if (url === undefined) await page.clock.setFixedTime(RECORDED_AT + 3_600_000);
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(`error: ${error.stack}`));
  page.on('console', (message) => {
    // A refusal of the API is an answer, which Chromium notes as an error.
    const isRefusal = expectErrors && message.text().startsWith('Failed to load resource');
    if (['error', 'warning'].includes(message.type()) && !isRefusal) wrong.push(`console: ${message.text()}`);
  });
  page.on('dialog', (dialog) => wrong.push(`dialog: ${dialog.message()}`));
  page.on('request', (request) => {
    if (!request.url().startsWith(server.origin) && !/^(blob|data):/.test(request.url()))
      wrong.push(`request to ${request.url()}`);
  });
  await page.exposeFunction('violated', (text) => wrong.push(`policy: ${text}`));
  await page.addInitScript(() =>
    addEventListener('securitypolicyviolation', (event) => violated(`${event.violatedDirective} ${event.blockedURI}`)),
  );
  try {
    await page.goto(server.url + address);
    await test(page, server);
    assert.deepEqual(wrong, []);
  } finally {
    await context.close();
    server.close();
  }
}

// Fails where axe finds something serious, by all rules or by those that are named.
export async function assertAccessible(page, what, ...rules) {
  await page.evaluate(AXE);
  const options = { resultTypes: ['violations'], ...(rules.length > 0 ? { runOnly: rules } : {}) };
  const { violations } = await page.evaluate((given) => axe.run(document, given), options);
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  const htmlOf = ({ nodes }) => nodes.slice(0, 3).map((node) => node.html.slice(0, 200));
  assert.deepEqual(
    serious.map((violation) => `${violation.id}: ${violation.help}: ${htmlOf(violation).join(' | ')}`),
    [],
    what,
  );
}

export async function picture(page, name) {
  if (PICTURES !== undefined) await page.screenshot({ path: join(PICTURES, `${name}.png`), fullPage: false });
}

// A test of one view in light, which is then judged in both colour schemes.
export function viewTest(name, answers, address, run) {
  test(name, () =>
    withPage({ answers, address }, async (page) => {
      await run(page);
      await assertAccessible(page, name);
      await picture(page, `${name.replaceAll(' ', '-')}-light`);
      await page.emulateMedia({ colorScheme: 'dark' });
      await assertAccessible(page, `${name}, dark`, 'color-contrast');
      await picture(page, `${name.replaceAll(' ', '-')}-dark`);
    }),
  );
}
