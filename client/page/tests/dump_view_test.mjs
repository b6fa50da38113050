// Each part of a dump is opened, clicked, searched and judged by axe, with answers of a real daemon.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { addressOf, answersOf, dumpWhere, RECORDED } from './answers.mjs';
import { closeBrowser, picture, viewTest, withPage } from './browser.mjs';

after(closeBrowser);

const answers = answersOf();
const ORDERS = dumpWhere(RECORDED, (dump) => dump.process.displayName === 'orders' && dump.trigger === 'HANG');
const TASKS = dumpWhere(RECORDED, (dump) => (dump.tasks ?? []).length > 0);
const CRASH = dumpWhere(RECORDED, (dump) => dump.trigger === 'CRASH');

viewTest('dump of a deadlock', answers, addressOf(ORDERS), async (page) => {
  await page.getByRole('heading', { name: /orders/ }).waitFor();
  assert.match(await page.locator('.finding.hang').first().textContent(), /2 threads wait for each other in a circle/);
  const red = page.locator('.wait-graph .node.circle');
  assert.equal(await red.count(), 2);
  assert.equal(await page.locator('.wait-graph .edge.circle').count(), 2);
  const hang = await page.evaluate(() => {
    const probe = document.querySelector('.severity.hang');
    return getComputedStyle(probe).color;
  });
  assert.equal(
    await red
      .first()
      .locator('rect')
      .evaluate((rect) => getComputedStyle(rect).stroke),
    hang,
  );
  const names = await red.allTextContents();
  assert.deepEqual(names.map((text) => text.match(/settle-\d/)?.[0]).sort(), ['settle-0', 'settle-1']);
  assert.match(
    await page.locator('.wait-graph').textContent(),
    /mutex orders::(savings|checking).*orders::Transfer at demo_orders\.cc:\d+/,
  );
  await page.getByText('The same as a list').click();
  assert.equal(await page.locator('.waits li.circle').count(), 2);
});

test('a node of the wait graph leads to the stack of its thread', () =>
  withPage({ answers, address: addressOf(ORDERS) }, async (page) => {
    await page.locator('.wait-graph .node.circle').first().click();
    const open = page.locator('details.group[open]').first();
    await open.getByText('orders::Transfer').first().waitFor();
    await page.waitForURL(/tid=\d+/);
    assert.equal(await page.evaluate(() => document.activeElement?.tagName), 'SUMMARY');
  }));

viewTest('stacks', answers, addressOf(ORDERS), async (page) => {
  const groups = page.locator('details.group');
  await groups.first().waitFor();
  const before = await groups.count();
  await page.getByRole('searchbox').fill('no such function anywhere');
  await page.getByText('No group has this text.').waitFor();
  await page.getByRole('searchbox').fill('Settle');
  await page.waitForFunction((all) => document.querySelectorAll('details.group').length < all, before);
  const first = groups.first();
  if (!(await first.evaluate((details) => details.open))) await first.locator('summary').click();
  await first.locator('.frame.own').first().waitFor();
  assert.match(await first.textContent(), /asleep, without a signal/);
  assert.match(await first.textContent(), /inlined/);
  await first.locator('summary').click();
  await first.locator('.frames').waitFor({ state: 'detached' });
  await first.locator('summary').click();
});

viewTest('threads', answers, `${addressOf(ORDERS)}?tab=threads`, async (page) => {
  const rows = page.locator('tbody tr');
  await rows.first().waitFor();
  const threads = ORDERS.threads.length;
  assert.equal(await rows.count(), threads);
  await page.getByRole('button', { name: 'name', exact: true }).click();
  const names = await page.locator('tbody tr td:nth-child(2)').allInnerTexts();
  assert.deepEqual(
    names,
    [...names].sort((a, b) => a.localeCompare(b)),
  );
  await page.getByRole('searchbox').fill('settle-1');
  await page.waitForFunction((all) => document.querySelectorAll('tbody tr').length < all, threads);
});

viewTest('tasks', answers, `${addressOf(TASKS)}?tab=tasks`, async (page) => {
  const tasks = page.locator('details.group');
  await tasks.first().waitFor();
  assert.equal(await tasks.count(), TASKS.tasks.length);
  await page.getByRole('searchbox').fill('main.transfer');
  await page.getByText(/2 of \d+ tasks/).waitFor();
  await tasks.first().locator('summary').click();
  await tasks.first().locator('.frames .own', { hasText: 'main.transfer' }).waitFor();
});

viewTest('flame graph', answers, `${addressOf(TASKS)}?tab=flame`, async (page) => {
  const boxes = page.locator('.flame .box');
  await boxes.first().waitFor();
  const all = await boxes.count();
  assert.ok(all > 10, `${all} boxes`);
  const top = (text) =>
    page
      .locator('.flame .box', { hasText: text })
      .first()
      .evaluate((box) => box.offsetTop);
  assert.equal(await top('all'), 0);
  await page.getByRole('button', { name: 'As flame graph' }).click();
  await page.getByRole('button', { name: 'As icicle' }).waitFor();
  assert.ok((await top('all')) > 0);
  await page.getByRole('searchbox').fill('transfer');
  await page.getByText(/^\d+ of \d+ threads and tasks, \d/).waitFor();
  assert.ok((await page.locator('.flame .match').count()) > 0);
  await page.getByRole('searchbox').fill('');
  await page.locator('.flame .box', { hasText: 'transfer' }).first().click();
  await page.getByRole('button', { name: 'Zoom out (Esc)' }).waitFor();
  assert.ok((await boxes.count()) < all);
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Zoom out (Esc)' }).waitFor({ state: 'detached' });
  await page.getByLabel('Count').selectOption('threads');
  await boxes.first().waitFor();
});

viewTest('notes', answers, `${addressOf(ORDERS)}?tab=notes`, async (page) => {
  await page.getByText(/of the process's memory were read/).waitFor();
});

viewTest('modules', answers, `${addressOf(ORDERS)}?tab=modules`, async (page) => {
  await page.getByRole('cell', { name: /demo_orders/ }).waitFor();
});

viewTest('dump of a crash', answers, addressOf(CRASH), async (page) => {
  await page.getByText('Crashed:', { exact: true }).waitFor();
  assert.match(await page.locator('.verdict').textContent(), /double free|null pointer/);
  const first = page.locator('details.group').first();
  await first.getByText('crashed', { exact: true }).waitFor();
  assert.match(await first.textContent(), new RegExp(`tid ${CRASH.crash.tid}`));
  assert.equal(await page.getByRole('button', { name: /^Dump/ }).count(), 0);
});

test('a crash leads to its equals', () =>
  withPage({ answers, address: addressOf(CRASH) }, async (page) => {
    await page.getByText('Equal crashes over time').click();
    await page.getByRole('heading', { name: /^Crash in/ }).waitFor();
  }));

test('on a narrow screen nothing is wider than it', () =>
  withPage({ answers, address: addressOf(ORDERS), width: 420 }, async (page) => {
    await page.locator('details.group').first().waitFor();
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    await picture(page, 'narrow');
    assert.ok(width <= 420, `${width} px`);
  }));
