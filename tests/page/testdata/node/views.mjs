// Every view that there is, of a broker that fill has filled.
import {api, please} from './lib.mjs';

/** The addresses of views, with what is called what in pictures. */
export const VIEWS = {
  now: '#/', deadlines: '#/deadlines', queues: '#/queues', queue: '#/queues/%2F/orders', messages: '#/queues/%2F/orders?tab=messages', 'dead-letters': '#/queues/%2F/dead?tab=dead-letters',
  consumers: '#/queues/%2F/orders?tab=consumers', settings: '#/queues/%2F/orders?tab=settings', exchanges: '#/exchanges', exchange: '#/exchanges/%2F/later', flow: '#/flow', policies: '#/policies',
  lab: '#/lab/deadline', story: '#/story?vhost=%2F&queue=orders&message_id=order-3', events: '#/events?history=100', connections: '#/connections', channels: '#/channels', users: '#/users',
  user: '#/users/guest', vhosts: '#/vhosts', vhost: '#/vhosts/%2F', limits: '#/limits', definitions: '#/definitions', node: '#/node',
};

const publish = (exchange, key, properties = {}, payload = '{"order": 4711, "paid": false}') =>
  api('POST', `exchanges/%2F/${exchange}/publish`, {routing_key: key, payload, payload_encoding: 'string', properties: {content_type: 'application/json', ...properties}});

/** Fills a broker with what a shop might have: orders that expire, retries that go in a circle, dead letters, reminders for later. */
export async function fill() {
  await api('PUT', 'exchanges/%2F/dlx', {type: 'direct', durable: true});
  await api('PUT', 'exchanges/%2F/later', {type: 'x-delayed-message', durable: true, arguments: {'x-delayed-type': 'topic'}});
  const queues = {
    orders: {'x-dead-letter-exchange': 'dlx', 'x-dead-letter-routing-key': 'dead', 'x-message-ttl': 86_400_000}, dead: {},
    'mail.retry': {'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': 'mail', 'x-message-ttl': 30_000}, mail: {'x-dead-letter-exchange': 'dlx', 'x-dead-letter-routing-key': 'mail.retry', 'x-delivery-lease': 60_000},
    audit: {'x-dead-letter-exchange': 'nowhere', 'x-message-ttl': 300}, 'reply.7f3a': {'x-expires': 3_600_000}, reminders: {},
  };
  for (const [name, args] of Object.entries(queues)) await api('PUT', `queues/%2F/${name}`, {durable: true, arguments: args});
  for (const key of ['dead', 'mail.retry']) await api('POST', `bindings/%2F/e/dlx/q/${key}`, {routing_key: key});
  await api('POST', 'bindings/%2F/e/later/q/reminders', {routing_key: 'mail.#'});
  await api('PUT', 'policies/%2F/orders-short', {pattern: '^orders$', definition: {'max-length': 100_000}, 'apply-to': 'queues'});
  await api('PUT', 'operator-policies/%2F/not-for-ever', {pattern: '.*', definition: {'message-ttl': 604_800_000}, 'apply-to': 'queues'});
  for (let i = 0; i < 40; i++) await publish('amq.default', 'orders', {message_id: `order-${i}`, ...i % 4 ? {} : {expiration: String(20_000 * (i + 1))}, ...i === 3 ? {expiration: '1'} : {}});
  for (let i = 0; i < 8; i++) await publish('amq.default', 'orders', {message_id: `late-${i}`, expiration: '1'});
  for (let i = 0; i < 5; i++) await publish('amq.default', 'audit', {message_id: `audit-${i}`});
  for (let i = 0; i < 5; i++) await publish('amq.default', 'orders', {message_id: `held-${i}`, headers: {'x-deliver-after': 60_000 * (i + 1)}});
  for (let i = 0; i < 6; i++) await publish('later', 'mail.reminder', {message_id: `reminder-${i}`, headers: {'x-delay': 40_000 * 4 ** i, 'x-schedule-id': `order-${4711 + i}`}});
  for (let i = 0; i < 3; i++) await publish('amq.default', 'mail.retry', {message_id: `mail-${i}`});
  for (let i = 0; i < 6; i++) await publish('amq.default', 'mail', {message_id: `welcome-${i}`});
  await please('consume');
}
