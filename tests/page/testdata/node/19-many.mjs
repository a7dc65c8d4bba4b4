// However much there is, a view asks for little, and draws little.
import {api, go, holds, same, scenario, tab} from './lib.mjs';

const COUNT = 10_000;

await scenario(async (browser, faults) => {
  await api('PUT', 'policies/%2F/tenth', {pattern: '0$', definition: {'message-ttl': 60_000}});
  await api('PUT', 'operator-policies/%2F/few', {pattern: '00$', definition: {'message-ttl': 30_000}});
  await api('POST', 'definitions', {queues: Array.from({length: COUNT}, (_, i) => ({name: `q-${String(i).padStart(5, '0')}`, vhost: '/', durable: false, auto_delete: false, arguments: {}}))});
  const page = await tab(browser, faults);

  // Policies: how many queues each has comes in one answer, which is fetched twice a minute.
  let requests = 0, bytes = 0;
  const asked = [];
  page.on('response', async (r) => {
    const path = new URL(r.url()).pathname;
    if (!path.startsWith('/api/') || path === '/api/live') return;
    requests++;
    asked.push(path);
    bytes += Number((await r.request().sizes().catch(() => null))?.responseBodySize ?? 0);
  });
  await go(page, '#/policies');
  const count = (name) => page.locator('tr', {has: page.locator('th', {hasText: name})}).getByRole('button', {name: /^[0-9,]+$/});
  await page.getByRole('button', {name: '1,000', exact: true}).waitFor();
  await page.getByText('1,000 queues of 10,000 with a policy; the first 100 are shown.').waitFor();
  holds(!asked.includes('/api/queues'), `Policies asked for queues: ${asked}`);
  holds(requests <= 12 && bytes <= 100_000, `Policies took ${requests} requests and ${bytes} bytes: ${asked}`);
  await page.waitForTimeout(6000); // until lists are fetched again
  same(asked.filter((p) => p === '/api/policy-use').length, 1, 'how often queues are counted in six seconds');
  await count('few').click();
  await page.getByText('100 queues with the policy few.').waitFor();
  await page.getByText('by operator policy few').first().waitFor();
  await page.getByRole('button', {name: 'Show all'}).click();
  await page.getByText('1,000 queues of 10,000 with a policy').waitFor();
});
