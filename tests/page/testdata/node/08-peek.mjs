// Looking into a queue changes neither redelivered, nor order, lease or counters.
import {api, go, same, scenario, tab} from './lib.mjs';

const told = 'name,messages,messages_ready,messages_unacknowledged,message_stats,lease_expires_at,messages_expired,consumers';

await scenario(async (browser, faults) => {
  await api('PUT', 'queues/%2F/peeked', {durable: true, arguments: {'x-expires': 3_600_000}});
  for (let i = 0; i < 5; i++) await api('POST', 'exchanges/%2F/amq.default/publish', {routing_key: 'peeked', payload: `body ${i}`, payload_encoding: 'string', properties: {message_id: `m-${i}`}});
  const counters = async () => {
    const {message_stats: stats = {}, ...q} = await api('GET', `queues/%2F/peeked?columns=${told}`);
    return {...q, stats: Object.fromEntries(Object.entries(stats).filter(([, v]) => typeof v === 'number'))};
  };
  const before = await counters();
  const page = await tab(browser, faults);
  await go(page, '#/queues/%2F/peeked?tab=messages');
  for (let i = 0; i < 5; i++) await page.getByText(`m-${i}`).first().waitFor();
  same(await counters(), before, 'what is counted after a look');
  const got = await api('POST', 'queues/%2F/peeked/get', {count: 10, ackmode: 'ack_requeue_false', encoding: 'auto'});
  same(got.map((m) => [m.payload, m.redelivered]), [0, 1, 2, 3, 4].map((i) => [`body ${i}`, false]), 'what a consumer gets after a look');
});
