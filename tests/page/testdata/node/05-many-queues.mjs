// Ten thousand queues: a page of them is one request of at most 60 KB, and queues without a deadline come last.
import {api, go, holds, same, scenario, tab} from './lib.mjs';

const COUNT = 10_000;
const LIMIT = 60_000; // bytes

await scenario(async (browser, faults) => {
  const queues = Array.from({length: COUNT}, (_, i) => ({name: `q-${String(i).padStart(5, '0')}`, vhost: '/', durable: false, auto_delete: false, arguments: i % 100 ? {} : {'x-message-ttl': 3_600_000 + i * 1000}}));
  await api('POST', 'definitions', {queues});
  for (const q of [9900, 100, 5000]) await api('POST', 'exchanges/%2F/amq.default/publish', {routing_key: `q-${String(q).padStart(5, '0')}`, payload: 'x', payload_encoding: 'string', properties: {}});
  for (const reverse of [false, true]) {
    const {items} = await api('GET', `queues?page=1&page_size=100&sort=next_deadline&sort_reverse=${reverse}&columns=name,next_deadline`);
    same(items.slice(0, 3).map((q) => q.name), reverse ? ['q-09900', 'q-05000', 'q-00100'] : ['q-00100', 'q-05000', 'q-09900'], `queues by next_deadline, reverse ${reverse}`);
    holds(items.slice(3).every((q) => q.next_deadline == null), 'a queue without a deadline stands before one with');
  }
  const page = await tab(browser, faults);
  const requests = [];
  page.on('response', async (r) => {
    // The view after the login may be answered only now.
    if (/\/api\/(queues|live)/.test(r.url()) && !/view=now/.test(r.url())) requests.push(r);
  });
  await go(page, '#/queues');
  await page.getByText('q-00099').first().waitFor();
  holds(requests.length === 1, `the first page took ${requests.length} requests: ${requests.map((r) => r.url())}`);
  const state = await fetch(requests[0].url(), {headers: {authorization: 'Basic ' + Buffer.from('guest:guest').toString('base64')}});
  const size = (await state.text()).length;
  holds(size <= LIMIT, `a page has ${size} bytes`);
  console.log(`a page of ${COUNT} queues: ${size} bytes`);
});
