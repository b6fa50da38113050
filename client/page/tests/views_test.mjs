// Each view is opened, clicked, searched and judged by axe, light and dark, with answers of a real daemon.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { addressOf, answersOf, dumpWhere, RECORDED } from './answers.mjs';
import { assertAccessible, closeBrowser, picture, withPage } from './browser.mjs';

after(closeBrowser);

const answers = answersOf();
const ORDERS = dumpWhere(RECORDED, (dump) => dump.process.displayName === 'orders' && dump.trigger === 'HANG');
const TASKS = dumpWhere(RECORDED, (dump) => (dump.tasks ?? []).length > 0);
const CRASH = dumpWhere(RECORDED, (dump) => dump.trigger === 'CRASH');

// A test in both colour schemes, with pictures.
function inBothSchemes(name, address, run) {
  for (const scheme of ['light', 'dark']) {
    test(`${name}, ${scheme}`, () =>
      withPage({ answers, address, scheme }, async (page) => {
        await run(page);
        await assertAccessible(page, `${name}, ${scheme}`);
        await picture(page, `${name.replaceAll(' ', '-')}-${scheme}`);
      }));
  }
}

inBothSchemes('processes', '', async (page) => {
  await page.getByText(/with a hang/).waitFor();
  const rows = page.locator('tbody tr');
  // What hangs or has crashed stands above what is well.
  const severities = await rows.evaluateAll((all) => all.map((row) => row.className));
  assert.ok(
    severities.lastIndexOf('hang') < severities.indexOf('crash') &&
      severities.lastIndexOf('crash') < severities.indexOf(''),
    severities.join(),
  );
  await page.getByRole('searchbox').fill('orders');
  await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 1);
  assert.match(await rows.textContent(), /wait for each other in a circle/);
});

inBothSchemes('dump of a deadlock', addressOf(ORDERS), async (page) => {
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
    assert.match(page.url(), /tid=\d+/);
    assert.equal(await page.evaluate(() => document.activeElement?.tagName), 'SUMMARY');
  }));

inBothSchemes('stacks', addressOf(ORDERS), async (page) => {
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

inBothSchemes('threads', `${addressOf(ORDERS)}?tab=threads`, async (page) => {
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

inBothSchemes('tasks', `${addressOf(TASKS)}?tab=tasks`, async (page) => {
  const tasks = page.locator('details.group');
  await tasks.first().waitFor();
  assert.equal(await tasks.count(), TASKS.tasks.length);
  await page.getByRole('searchbox').fill('main.transfer');
  await page.getByText(/2 of \d+ tasks/).waitFor();
  await tasks.first().locator('summary').click();
  await tasks.first().locator('.frames .own', { hasText: 'main.transfer' }).waitFor();
});

inBothSchemes('flame graph', `${addressOf(TASKS)}?tab=flame`, async (page) => {
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

inBothSchemes('notes', `${addressOf(ORDERS)}?tab=notes`, async (page) => {
  await page.getByText(/of the process's memory were read/).waitFor();
});

inBothSchemes('modules', `${addressOf(ORDERS)}?tab=modules`, async (page) => {
  await page.getByRole('cell', { name: /demo_orders/ }).waitFor();
});

inBothSchemes('dump of a crash', addressOf(CRASH), async (page) => {
  await page.getByText('Crashed:', { exact: true }).waitFor();
  assert.match(await page.locator('.verdict').textContent(), /double free|null pointer/);
});

test('a crash leads to its equals', () =>
  withPage({ answers, address: addressOf(CRASH) }, async (page) => {
    await page.getByText('Equal crashes over time').click();
    await page.getByRole('heading', { name: /^Crash in/ }).waitFor();
  }));

inBothSchemes('crashes and hangs', '#/groups', async (page) => {
  await page.getByText('version 1.4.2').first().waitFor();
  const rows = page.locator('tbody tr');
  assert.equal(await rows.count(), RECORDED.groups.CRASH.length + RECORDED.groups.HANG.length);
  assert.ok((await page.locator('.timeline rect').count()) > 0);
  assert.match(await page.locator('tbody').textContent(), /pod shop\/billing/);
  await page.getByRole('searchbox').fill('billing');
  await page.waitForFunction(
    (wanted) => document.querySelectorAll('tbody tr').length === wanted,
    RECORDED.groups.CRASH.length,
  );
});

inBothSchemes('one group', `#/groups/${RECORDED.groups.CRASH[0].fingerprint}`, async (page) => {
  await page.getByRole('heading', { name: 'Why they are taken for equal' }).waitFor();
  assert.ok((await page.locator('.frames .own').count()) > 0);
  assert.match(await page.locator('.frames').textContent(), /skipped/);
  await page.locator('ul.dumps a').first().waitFor();
});

inBothSchemes('comparison', '#/dumps', async (page) => {
  const [, process] = RECORDED.comparison.after.split('/');
  await page.getByRole('searchbox').fill('queue');
  await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 2);
  for (const box of await page.getByRole('checkbox').all()) await box.check();
  await page.getByText('Compare these two').click();
  await page.getByRole('region', { name: 'Verdict' }).waitFor();
  assert.match(page.url(), new RegExp(`#/compare/${process}/`));
  const threads = page.locator('details.compared');
  assert.equal(await threads.count(), RECORDED.comparison.threads.length);
  await threads.first().locator('summary').click();
  await threads.first().getByRole('heading', { name: 'before' }).waitFor();
  await page.getByRole('searchbox').fill('moved');
  await page.getByText(/\d+ of \d+ threads/).waitFor();
});

inBothSchemes('dumps', '#/dumps', async (page) => {
  await page.getByRole('row').nth(RECORDED.dumps.length).waitFor();
  await page.getByLabel('Taken').selectOption('CRASH');
  await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 4);
});

inBothSchemes('daemon', '#/daemon', async (page) => {
  await page.getByText('The daemon has no problem.').waitFor();
  await page.getByRole('searchbox').fill('ring');
  const names = await page.locator('tbody tr td:first-child').allInnerTexts();
  assert.ok(names.length > 0 && names.every((name) => name.includes('ring')), names.join());
});

test('older dumps are loaded page by page, each once', () => {
  const many = Array.from({ length: 250 }, (_, i) => ({ ...RECORDED.dumps[0], name: `processes/1-1/dumps/${i}` }));
  return withPage({ answers: answersOf({ ...RECORDED, dumps: many }), address: '#/dumps' }, async (page) => {
    const rows = page.locator('tbody tr');
    await rows.nth(99).waitFor();
    for (const count of [200, 250]) {
      await page.getByRole('button', { name: 'Older dumps' }).click();
      await page.waitForFunction((wanted) => document.querySelectorAll('tbody tr').length === wanted, count);
    }
    assert.equal(await page.getByRole('button', { name: 'Older dumps' }).count(), 0);
  });
});

test('on a narrow screen nothing is wider than it', () =>
  withPage({ answers, address: addressOf(ORDERS), width: 420 }, async (page) => {
    await page.locator('details.group').first().waitFor();
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    await picture(page, 'narrow');
    assert.ok(width <= 420, `${width} px`);
  }));
