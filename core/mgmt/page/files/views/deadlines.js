// Deadlines of messages, in all queues together and in each.

import {get} from '../api.js';
import {figures, inVHost} from '../blocks.js';
import {histogram} from '../chart.js';
import {observe, until} from '../clock.js';
import {fill, h} from '../dom.js';
import {count, duration} from '../format.js';
import {href} from '../link.js';
import {table} from '../table.js';

/** @type {import('../views.js').View} */
export default async function show(main, context) {
  const query = {vhost: context.query.get('vhost') ?? '', queue: context.query.get('queue') ?? '', sort: context.query.get('sort') ?? '', page: context.query.get('page') ?? ''};
  const chart = histogram('Deadlines');
  const stats = h('dl', {class: 'grid stats'});
  const more = h('p', {class: 'quiet small'});
  const rows = table({label: 'Queues by their next deadline', columns, key: (r) => r.key, empty: empty(query)});
  fill(main, h('div', {class: 'head'}, h('h1', null, 'Deadlines'), await filters(context, query)),
    h('section', {class: 'card', 'aria-label': 'All that is due'}, stats, chart.element), rows.element, more);
  const given = Object.fromEntries(Object.entries(query).filter(([, v]) => v));
  context.live('deadlines', given, (state) => {
    observe(state.at);
    chart.show(state);
    figures(stats, numbers(state));
    const order = /** @type {string[]} */ (state.order ?? []);
    rows.show(order.map((key) => ({key, ...state.rows[key]})));
    fill(more, order.length < (state.total ?? 0) && `The first ${order.length} of ${count(state.total)} queues, the next deadline first.`);
  });
}

/** @param {any} d @returns {import('../blocks.js').Figure[]} */
function numbers(d) {
  const within = (/** @type {number} */ ms, /** @type {string} */ of) =>
    d.buckets.reduce((/** @type {number} */ n, /** @type {any} */ b) => n + (b.to_ms != null && b.to_ms <= ms * 1.001 ? b[of] ?? 0 : 0), 0);
  const stat = (/** @type {string} */ name, /** @type {import('../dom.js').Child} */ value, /** @type {string} */ means) => ({name, value, means});
  return [
    stat('Next', until(earlier(d.earliest, d.next_release)), 'When the next message expires or is released'),
    stat('Due in 1 min', count(within(60_000, 'count')), 'Ready messages that expire within a minute'),
    stat('Held', count(d.held ?? 0), 'Messages that are not delivered before a time, in queues and by exchanges'),
    stat('Overdue', d.overdue > 0 ? h('span', {class: 'error'}, count(d.overdue)) : '0', 'Messages whose deadline has passed and that are still there'),
    stat('Lateness p99', duration(d.lateness?.p99), 'How late the broker let messages expire, in the last minute'),
    ...d.overstay ? [stat('Kept past deadline p99', duration(d.overstay.p99), 'How long after their deadlines messages expired that consumers had then, in the last minute')] : [],
    stat('Never', count(d.never), 'Messages without a deadline'),
  ];
}

/** @param {number | undefined} a @param {number | undefined} b */
const earlier = (a, b) => a == null ? b : b == null ? a : Math.min(a, b);

/** @type {import('../table.js').Column[]} */
const columns = [
  {title: 'Queue', head: true, cell: (r) => [h('a', {href: href('queues', [r.vhost, r.queue])}, r.queue), inVHost(r.vhost)]},
  {title: 'Next', cell: (r) => until(earlier(r.next_deadline, r.next_release))},
  {title: '≤ 1 s', number: true, cell: (r) => number(r.due_1s)},
  {title: '≤ 1 min', number: true, cell: (r) => number(r.due_1m)},
  {title: '≤ 1 h', number: true, cell: (r) => number(r.due_1h)},
  {title: 'Later', number: true, cell: (r) => number(r.later)},
  {title: 'Held', number: true, cell: (r) => number(r.held)},
  {title: 'Overdue', number: true, wide: true, cell: (r) => r.overdue > 0 ? h('span', {class: 'error'}, count(r.overdue)) : number(0)},
  {title: 'Never', number: true, wide: true, cell: (r) => number(r.never)},
  {title: 'Queue expiry', cell: (r) => r.lease_expires_at == null ? h('span', {class: 'quiet'}, '–') : ['deleted ', until(r.lease_expires_at)]},
  {title: 'Strategy', wide: true, cell: (r) => h('span', {class: 'mono'}, r.strategy)},
];

/** @param {number | undefined} n */
const number = (n) => n ? count(n) : h('span', {class: 'quiet'}, '0');

/** @param {{vhost: string, queue: string}} query */
function empty(query) {
  if (query.queue || query.vhost) return 'No queue of that name has a deadline.';
  return [h('p', null, 'Nothing is due.'), h('p', null, 'Messages with an expiration, queues with x-message-ttl or x-expires, and held messages are listed here.')];
}

/**
 * @param {import('../views.js').Context} context
 * @param {{vhost: string, queue: string}} query
 */
async function filters(context, query) {
  const vhosts = (await get('vhosts?columns=name', context.signal)).map((/** @type {{name: string}} */ v) => v.name);
  const vhost = /** @type {HTMLSelectElement} */ (h('select', {'aria-label': 'Virtual host'}, h('option', {value: ''}, 'All virtual hosts'),
    vhosts.map((/** @type {string} */ name) => h('option', {value: name, selected: name === query.vhost}, name))));
  const queue = /** @type {HTMLInputElement} */ (h('input', {type: 'search', 'aria-label': 'Queues', placeholder: 'queue, or /expression', value: query.queue, 'data-search': true}));
  const go = () => { location.hash = href('deadlines', [], {vhost: vhost.value, queue: queue.value.trim()}); };
  vhost.addEventListener('change', go);
  queue.addEventListener('change', go);
  return h('div', {class: 'bar'}, vhosts.length > 1 && vhost, queue);
}
