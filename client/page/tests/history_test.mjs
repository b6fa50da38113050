// What the gateway of a fleet shows: crashes and hangs of all pods, and dumps of those that are gone.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { gatewayAnswersOf, RECORDED } from './answers.mjs';
import { closeBrowser, viewTest, withPage } from './browser.mjs';
import { Refusal } from './server.mjs';

after(closeBrowser);

const COUNT = RECORDED.groups.CRASH.length + RECORDED.groups.HANG.length;

viewTest('history of the fleet', gatewayAnswersOf(), '', async (page) => {
  const rows = page.locator('tbody tr');
  await rows.nth(COUNT - 1).waitFor();
  assert.equal(await rows.count(), COUNT);
  assert.deepEqual(await page.locator('nav a').allInnerTexts(), ['stackd', 'Crashes and hangs']);
  const deadlock = rows.filter({ hasText: 'thread settle-0' });
  assert.match(await deadlock.textContent(), /shop\/orders-.*1\.4\.2/);
  await page.getByText('only the newest 50000 records are counted').waitFor();
});

test('what is asked for stands in the address, and is what the gateway is asked', async () => {
  const asked = [];
  const answers = gatewayAnswersOf();
  const noting = { ...answers, ListCrashes: (request) => asked.push(request) && answers.ListCrashes() };
  await withPage({ answers: noting, address: '#/history?q=pod%3Dcheckout-*' }, async (page) => {
    await page.locator('tbody tr').first().waitFor();
    assert.deepEqual([asked.at(-1).selector, asked.at(-1).window], ['pod=checkout-*', '604800s']);
    await page.getByLabel('Last').selectOption('day');
    await page.waitForURL(/window=86400s/);
    await page.waitForFunction(() => document.querySelector('main [aria-busy]') === null);
    assert.equal(asked.at(-1).window, '86400s');
  });
});

viewTest('dump of a pod that is gone', gatewayAnswersOf(), '', async (page) => {
  await page
    .getByRole('link', { name: /^orders-/ })
    .first()
    .click();
  await page.waitForURL(/#\/dumps\/.*\?of=targets%2Fshop%2Forders-/);
  await page.locator('.wait-graph .node.circle').first().waitFor();
  // A node of the graph leads to its thread, in the same pod.
  await page.locator('.wait-graph a').first().click();
  await page.waitForURL(/of=targets%2Fshop%2Forders-.*tid=/);
  for (const tab of ['Threads', 'Flame graph', 'Stacks']) {
    await page.getByRole('tab', { name: tab }).click();
    await page.locator('[role=tabpanel]').locator('tbody tr, .box, summary').first().waitFor();
  }
  // A gateway takes no dump of one process, compares none and renders no text.
  assert.deepEqual(await page.locator('main .tools').first().locator('button, a.button').allInnerTexts(), ['Save JSON']);
});

test('why history cannot be read is said', () => {
  const refuse = () => {
    throw new Refusal(503, 'unavailable', 'the store does not answer');
  };
  const answers = { ...gatewayAnswersOf(), ListCrashes: refuse };
  return withPage({ answers, expectErrors: true }, async (page) => {
    await page.getByRole('alert').getByText('the store does not answer').waitFor();
  });
});

test('without a crash it says so', () =>
  withPage({ answers: { ...gatewayAnswersOf(), ListCrashes: () => ({}), ListHangs: () => ({}) } }, async (page) => {
    await page.getByText('No crash and no hang is in the history').waitFor();
  }));
