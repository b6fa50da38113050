// The page as a real daemon serves it, at STACKD_PAGE_URL, beside the quickstart's program: orders, whose deadlock is dumped.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { assertAccessible, closeBrowser, withPage } from './browser.mjs';

after(closeBrowser);

const url = process.env.STACKD_PAGE_URL;

test('a deadlock is seen by itself, and its circle is red', () =>
  withPage({ url }, async (page) => {
    await page
      .getByRole('link', { name: /2 threads wait for each other/ })
      .first()
      .click();
    await page.locator('.wait-graph .node.circle').first().waitFor();
    assert.equal(await page.locator('.wait-graph .node.circle').count(), 2);
    assert.match(await page.locator('.wait-graph').textContent(), /orders::Transfer at demo_orders\.cc:\d+/);
    for (const tab of ['Threads', 'Flame graph', 'Notes', 'Modules', 'Stacks']) {
      await page.getByRole('tab', { name: tab }).click();
      await page.locator('[role=tabpanel]').locator('tbody tr, .box, p, summary').first().waitFor();
    }
    await assertAccessible(page, 'a dump of a real daemon');
  }));

test('a dump is taken, compared with the one before, and its text copied', () =>
  withPage({ url }, async (page) => {
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.getByRole('button', { name: 'Dump orders' }).click();
    await page.getByText('on request').waitFor();
    await page.getByRole('button', { name: 'Copy text' }).click();
    await page.getByText('text copied').first().waitFor();
    assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^orders \(pid \d+ on .*settle-0/s);
    await page.getByRole('link', { name: 'Compare with the one before' }).click();
    await page.getByRole('region', { name: 'Verdict' }).waitFor();
    await page.locator('.finding', { hasText: 'wait for each other in a circle' }).first().waitFor();
    assert.ok((await page.locator('details.compared').count()) > 20);
  }));

test('the hang is counted, and says why it is one group', () =>
  withPage({ url, address: '#/groups' }, async (page) => {
    await page
      .getByRole('link', { name: /2 threads wait for each other/ })
      .first()
      .click();
    await page.getByRole('heading', { name: /^Hang in orders::Transfer/ }).waitFor();
    assert.ok((await page.locator('.frames .own').count()) > 0);
  }));

test('the daemon tells of itself, and refuses what is not there in words', () =>
  withPage({ url, address: '#/daemon', expectErrors: true }, async (page) => {
    await page.getByRole('cell', { name: 'ring_records', exact: true }).waitFor();
    await page.goto(`${url}#/dumps/1-1/none`);
    await page.getByRole('alert').getByText('not found').waitFor();
  }));
