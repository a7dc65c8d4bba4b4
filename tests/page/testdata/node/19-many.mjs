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
  await page.getByRole('button', {name: 'Queues of tenth: 1,000'}).waitFor();
  await page.getByText('1,000 queues of 10,000 with a policy; the first 100 are shown.').waitFor();
  holds(!asked.includes('/api/queues'), `Policies asked for queues: ${asked}`);
  holds(requests <= 12 && bytes <= 100_000, `Policies took ${requests} requests and ${bytes} bytes: ${asked}`);
  await page.waitForTimeout(6000); // until lists are fetched again
  same(asked.filter((p) => p === '/api/policy-use').length, 1, 'how often queues are counted in six seconds');
  await page.getByRole('button', {name: 'Queues of few: 100'}).click();
  await page.getByText('100 queues with the policy few.').waitFor();
  await page.getByText('by operator policy few').first().waitFor();
  await page.getByRole('button', {name: 'Show all'}).click();
  await page.getByText('1,000 queues of 10,000 with a policy').waitFor();

  // Events: in a storm few rows are added, the others counted; and the latest is shown in the end.
  await page.addInitScript(() => {
    const Real = window.EventSource;
    window.EventSource = class extends EventTarget {
      constructor(url) {
        super();
        if (!String(url).startsWith('/api/events?')) return new Real(url);
        window.stream = this;
        this.url = String(url);
      }

      close() {}
    };
  });
  await go(page, '#/events');
  await page.reload();
  await page.locator('ol.events').waitFor({state: 'attached'});
  const storm = (selector, from) => page.evaluate(async ([selector, from]) => {
    let changes = 0;
    const watch = new MutationObserver((all) => { changes += all.reduce((n, m) => n + m.addedNodes.length, 0); });
    watch.observe(document.querySelector(selector), {childList: true, characterData: true});
    const began = performance.now();
    for (let i = from; i < from + 6000; i++) {
      const e = {id: i, kind: 'message_expired', time: Date.now(), vhost: '/', queue: 'q-00001', reason: 'expired', outcome: 'dropped', message_id: 'm-' + i, lateness_ms: 1};
      window.stream.dispatchEvent(new MessageEvent(e.kind, {data: JSON.stringify(e), lastEventId: String(i)}));
      if (i % 100 === 99) await new Promise((done) => setTimeout(done, 50));
    }
    watch.disconnect();
    return {changes, seconds: (performance.now() - began) / 1000};
  }, [selector, from]);
  await page.evaluate(() => window.stream.dispatchEvent(new MessageEvent('alarm_cleared', {data: JSON.stringify({id: 0, kind: 'alarm_cleared', time: 0, alarm: 'disk'}), lastEventId: '0'})));
  await page.locator('ol.events li').first().waitFor(); // what has happened before comes at once: nothing does now
  const rows = await storm('ol.events', 0);
  holds(rows.changes <= 30 * (rows.seconds + 1), `${rows.changes} rows were added in ${rows.seconds} s`);
  await page.locator('ol.events li').first().filter({hasText: 'm-5999'}).waitFor();
  await page.getByText(/^5,\d\d\d are left out/).waitFor();

  // The broker sends no more than are shown, if it is asked; and what it says it has left out counts.
  holds((await page.evaluate(() => window.stream.url)).includes('per_second=24'), 'the broker was not told how many are shown');
  await page.evaluate(() => {
    window.stream.dispatchEvent(new MessageEvent('left_out', {data: JSON.stringify({id: 5999, kind: 'left_out', time: 0, count: 70_000}), lastEventId: '5999'}));
    window.stream.dispatchEvent(new MessageEvent('alarm_cleared', {data: JSON.stringify({id: 6000, kind: 'alarm_cleared', time: 0, alarm: 'disk'}), lastEventId: '6000'}));
  });
  await page.getByText(/^75,\d\d\d are left out/).waitFor();
  await page.getByRole('button', {name: 'Pause'}).click();
  const texts = await storm('.table > p.quiet', 6000);
  holds(texts.changes <= 4 * (texts.seconds + 1), `while the list pauses, ${texts.changes} texts changed in ${texts.seconds} s`);
  await page.getByText(/^500 events since the pause/).waitFor();
  await page.getByRole('button', {name: 'Go on'}).click();
  await page.locator('ol.events li').first().filter({hasText: 'm-11999'}).waitFor();
});
