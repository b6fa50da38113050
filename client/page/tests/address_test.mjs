// Deep links, path prefixes and keys.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { addressOf, answersOf, dumpWhere, RECORDED } from './answers.mjs';
import { assertAccessible, closeBrowser, withPage } from './browser.mjs';

after(closeBrowser);

const answers = answersOf();
const dump = dumpWhere(RECORDED, (one) => one.process.displayName === 'orders' && one.trigger === 'HANG');

test('it works under a path prefix', () =>
  withPage({ answers, prefix: '/proxy/stackd/', address: addressOf(dump) }, async (page, server) => {
    await page.getByRole('heading', { name: 'Who waits for whom' }).waitFor();
    assert.deepEqual(server.calls, ['GetDump']);
    await page.getByRole('link', { name: 'Processes' }).click();
    await page.getByRole('button', { name: 'Dump orders' }).waitFor();
    await page.waitForURL(/\/proxy\/stackd\/#\/processes$/);
  }));

test('what is looked at is in the address, and the address brings it back', () =>
  withPage({ answers, address: addressOf(dump) }, async (page) => {
    await page.getByRole('tab', { name: 'Flame graph' }).click();
    await page.getByRole('button', { name: 'As flame graph' }).click();
    await page.waitForURL(/shape=flame/);
    const address = page.url();
    await page.goto('about:blank');
    await page.goto(address);
    await page.getByRole('button', { name: 'As icicle' }).waitFor();
    await page.getByRole('tab', { name: 'Stacks' }).click();
    await page.getByRole('searchbox').fill('Settle');
    await page.waitForURL(/q=Settle/);
    await page.reload();
    await page.getByRole('searchbox').waitFor();
    assert.equal(await page.getByRole('searchbox').inputValue(), 'Settle');
  }));

test('the browser goes back from a dump to where it was opened', () =>
  withPage({ answers }, async (page) => {
    await page
      .getByRole('link', { name: /wait for each other/ })
      .first()
      .click();
    await page.getByRole('heading', { name: 'Findings' }).waitFor();
    await page.goBack();
    await page.getByRole('heading', { name: 'Processes' }).waitFor();
  }));

test('a dump that is not there is said', () =>
  withPage({ answers, address: '#/dumps/1-1/none', expectErrors: true }, async (page) => {
    await page.getByRole('alert').getByText('there is no dump processes/1-1/dumps/none').waitFor();
  }));

test('keys search, go through rows, open and explain', () =>
  withPage({ answers, address: '#/dumps' }, async (page) => {
    await page.getByRole('row').nth(2).waitFor();
    await page.keyboard.press('/');
    assert.equal(await page.evaluate(() => document.activeElement.type), 'search');
    await page.keyboard.press('Escape');
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    const second = await page.evaluate(() => document.activeElement.getAttribute('href'));
    await page.keyboard.press('k');
    const first = await page.evaluate(() => document.activeElement.getAttribute('href'));
    assert.deepEqual([first, second], RECORDED.dumps.slice(0, 2).map(addressOf));
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keys' }).waitFor();
    await assertAccessible(page, 'help');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    await page.keyboard.press('Enter');
    await page.getByRole('tab', { name: 'Stacks' }).focus();
    await page.keyboard.press('ArrowRight');
    await page.locator('tbody tr').first().waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Threads');
  }));

test('arrows go through the boxes of a flame graph', () =>
  withPage({ answers, address: `${addressOf(dump)}?tab=flame` }, async (page) => {
    const focused = () => page.evaluate(() => Number(document.activeElement.dataset.depth));
    await page.locator('.flame .box').first().focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    assert.equal(await focused(), 2);
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Zoom out (Esc)' }).waitFor();
    assert.equal(await focused(), 2);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Zoom out (Esc)' }).waitFor({ state: 'detached' });
    await page.keyboard.press('ArrowUp');
    assert.equal(await focused(), 1);
  }));

test('the text of a dump is copied, and its JSON saved', () =>
  withPage({ answers, address: addressOf(dump) }, async (page) => {
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.getByRole('button', { name: 'Copy text' }).click();
    await page.getByText('text copied').first().waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), `${RECORDED.text.join('\n')}\n`);
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Save JSON' }).click(),
    ]);
    assert.match(download.suggestedFilename(), /^[\d-]+-\d{8}T\d{9}Z-\d+\.json$/);
  }));
