// Getting messages as a consumer does: RabbitMQ's form.

import {post} from '../../api.js';
import {ask, destroy} from '../../dialog.js';
import {h} from '../../dom.js';
import {path} from '../../link.js';

/** @type {[string, string][]} */
const modes = [
  ['ack_requeue_true', 'Nack message requeue true'], ['ack_requeue_false', 'Automatic ack'],
  ['reject_requeue_true', 'Reject requeue true'], ['reject_requeue_false', 'Reject requeue false'],
];

/**
 * Asks how many and how, and gets them.
 * @param {import('./detail.js').Tab} tab
 * @param {(messages: any[]) => void} show
 */
export async function fetchMessages({vhost, name, queue}, show) {
  /** @type {any} */
  let wanted = null;
  await ask({
    title: 'Get Message(s)', action: 'Get Message(s)',
    text: h('p', null, h('strong', null, 'Warning: '), 'getting messages from a queue is a destructive action. What is requeued counts as redelivered, and the queue\'s expiry is put off. The list of messages looks without that.'),
    fields: [
      {name: 'ackmode', label: 'Ack Mode', type: 'select', options: modes, value: 'ack_requeue_true'},
      {name: 'encoding', label: 'Encoding', type: 'select', options: [['auto', 'Auto string / base64'], ['base64', 'base64']], value: 'auto'},
      {name: 'count', label: 'Messages', type: 'number', value: 1, required: true},
    ],
    async done(v) {
      if (!Number.isInteger(v.count) || v.count < 1) throw new Error('Messages: a whole number from 1 is needed.');
      wanted = {...v, truncate: 50_000};
      if (!removes(v)) show(await post(path('queues', vhost, name, 'get'), wanted));
    },
  });
  if (!wanted || !removes(wanted)) return;
  await destroy({
    title: 'Get Message(s)', action: 'Get and remove', name, messages: Math.min(wanted.count, queue()?.messages_ready ?? wanted.count),
    text: wanted.ackmode === 'ack_requeue_false' ? 'They leave the queue for good.' : 'They leave the queue, and are dead-lettered if it has a dead letter exchange.',
    done: async () => show(await post(path('queues', vhost, name, 'get'), wanted)),
  });
}

/** @param {Record<string, any>} v */
const removes = (v) => v.ackmode.endsWith('requeue_false');
