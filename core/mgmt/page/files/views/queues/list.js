// The list of queues.

import {until} from '../../clock.js';
import {h} from '../../dom.js';
import {count, rate} from '../../format.js';
import {href, path} from '../../link.js';
import {list} from '../../table.js';
import {addQueue, names} from './add.js';
import {features, state} from './features.js';

const members = [
  'name', 'vhost', 'type', 'durable', 'auto_delete', 'exclusive', 'arguments', 'policy', 'operator_policy', 'state', 'messages_ready',
  'messages_unacknowledged', 'messages_held', 'messages', 'message_stats.publish_details.rate', 'message_stats.deliver_get_details.rate',
  'message_stats.ack_details.rate', 'next_deadline', 'lease_expires_at', 'expiry_strategy',
];

/** @param {string} name of a counter */
const rateOf = (name) => (/** @type {any} */ q) => {
  const r = q.message_stats?.[name + '_details']?.rate;
  return r ? rate(r) : h('span', {class: 'quiet'}, rate(r));
};

/** @param {string} title @param {string} sort */
const number = (title, sort) => ({title, sort, number: true, cell: (/** @type {any} */ q) => q[sort] ? count(q[sort]) : h('span', {class: 'quiet'}, count(q[sort]))});

/** @type {import('../../table.js').Column} */
const vhostColumn = {title: 'Virtual host', sort: 'vhost', cell: (q) => q.vhost};

/** @type {import('../../table.js').Column[]} */
const columns = [
  {title: 'Name', sort: 'name', head: true, cell: (q) => h('a', {href: href('queues', [q.vhost, q.name])}, q.name)},
  {title: 'Type', sort: 'type', wide: true, cell: (q) => q.type},
  {title: 'Features', wide: true, cell: features},
  {title: 'State', sort: 'state', still: true, wide: true, cell: state},
  number('Ready', 'messages_ready'), {...number('Unacked', 'messages_unacknowledged'), wide: true}, {...number('Held', 'messages_held'), wide: true}, number('Total', 'messages'),
  {title: 'incoming', sort: 'message_stats.publish_details.rate', still: true, number: true, wide: true, cell: rateOf('publish')},
  {title: 'deliver / get', sort: 'message_stats.deliver_get_details.rate', still: true, number: true, wide: true, cell: rateOf('deliver_get')},
  {title: 'ack', sort: 'message_stats.ack_details.rate', still: true, number: true, wide: true, cell: rateOf('ack')},
  {title: 'Next deadline', sort: 'next_deadline', cell: (q) => until(q.next_deadline)},
  {title: 'Expires', sort: 'lease_expires_at', wide: true, cell: (q) => until(q.lease_expires_at)},
  {title: 'Strategy', sort: 'expiry_strategy', wide: true, cell: (q) => q.expiry_strategy ?? '–'},
];

/** @type {import('../../views.js').View} */
export default async function show(main, context) {
  const vhosts = await names().catch(() => /** @type {string[]} */ ([])); // the list shows the error
  let chosen = context.parts[0] || context.query.get('vhost') || '';
  const choose = h('select', {
    'aria-label': 'Virtual host',
    onchange: (/** @type {Event} */ e) => {
      chosen = /** @type {HTMLSelectElement} */ (e.target).value;
      context.replace({vhost: chosen, page: null});
      void all.load();
    },
  }, h('option', {value: ''}, 'all virtual hosts'), vhosts.map((v) => h('option', {value: v, selected: v === chosen}, v)));
  const add = () => addQueue(chosen, all.load);
  const all = list(context, {
    path: () => chosen ? path('queues', chosen) : 'queues', live: {view: 'queues', query: () => ({vhost: chosen})}, query: {columns: members.join(',')}, label: 'Queues', noun: 'queue',
    tools: vhosts.length > 1 && choose, columns: vhosts.length > 1 ? [columns[0], vhostColumn, ...columns.slice(1)] : columns,
    key: (q) => q.vhost + '\u0000' + q.name,
    empty: [h('p', null, 'No queues here. Programs declare theirs; or'), h('button', {type: 'button', onclick: add}, 'Add a new queue')],
  });
  all.element.classList.add('dense');
  main.append(h('div', {class: 'head'}, h('h1', null, 'Queues'), h('button', {type: 'button', class: 'primary', onclick: add}, 'Add a new queue')), all.element);
}
