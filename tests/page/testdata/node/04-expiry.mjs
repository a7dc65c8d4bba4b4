// A message with a TTL of half a second appears and disappears by itself, and its event says why and how late.
import {api, go, holds, scenario, tab} from './lib.mjs';

await scenario(async (browser, faults) => {
  await api('PUT', 'queues/%2F/short', {durable: true, arguments: {'x-message-ttl': 500}});
  const page = await tab(browser, faults), events = await tab(browser, faults);
  await go(events, '#/events');
  await go(page, '#/deadlines');
  let loads = 0;
  page.on('request', (r) => { if (r.isNavigationRequest()) loads++; });
  const row = page.locator('tbody tr', {hasText: 'short'});
  let seen = false;
  for (let i = 0; i < 60 && !seen; i++) { // it lives for half a second: several tries
    await api('POST', 'exchanges/%2F/amq.default/publish', {routing_key: 'short', payload: 'x', payload_encoding: 'string', properties: {message_id: 'm-1'}});
    seen = await row.first().waitFor({timeout: 1500}).then(() => true, () => false);
  }
  holds(seen, 'the queue with a message was not shown');
  await page.waitForFunction(() => ![...document.querySelectorAll('tbody tr')].some((tr) => tr.textContent.includes('short') && /in 0\.|now/.test(tr.textContent)));
  holds(loads === 0, 'the page was loaded again');
  const event = events.locator('ol.events li', {hasText: 'short'}).first();
  await event.getByText(/expired/i).first().waitFor();
  await event.getByText(/\d ms/).first().waitFor();
});
