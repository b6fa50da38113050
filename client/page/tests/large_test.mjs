// 10,000 threads are shown without a stall. Times are printed; what is asserted allows for a busy machine.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { addressOf, answersOf } from './answers.mjs';
import { closeBrowser, picture, withPage } from './browser.mjs';
import { manyThreads } from './made.mjs';

after(closeBrowser);

const COUNT = 10_000;

// Tells of the tasks of the page's thread that took longer than 50 ms.
function noteLongTasks() {
  window.longTasks = [];
  new PerformanceObserver((list) =>
    window.longTasks.push(...list.getEntries().map((entry) => Math.round(entry.duration))),
  ).observe({ type: 'longtask', buffered: true });
}

async function measured(page, what, run) {
  const begin = performance.now();
  await run();
  const took = Math.round(performance.now() - begin);
  console.log(`${what}: ${took} ms`);
  return took;
}

for (const areDistinct of [false, true]) {
  const dump = manyThreads(COUNT, areDistinct);
  const what = areDistinct ? `${COUNT} groups` : `${COUNT} threads in one group`;
  const body = JSON.stringify(dump);
  test(`${what} are shown, searched and scrolled`, () =>
    withPage({ answers: { ...answersOf(), GetDump: () => body }, address: '#/daemon' }, async (page) => {
      console.log(`${what}: ${(body.length / (1 << 20)).toFixed(1)} MiB of JSON`);
      await page.evaluate(noteLongTasks);
      const shown = await measured(page, `${what}, until its stacks are there`, async () => {
        await page.evaluate((address) => {
          location.hash = address;
        }, addressOf(dump));
        await page.locator('details.group').first().waitFor();
      });
      const elements = await page.evaluate(() => document.querySelectorAll('*').length);
      console.log(
        `${what}: ${elements} elements; long tasks of ${await page.evaluate(() => window.longTasks.join(', '))} ms`,
      );
      assert.ok(elements < 20_000, `${elements} elements`);
      assert.ok(shown < 10_000, `${shown} ms`);
      if (areDistinct) {
        await measured(page, `${what}, search`, async () => {
          await page.getByRole('searchbox').fill('work_9999');
          await page.getByText(`1 of 10,000 groups`).waitFor();
        });
        await page.getByRole('searchbox').fill('');
        await page.getByText('10,000 groups', { exact: true }).waitFor();
        const before = await page.locator('details.group').count();
        await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
        await page.waitForFunction((count) => document.querySelectorAll('details.group').length > count, before);
      }
      await measured(page, `${what}, threads`, async () => {
        await page.getByRole('tab', { name: 'Threads' }).click();
        await page.locator('tbody tr').first().waitFor();
      });
      await measured(page, `${what}, threads searched`, async () => {
        await page.getByRole('searchbox').fill('worker-9998');
        await page.getByText(`1 of 10,000 threads`).waitFor();
      });
      await measured(page, `${what}, flame graph`, async () => {
        await page.getByRole('tab', { name: 'Flame graph' }).click();
        await page.locator('.flame .box').first().waitFor();
      });
      await picture(page, areDistinct ? 'flame-of-many' : 'flame-of-one');
      assert.ok((await page.locator('.flame .box').count()) < 5000);
    }));
}
