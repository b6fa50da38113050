// The page as a real gateway serves it, at STACKD_PAGE_URL: a hang of orders in checkout-1, whose daemon is gone.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { assertAccessible, closeBrowser, picture, withPage } from './browser.mjs';

after(closeBrowser);

test('a hang is in the history, and its dump opens', () =>
  withPage({ url: process.env.STACKD_PAGE_URL }, async (page) => {
    const row = page.locator('tbody tr').filter({ hasText: 'wait for each other in a circle' });
    await row.waitFor();
    assert.match(await row.textContent(), /shop\/checkout-1/);
    await picture(page, 'gateway-history');
    await row.getByRole('link', { name: 'checkout-1' }).click();
    await page.locator('.wait-graph .node.circle').first().waitFor();
    assert.equal(await page.locator('.wait-graph .node.circle').count(), 2);
    await page.getByRole('tab', { name: 'Flame graph' }).click();
    await page.locator('.box').first().waitFor();
    await assertAccessible(page, 'a dump at the gateway');
    await picture(page, 'gateway-dump');
  }));
