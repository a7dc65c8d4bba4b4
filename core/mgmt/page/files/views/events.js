// Events as they happen.

import {get} from '../api.js';
import {heading} from '../blocks.js';
import {h} from '../dom.js';
import {events, kinds, reasons} from '../events.js';
import {href} from '../link.js';

const OUTCOMES = ['dropped', 'dead_lettered', 'unroutable', 'no_exchange', 'cycle', 'filtered', 'routed', 'ready', 'refused'];

/** @type {import('../views.js').View} */
export default async function show(main, context) {
  const vhosts = (await get('vhosts?columns=name', context.signal)).map((/** @type {{name: string}} */ v) => v.name);
  const filters = [
    choice('vhost', 'vhost', vhosts), field('queue', 'queue', 'queue, or /expression'), choice('kind', 'kind', Object.keys(kinds).filter((k) => k !== 'missed')),
    choice('reason', 'reason', Object.keys(reasons)), choice('outcome', 'outcome', OUTCOMES), field('message_id', 'message id', 'message id'),
  ];
  for (const f of filters) f.value = context.query.get(f.name) ?? '';
  const list = events(context, {
    label: 'Events', query: queryOf(filters),
    empty: [h('p', null, 'Nothing has happened yet that passes the filters.'), h('p', null, 'Messages that expire, are dead-lettered or dropped show here, and alarms, policies and modules.')],
  });
  /** @type {ReturnType<typeof setTimeout>} */
  let typing;
  const changed = () => {
    context.replace(Object.fromEntries(filters.map((f) => [f.name, f.value.trim() || null])));
    list.follow(queryOf(filters));
  };
  for (const f of filters) {
    f.addEventListener(f instanceof HTMLSelectElement ? 'change' : 'input', () => {
      clearTimeout(typing);
      typing = setTimeout(changed, f instanceof HTMLSelectElement ? 0 : 300);
    });
  }
  main.append(heading('Events', h('a', {href: href('story')}, 'Story of a message'), list.button), h('div', {class: 'filters'}, filters), list.element);
}

/** @param {(HTMLInputElement | HTMLSelectElement)[]} filters @returns {Record<string, string>} */
function queryOf(filters) {
  const q = Object.fromEntries(filters.map((f) => [f.name, f.value.trim()]));
  if (!q.queue.startsWith('/')) return q;
  const {queue, ...others} = q;
  return {...others, queue_regex: queue.slice(1)};
}

/** @param {string} name @param {string} label @param {string[]} options */
function choice(name, label, options) {
  return /** @type {HTMLSelectElement} */ (h('select', {name, 'aria-label': label}, h('option', {value: ''}, `all ${label}s`), options.map((o) => h('option', {value: o}, kinds[o]?.[0] ?? reasons[o] ?? o.replaceAll('_', ' ')))));
}

/** @param {string} name @param {string} label @param {string} placeholder */
function field(name, label, placeholder) {
  return /** @type {HTMLInputElement} */ (h('input', {type: 'search', name, 'aria-label': label, placeholder, 'data-search': name === 'queue'}));
}
