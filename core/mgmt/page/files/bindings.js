// Bindings of an exchange or a queue: listed, added, taken away.

import {Failure, get, post, remove} from './api.js';
import {button, orDash} from './blocks.js';
import {ask} from './dialog.js';
import {h, renew} from './dom.js';
import {exact} from './format.js';
import {href, path} from './link.js';
import {pages, table} from './table.js';
import {typed} from './typed.js';

/** @param {string} name */
const inPath = (name) => name || 'amq.default';
/** @param {any} b */
const between = (b) => ['bindings', b.vhost, 'e', inPath(b.source), b.destination_type === 'queue' ? 'q' : 'e', inPath(b.destination)];

/**
 * Returns a table of bindings.
 * @param {object} o
 * @param {string} o.vhost
 * @param {string} o.label
 * @param {string} o.address of their list below /api/
 * @param {boolean} o.from they begin where the view is, so that their other end is the destination
 * @param {{exchange?: string, queue?: string}} o.end where the view is
 * @param {AbortSignal} o.signal
 * @returns {{head: HTMLElement, element: HTMLElement, load: () => Promise<void>}}
 */
export function bindings({vhost, label, address, from, end, signal}) {
  const exchange = (/** @type {string} */ name) => h('a', {href: href('exchanges', [vhost, inPath(name)])}, name || '(AMQP default)');
  const other = (/** @type {any} */ b) => !from ? exchange(b.source)
    : b.destination_type === 'queue' ? h('a', {href: href('queues', [vhost, b.destination])}, b.destination) : [exchange(b.destination), h('span', {class: 'quiet'}, ' exchange')];
  const unbind = async (/** @type {any} */ b) => {
    const done = await ask({title: 'Unbind?', action: 'Unbind', danger: true, text: `${b.destination} no longer gets messages from ${b.source || 'the default exchange'} by this binding.`, done: () => remove(path(...between(b), b.properties_key))});
    if (done) await load();
  };
  const t = table({
    label, key: (b) => [b.source, b.destination_type, b.destination, b.properties_key].join('\u0000'), empty: from ? 'Nothing is bound to it: what is published here is unroutable.' : 'It is bound to nothing.',
    columns: [
      {title: from ? 'To' : 'From', head: true, cell: other}, {title: 'Routing key', cell: (b) => orDash(b.routing_key)},
      {title: 'Arguments', cell: (b) => Object.keys(b.arguments).length ? h('span', {class: 'mono small'}, JSON.stringify(b.arguments)) : orDash('')},
      {title: '', actions: true, cell: (b) => b.source ? button('Unbind', () => unbind(b), 'plain') : h('span', {class: 'quiet small'}, 'always there')},
    ],
  });
  const pager = h('div', {class: 'pager'}), total = h('span', {class: 'quiet'}), element = h('div', {class: 'list'}, t.element, pager);
  let page = 1;
  /** @returns {Promise<void>} */
  const load = async () => {
    const mine = page;
    try {
      const answer = await get(`${address}?page=${mine}&page_size=100`, signal); // there may be thousands
      if (mine !== page) return;
      t.show(answer.items);
      renew(total, answer.total_count > 100 && exact(answer.total_count));
      renew(pager, answer.page_count > 1 && pages(answer, (to) => {
        page = to;
        void load();
      }));
    } catch (error) {
      if (!(error instanceof Failure && /Page out of range/.test(error.message)) || mine === 1) throw error;
      page = 1;
      await load();
    }
  };
  const add = async () => { if (await bind(vhost, from, end)) await load(); };
  return {head: h('div', {class: 'head'}, h('h2', null, label), total, end.exchange !== '' && button('Add binding', add)), element, load};
}

/** @param {string} vhost @param {boolean} from @param {{exchange?: string, queue?: string}} end */
function bind(vhost, from, end) {
  return ask({
    title: from ? `Add binding from ${end.exchange}` : `Add binding to ${end.queue ?? end.exchange}`, action: 'Bind',
    fields: [
      ...from ? [{name: 'kind', label: 'To', type: /** @type {const} */ ('select'), options: /** @type {[string, string][]} */ ([['q', 'Queue'], ['e', 'Exchange']])}] : [],
      {name: 'other', label: from ? 'Name' : 'From exchange', required: true}, {name: 'routing_key', label: 'Routing key'}, {name: 'arguments', label: 'Arguments', control: typed({noun: 'argument'})},
    ],
    done({kind, other, ...b}) {
      const at = from ? [inPath(end.exchange ?? ''), kind, other] : [other, end.queue === undefined ? 'e' : 'q', end.queue ?? end.exchange ?? ''];
      return post(path('bindings', vhost, 'e', ...at), b);
    },
  });
}
