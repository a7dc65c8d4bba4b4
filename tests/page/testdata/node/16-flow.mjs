// Where dead letters go: what is lost on the way to a queue is drawn as lost, with its share, and does not arrive.
import {api, base, event, go, holds, same, scenario, tab} from './lib.mjs';

const labels = (page) => page.locator('svg.flow .labels text').allTextContents();

await scenario(async (browser, faults) => {
  // A circle that nobody leaves: what has expired twice comes back to where it died, and is dropped.
  for (const [from, to] of [['there', 'back'], ['back', 'there']]) await api('PUT', `queues/%2F/${from}`, {durable: true, arguments: {'x-message-ttl': 50, 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': to}});
  const page = await tab(browser, faults);
  let done = false;
  const publishing = (async () => {
    while (!done) await api('POST', 'exchanges/%2F/amq.default/publish', {routing_key: 'there', payload: 'x', payload_encoding: 'string', properties: {}});
  })();
  try {
    await event('kind=message_cycle');
    await go(page, '#/flow');
    await page.getByText(/^[\d,.]+k? messages a second are lost, in 1 queue\.$/).waitFor();
    const texts = await labels(page);
    holds(texts.some((t) => /^100 % lost, [\d,.]+k?\/s$/.test(t)), `no way says what is lost: ${texts}`);
    holds(texts.includes('none arrives'), `the way back does not say that nothing arrives: ${texts}`);
    same(texts.filter((t) => /^expired/.test(t)).length, 1, `ways that messages arrive on, of ${texts}`);
    await page.locator('svg.flow .end.bad', {hasText: 'dropped: they came back'}).waitFor();
    await page.locator('tr', {hasText: '100 % lost: cycle'}).waitFor();
  } finally {
    done = true;
    await publishing;
  }

  // A part is lost behind an exchange that leads to two queues; another queue waits for what cannot be sent, and loses nothing.
  const edge = (o) => ({vhost: '/', reason: 'expired', exchange: 'dlx', key: 'k', count: 100, rate: 8, certain: true, recent: false, outcomes: {}, at_least_once: false, ...o});
  const node = (queue) => ({vhost: '/', queue, exists: true, messages: 0, messages_ready: 0, dead_letters: 0});
  const outcomes = {dead_lettered: 3, refused: 1};
  const flow = {
    complete: true, nodes: ['a', 'b', 'c', 'd'].map(node), cycles: [{vhost: '/', queues: ['a', 'b'], bound: 'cycle_rule', slowed: false, certain: true, rate: null}], left_out: {components: 0, edges: 0},
    edges: [edge({from: 'a', to: 'b', outcomes}), edge({from: 'a', to: 'c', outcomes}), edge({from: 'd', exchange: 'gone', problem: 'no_exchange', at_least_once: true}), edge({from: 'b', to: 'c', outcomes: {no_exchange: 7}})],
  };
  await page.route(base + '/api/dead-letters/flow*', (route) => route.fulfill({json: flow}));
  await page.getByText('2.0 messages a second are lost, in 1 queue.').waitFor({timeout: 60_000});
  const texts = await labels(page);
  same(texts.filter((t) => / lost/.test(t)), ['25 % lost, 2.0/s'], 'what is lost');
  holds(!texts.includes('none arrives'), `what arrives, too, is drawn as lost: ${texts}`);
  const rule = 'Cycle through a, b: the broker drops a message that comes back to a queue where it died';
  await page.getByText(rule + '.', {exact: true}).waitFor(); // how fast it is is not known yet
  Object.assign(flow.cycles[0], {bound: 'rejected', rate: 3});
  await page.getByText(rule + ', unless a consumer rejected it on the way: then it goes round again. On its slowest way: 3.0/s.', {exact: true}).waitFor({timeout: 60_000});

  // Nothing has left yet: nothing was lost.
  Object.assign(flow, {cycles: [], nodes: [node('d')], edges: [edge({from: 'd', exchange: 'gone', problem: 'no_exchange', count: 0, rate: null})]});
  await page.getByText('Messages would be lost, in 1 queue.').waitFor({timeout: 60_000});
  await page.getByText('⚠ messages would be lost').waitFor();
});
