// Now: how the broker is, at one glance.

import {observe, until} from '../clock.js';
import {figures, inVHost, term} from '../blocks.js';
import {sparkline} from '../chart.js';
import {fill, h, renew} from '../dom.js';
import {bytes, count, duration, rate} from '../format.js';
import {href} from '../link.js';

/** @type {[string, string, string][]} the rates that have a line, with their names and meanings */
const RATES = [
  ['publish', 'Published', 'Messages that publishers sent'],
  ['deliver', 'Delivered', 'Messages that consumers got'],
  ['ack', 'Acknowledged', 'Messages that consumers have done with'],
  ['expired', 'Expired', 'Messages whose deadline came'],
  ['dead_lettered', 'Dead-lettered', 'Messages that went to a dead-letter exchange, for whatever reason'],
  ['released', 'Released', 'Messages that were held until now'],
];

/** @type {import('../views.js').View} */
export default function show(main, context) {
  const lines = RATES.map(([key, name, title]) => ({key, name, title, number: h('dd'), line: sparkline(name + ' per second')}));
  const totals = h('dl', {class: 'grid stats'}), next = h('p'), node = h('dl', {class: 'facts'}), things = h('dl', {class: 'facts'});
  fill(main, h('div', {class: 'head'}, h('h1', null, 'Now'), next),
    h('section', {class: 'card', 'aria-label': 'Messages'}, totals),
    h('section', {'aria-label': 'Rates', class: 'grid'}, lines.map((l) => h('dl', {class: 'card stat'}, h('dt', null, term(l.name, l.title)), l.number, h('dd', {class: 'line'}, l.line.element)))),
    h('div', {class: 'halves'}, h('section', {class: 'card'}, h('h2', null, context.user.node), node), h('section', {class: 'card'}, h('h2', null, 'In use'), things)));
  context.live('now', {}, (state) => {
    observe(state.at);
    for (const l of lines) {
      const n = state.rates?.[l.key]; // it is not known before the second state
      fill(l.number, rate(n));
      if (n != null) l.line.add(n);
    }
    figures(totals, messages(state));
    renew(next, ...upcoming(state.next));
    fill(node, ...machine(state.node ?? {}));
    renew(things, ...inUse(state.counts ?? {}));
  });
}

/** @param {any} state @returns {import('../blocks.js').Figure[]} */
function messages({totals = {}, lateness, overstay}) {
  const stat = (/** @type {string} */ name, /** @type {string} */ value, /** @type {string} */ means) => ({name, value, means});
  return [
    stat('Ready', count(totals.ready), 'Messages that can be delivered now'),
    stat('Unacked', count(totals.unacked), 'Messages that consumers have and have not acknowledged'),
    stat('Held', count(totals.held == null ? null : totals.held + (totals.delayed ?? 0)), `Messages that are not delivered before a time: ${count(totals.held)} in queues, ${count(totals.delayed)} by exchanges`),
    stat('Total', count(totals.messages == null ? null : totals.messages + (totals.delayed ?? 0)), 'All messages, in queues and held by exchanges'),
    stat('Lateness p50', duration(lateness?.p50), 'How late the broker let half of the messages expire, in the last minute'),
    stat('Lateness p99', duration(lateness?.p99), 'How late the broker let 99 of 100 messages expire, in the last minute'),
    ...overstay ? [stat('Kept past deadline p99', duration(overstay.p99), 'How long after their deadlines messages expired that consumers had then, in the last minute')] : [],
  ];
}

/** @param {{vhost: string, queue: string, at: number} | undefined} next */
function upcoming(next) {
  if (!next) return [h('span', {class: 'quiet'}, 'Nothing is due.')];
  return [h('span', {class: 'quiet'}, 'The next message is due '), until(next.at), h('span', {class: 'quiet'}, ' in '), h('a', {href: href('queues', [next.vhost, next.queue])}, next.queue), inVHost(next.vhost)];
}

/** @param {any} node */
function machine(node) {
  const of = (/** @type {number | undefined} */ n, /** @type {number | undefined} */ limit) => limit ? `${bytes(n)} of ${bytes(limit)}` : bytes(n);
  return facts([
    ['Memory', node.memory_limit ? meter(node.memory, node.memory_limit, of(node.memory, node.memory_limit)) : bytes(node.memory)],
    ['Free disk space', node.disk_limit ? `${bytes(node.disk_free)}, at least ${bytes(node.disk_limit)} needed` : bytes(node.disk_free)],
    ['Up for', duration(node.uptime_ms)],
  ]);
}

/** @param {number} value @param {number} most @param {string} text */
function meter(value, most, text) {
  return [h('meter', {min: 0, max: most, high: most * .8, value, 'aria-label': text}), ' ', text];
}

/** @param {any} counts */
function inUse(counts) {
  return facts([
    ['Queues', h('a', {href: href('queues')}, count(counts.queues))], ['Exchanges', h('a', {href: href('exchanges')}, count(counts.exchanges))],
    ['Connections', h('a', {href: href('connections')}, count(counts.connections))], ['Channels', h('a', {href: href('channels')}, count(counts.channels))],
    ['Consumers', count(counts.consumers)],
  ]);
}

/** @param {[string, import('../dom.js').Child][]} pairs */
const facts = (pairs) => pairs.flatMap(([name, value]) => [h('dt', null, name), h('dd', null, value)]);
