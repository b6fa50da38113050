// A dump is taken by a button: progress, cancel, refusal, a dump that could not be stored.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { answersOf, dumpWhere, RECORDED } from './answers.mjs';
import { closeBrowser, withPage } from './browser.mjs';
import { Refusal } from './server.mjs';

after(closeBrowser);

const dump = dumpWhere(RECORDED, (one) => one.process.displayName === 'orders' && one.trigger === 'HANG');
const button = (page) => page.getByRole('button', { name: 'Dump orders' });

// An answer that comes when it is let go.
function held(value) {
  const gate = {};
  const open = new Promise((done) => {
    gate.letGo = done;
  });
  gate.answer = async (request, response) => {
    gate.request = request;
    response.on('close', () => {
      gate.wasClosed = !response.writableFinished;
      gate.onClose?.();
    });
    await open;
    return value;
  };
  return gate;
}

test('progress is shown and announced while a dump is taken, and then the dump', () => {
  const gate = held(dump);
  return withPage({ answers: { ...answersOf(), CreateDump: gate.answer } }, async (page) => {
    await button(page).click();
    await page.getByRole('progressbar', { name: 'Dumping orders' }).waitFor();
    await page.locator('[aria-live]', { hasText: 'Dumping orders' }).waitFor({ state: 'attached' });
    await page.locator('.running', { hasText: /[1-9] s/ }).waitFor();
    gate.letGo();
    await page.getByRole('heading', { name: 'Findings' }).waitFor();
    assert.equal(gate.request.process, dump.process.name);
    assert.match(gate.request.requestId, /^[0-9a-f]{32}$/);
  });
});

test('Cancel ends the call', () => {
  const gate = held(dump);
  return withPage({ answers: { ...answersOf(), CreateDump: gate.answer } }, async (page) => {
    const closed = new Promise((done) => {
      gate.onClose = done;
    });
    await button(page).click();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('cancelled').first().waitFor();
    await closed;
    assert.ok(gate.wasClosed);
    await button(page).waitFor();
  });
});

test('a refusal is said where the button is', () => {
  const refuse = () => {
    throw new Refusal(403, 'permission_denied', 'role dump is needed, and this caller has role read');
  };
  return withPage({ answers: { ...answersOf(), CreateDump: refuse }, expectErrors: true }, async (page) => {
    await button(page).click();
    await page.locator('tr', { hasText: 'orders' }).getByText('role dump is needed').waitFor();
  });
});

test('a dump that could not be stored is shown all the same', () => {
  const lost = { ...dump, name: `${dump.process.name}/dumps/20261126T000000000Z-9`, stored: false };
  return withPage({ answers: { ...answersOf(), CreateDump: () => lost } }, async (page, server) => {
    await button(page).click();
    await page.getByText('this page has the only copy').waitFor();
    assert.ok(!server.calls.includes('GetDump'));
  });
});

test('a daemon that is gone is said, and what was known stays', () =>
  withPage({ answers: answersOf(), expectErrors: true }, async (page, server) => {
    await button(page).waitFor();
    server.close();
    await page.getByRole('alert').getByText('The daemon does not answer').waitFor();
    await button(page).waitFor();
  }));
