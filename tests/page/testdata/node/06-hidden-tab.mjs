// A hidden tab has no stream; shown again, it goes on.
import {api, go, holds, scenario, tab} from './lib.mjs';

await scenario(async (browser, faults) => {
  const page = await tab(browser, faults);
  const open = new Set();
  page.on('request', (r) => { if (r.url().includes('/api/live?view=deadlines')) open.add(r); });
  page.on('requestfinished', (r) => open.delete(r));
  page.on('requestfailed', (r) => open.delete(r));
  const until = async (n) => {
    for (let i = 0; i < 300 && open.size !== n; i++) await page.waitForTimeout(100);
    holds(open.size === n, `${open.size} live streams are open, not ${n}`);
  };
  await go(page, '#/deadlines');
  await until(1);
  const hide = (hidden) => page.evaluate((h) => {
    Object.defineProperty(document, 'hidden', {configurable: true, get: () => h});
    Object.defineProperty(document, 'visibilityState', {configurable: true, get: () => h ? 'hidden' : 'visible'});
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await hide(true);
  await until(0);
  await api('PUT', 'queues/%2F/while-hidden', {durable: true, arguments: {'x-message-ttl': 3_600_000}});
  await api('POST', 'exchanges/%2F/amq.default/publish', {routing_key: 'while-hidden', payload: 'x', payload_encoding: 'string', properties: {}});
  await hide(false);
  await until(1);
  await page.getByText('while-hidden').first().waitFor();
});
