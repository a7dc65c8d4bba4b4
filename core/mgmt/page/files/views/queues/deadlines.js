// The deadlines of a queue's messages, and the ends of messages that have left.

import {histogram} from '../../chart.js';
import {h} from '../../dom.js';
import {events} from '../../events.js';
import {exact} from '../../format.js';
import {href} from '../../link.js';
import {table} from '../../table.js';

/** The meanings of reasons, in the order of the table. @type {[string, string][]} */
const REASONS = [
  ['expired', 'their deadline came'], ['rejected', 'a consumer rejected them'], ['maxlen', 'the queue was too long'], ['delivery_limit', 'their deliveries failed too often'],
  ['queue_expired', 'the queue was deleted'], ['duplicate', 'they were there already'], ['too_large', 'their properties fit the frames of no consumer'],
];

/** @param {HTMLElement} main @param {import('./detail.js').Tab} tab */
export default function show(main, tab) {
  const {vhost, name, context} = tab;
  const chart = histogram(`Messages of ${name} by when they are due`);
  const ended = table({
    label: 'Messages that left, by reason', key: (r) => r.reason, empty: 'No message has left this queue but to consumers.',
    columns: [
      {title: 'Reason', head: true, cell: (r) => [r.reason, h('div', {class: 'quiet small'}, r.meaning)]},
      {title: 'Dead-lettered', number: true, cell: (r) => amount(r.dead)},
      {title: 'Dropped', number: true, cell: (r) => amount(r.dropped)},
    ],
  });
  const now = events(context, {query: {vhost, queue: name}, label: 'Ended now', history: 20, most: 100, empty: 'What expires, is dead-lettered, dropped or released shows here as it happens.'});
  main.append(h('section', {class: 'card', 'aria-label': 'Deadlines'}, chart.element),
    h('h2', null, 'Ended'), ended.element,
    h('div', {class: 'head'}, h('h2', null, 'Ended now'), h('div', {class: 'bar'}, now.button, h('a', {href: href('events', [], {vhost, queue: name})}, 'all events'))), now.element);
  tab.follow((q) => {
    ended.show(reasons(q));
    chart.show(q.deadlines);
  });
}

/** @param {number} n */
const amount = (n) => n ? exact(n) : h('span', {class: 'quiet'}, '0');

/** @param {any} q */
function reasons(q) {
  return [
    ...REASONS.map(([reason, meaning]) => ({reason, meaning, dead: q.messages_dead_lettered?.[reason] ?? 0, dropped: q.messages_dropped?.[reason] ?? 0})),
    {reason: 'redriven', meaning: 'they were moved on request', dead: q.messages_redriven ?? 0, dropped: 0},
    {reason: 'cancelled', meaning: 'they were held, and dropped on request', dead: 0, dropped: q.messages_cancelled ?? 0},
  ].filter((r) => r.dead + r.dropped > 0 || r.reason === 'expired');
}
