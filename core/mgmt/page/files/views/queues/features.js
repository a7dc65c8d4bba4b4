// The features of a queue, in as few letters as on RabbitMQ's page.

import {explained} from '../../blocks.js';
import {h} from '../../dom.js';
import {duration} from '../../format.js';
import {href} from '../../link.js';

/** @type {[string, string, string, ((v: any) => string)?][]} argument, letters, meaning, and how its value is written */
const letters = [
  ['x-message-ttl', 'TTL', 'Message TTL', duration], ['x-expires', 'Exp', 'Auto expire', duration],
  ['x-max-length', 'Lim', 'Max length'], ['x-max-length-bytes', 'Lim B', 'Max length bytes'], ['x-overflow', 'Ovfl', 'Overflow behaviour'],
  ['x-dead-letter-exchange', 'DLX', 'Dead letter exchange', (v) => v || '(AMQP default)'], ['x-dead-letter-routing-key', 'DLK', 'Dead letter routing key'],
  ['x-dead-letter-strategy', 'DLS', 'Dead letter strategy'], ['x-max-priority', 'Pri', 'Maximum priority'], ['x-single-active-consumer', 'SAC', 'Single active consumer'],
  ['x-delivery-limit', 'DL', 'Delivery limit'], ['x-delivery-lease', 'Lease', 'Delivery lease', duration], ['x-delivery-delay', 'Delay', 'Delivery delay', duration],
  ['x-expiry-strategy', 'Strat', 'Expiry strategy'], ['x-delayed-retry-type', 'Retry', 'Delayed retry'],
];

/** Returns badges. @param {any} q a queue, as the API describes it */
export function features(q) {
  /** @type {[string, string][]} */
  const all = [];
  const badge = (/** @type {string} */ text, /** @type {string} */ means) => all.push([text, means]);
  const args = q.arguments ?? {};
  const known = letters.filter(([name]) => name in args);
  const others = Object.keys(args).filter((name) => name !== 'x-queue-type' && !letters.some(([n]) => n === name));
  if (q.durable) badge('D', 'durable: true');
  if (q.auto_delete) badge('AD', 'auto-delete: true');
  if (q.exclusive) badge('Excl', 'exclusive: true');
  for (const [name, text, title, write] of known) badge(text, `${title} (${name}): ${(write ?? String)(args[name])}`);
  if (others.length > 0) badge('Args', others.map((name) => `${name}: ${JSON.stringify(args[name])}`).join('\n'));
  const operator = q.operator_policy && h('span', {class: 'badge accent'}, 'OP ', q.operator_policy);
  return h('span', {class: 'badges'},
    (all.length > 0 || operator) && explained([all.map(([text]) => h('span', {class: 'badge'}, text)), operator], [...all.map(([text, means]) => text === 'Args' ? means : `${text}: ${means}`), operator && `OP: operator policy ${q.operator_policy}`], 'badges'),
    q.policy && h('a', {class: 'badge accent', href: href('policies', [], {vhost: q.vhost, name: q.policy})}, h('span', {class: 'unseen'}, 'policy '), q.policy));
}

/** Returns the state, as a badge unless it is the usual one. @param {any} q */
export function state(q) {
  return q.state === 'running' ? 'running' : h('span', {class: 'badge bad'}, q.state ?? 'down');
}
