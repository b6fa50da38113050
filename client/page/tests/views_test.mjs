// Each view of processes, dumps and groups is opened, clicked, searched and judged by axe, with answers of a real daemon.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { answersOf, RECORDED } from './answers.mjs';
import { closeBrowser, viewTest, withPage } from './browser.mjs';

after(closeBrowser);

const answers = answersOf();

viewTest('processes', answers, '', async (page) => {
  // Each row has its own when its newest dump has come.
  await page.locator('tbody tr.crash').first().waitFor();
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

viewTest('crashes and hangs', answers, '#/groups', async (page) => {
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

viewTest('one group', answers, `#/groups/${RECORDED.groups.CRASH[0].fingerprint}`, async (page) => {
  await page.getByRole('heading', { name: 'Why they are taken for equal' }).waitFor();
  assert.ok((await page.locator('.frames .own').count()) > 0);
  assert.match(await page.locator('.frames').textContent(), /skipped/);
  await page.locator('ul.dumps a').first().waitFor();
});

viewTest('comparison', answers, '#/dumps', async (page) => {
  const [, process] = RECORDED.comparison.after.split('/');
  await page.getByRole('searchbox').fill('queue');
  await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 2);
  for (const box of await page.getByRole('checkbox').all()) await box.check();
  await page.getByText('Compare these two').click();
  await page.getByRole('region', { name: 'Verdict' }).waitFor();
  await page.waitForURL(new RegExp(`#/compare/${process}/`));
  const threads = page.locator('details.compared');
  assert.equal(await threads.count(), RECORDED.comparison.threads.length);
  await threads.first().locator('summary').click();
  await threads.first().getByRole('heading', { name: 'before' }).waitFor();
  await page.getByRole('searchbox').fill('moved');
  await page.getByText(/\d+ of \d+ threads/).waitFor();
});

viewTest('dumps', answers, '#/dumps', async (page) => {
  await page.getByRole('row').nth(RECORDED.dumps.length).waitFor();
  await page.getByLabel('Taken').selectOption('CRASH');
  await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 4);
});

viewTest('daemon', answers, '#/daemon', async (page) => {
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
