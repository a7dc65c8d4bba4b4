// The effective settings of a queue, and their origins.

import {explained, facts, orDash, section, setting, yes} from '../../blocks.js';
import {fill, h} from '../../dom.js';
import {duration} from '../../format.js';
import {href} from '../../link.js';
import {table} from '../../table.js';
import {queueArguments} from './arguments.js';

/** @param {HTMLElement} main @param {import('./detail.js').Tab} tab */
export default function show(main, tab) {
  const settings = table({
    label: 'Settings in effect', key: (s) => s.key, empty: [h('p', null, 'Nothing is set, by arguments or by policies: messages stay until they are consumed.')],
    columns: [
      {title: 'Setting', head: true, cell: (s) => explained(s.key, queueArguments.find((a) => a.name === 'x-' + s.key)?.hint ?? '')},
      {title: 'In effect', cell: (s) => s.from ? setting(s.key, s.value) : h('span', {class: 'quiet'}, 'nothing')},
      {title: 'From', cell: (s) => s.from ? s.from.replace('_', ' ') : h('span', {class: 'quiet'}, 'no effect on this queue')},
      {title: 'Argument', wide: true, cell: (s) => told(s, s.argument, s.from === 'argument')},
      {title: 'Policy', wide: true, cell: (s) => told(s, s.policy, s.from === 'policy')},
      {title: 'Operator policy', wide: true, cell: (s) => told(s, s.operator_policy, s.from === 'operator_policy')},
    ],
  });
  const about = section('Queue');
  main.append(h('h2', {class: 'unseen'}, 'Settings'), settings.element, about);
  tab.follow((q) => {
    settings.show(q.effective_settings ?? []);
    const next = section('Queue', facts(described(q)));
    if (!next.isEqualNode(about)) fill(about, ...next.childNodes);
  });
}

/** @param {any} s @param {any} v @param {boolean} wins */
const told = (s, v, wins) => v === undefined || v === null ? orDash('') : h('span', {class: !wins && 'quiet'}, setting(s.key, v));

/** @param {any} q @returns {([string, any] | false)[]} */
function described(q) {
  return [
    ['Type', q.type], ['Durable', yes(q.durable)], ['Auto delete', yes(q.auto_delete)], ['Exclusive', yes(q.exclusive)],
    ['Policy', q.policy ? h('a', {href: href('policies', [], {vhost: q.vhost})}, q.policy) : orDash('')], ['Operator policy', orDash(q.operator_policy)],
    ['Expiry strategy', q.expiry_strategy?.startsWith('wasm/') ? h('a', {href: href('lab', [q.expiry_strategy])}, q.expiry_strategy) : orDash(q.expiry_strategy)],
    ['Queue expiry', q.lease_expires_at == null ? 'none: it stays while it is unused' : 'see above: it is deleted if it stays unused'],
    ['Delivery lease', q.delivery_lease == null ? 'none' : duration(q.delivery_lease)],
    ['Node', q.node],
  ];
}
