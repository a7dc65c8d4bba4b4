// Held messages of an exchange or a queue, in the order in which they are released: found, moved, released, cancelled.

import {get, patch, post, remove} from './api.js';
import {button, orDash} from './blocks.js';
import {now, until} from './clock.js';
import {ask, destroy, say} from './dialog.js';
import {fill, h} from './dom.js';
import {bytes, exact, plural} from './format.js';
import {table} from './table.js';

/**
 * Returns the held messages below an address, with the actions on them.
 * @param {import('./views.js').Context} context
 * @param {string} address of their list below /api/
 * @param {string} name of the queue or exchange that holds them
 * @param {boolean} [scheduled] an exchange holds them: they may have identities
 */
export function held(context, address, name, scheduled = false) {
  /** @type {(string | null)[]} the positions at which the pages before this one began */
  let before = [null], asked = 0;
  const search = /** @type {HTMLInputElement} */ (h('input', {type: 'search', placeholder: 'identity', 'aria-label': 'Identity of the message'}));
  const by = /** @type {HTMLSelectElement} */ (h('select', {'aria-label': 'Search by'}, scheduled && h('option', {value: 'schedule_id'}, 'schedule id'), h('option', {value: 'message_id'}, 'message id')));
  const total = h('span', {class: 'quiet'}), pager = h('div', {class: 'pager'}), failed = h('p', {class: 'error', role: 'alert'});
  const one = (/** @type {any} */ m) => address + '/' + encodeURIComponent(m.id);
  const act = async (/** @type {() => Promise<any>} */ what, /** @type {string} */ text) => {
    await attempt(async () => {
      await what();
      say(text);
    });
    await load();
  };
  const cancel = async (/** @type {string} */ which) => {
    const done = await destroy({title: 'Cancel a held message?', text: 'It is dropped, and not dead-lettered.', action: 'Cancel the message', name, messages: 1, done: () => remove(which)});
    if (!done) return;
    say('The message was cancelled.');
    await load();
  };
  const t = table({
    label: `Held messages of ${name}`, key: (m) => m.id, empty: 'It holds no such message.',
    columns: [
      {title: 'Released', cell: (m) => until(m.deliver_at)}, {title: 'Message id', head: true, cell: (m) => orDash(m.message_id)},
      ...scheduled ? [{title: 'Schedule id', cell: (/** @type {any} */ m) => orDash(m.schedule_id)}] : [],
      {title: 'Routing key', cell: (m) => orDash(m.routing_key)}, {title: 'Size', number: true, wide: true, cell: (m) => bytes(m.payload_bytes)},
      {title: 'Entered', wide: true, cell: (m) => until(m.enqueued)}, {title: 'Failed', number: true, wide: true, cell: (m) => exact(m.returns ?? 0)},
      {title: '', actions: true, cell: (m) => [
        button('Now', () => act(() => post(one(m) + '/release'), 'The message was released.'), 'plain'), button('Move…', () => move(one(m), m, load), 'plain'),
        button('Cancel', () => cancel(one(m)), 'plain'),
      ]},
    ],
  });
  /** @param {() => Promise<any>} what */
  async function attempt(what) {
    try {
      fill(failed, '');
      await what();
    } catch (error) {
      if (!context.signal.aborted) fill(failed, error instanceof Error ? error.message : String(error));
    }
  }
  async function load() {
    const q = new URLSearchParams({count: '100'}), after = before.at(-1), mine = ++asked;
    if (after) q.set('after', after);
    if (search.value.trim()) q.set(by.value, search.value.trim());
    await attempt(async () => {
      const page = await get(`${address}?${q}`, context.signal);
      if (mine !== asked) return; // another page was asked for since
      t.show(page.items);
      fill(total, search.value.trim() && `${exact(100 * (before.length - 1) + page.item_count)}${page.next ? '+' : ''} of `, plural(page.total_count, 'message'), ' held', page.complete === false && '; the search was not complete');
      fill(pager, (before.length > 1 || page.next) && [
        h('button', {type: 'button', disabled: before.length === 1, onclick: () => go(before.slice(0, -1))}, 'Previous'), h('span', {class: 'quiet'}, `page ${before.length}`),
        h('button', {type: 'button', disabled: !page.next, onclick: () => go([...before, page.next])}, 'Next'),
      ]);
    });
  }
  const go = (/** @type {(string | null)[]} */ to) => {
    before = to;
    void load();
  };
  search.addEventListener('change', () => go([null]));
  context.every(5000, load);
  return h('div', {class: 'list'}, h('div', {class: 'bar'}, by, search, total, h('span', {class: 'spring'}), button('Cancel many…', () => attempt(() => cancelMany(address, name, load)))), failed, t.element, pager);
}

/** @param {string} address @param {any} m @param {() => any} done */
async function move(address, m, done) {
  const local = new Date(m.deliver_at - new Date(m.deliver_at).getTimezoneOffset() * 60_000).toISOString().slice(0, 23);
  const moved = await ask({
    title: 'Release it at another time', action: 'Move', fields: [{name: 'at', label: 'Time', type: 'datetime-local', value: local, required: true, hint: 'on this machine\'s clock, up to ten years ahead; a time that has passed releases the message now'}],
    done: ({at}) => patch(address, {deliver_at: Math.max(0, new Date(at).getTime())}),
  });
  if (moved) await done();
}

/** @param {string} address @param {string} name @param {() => any} done */
async function cancelMany(address, name, done) {
  const {total_count: all} = await get(address + '?count=1');
  /** @type {Record<string, string>} */
  let which = {};
  const chosen = await ask({
    title: 'Cancel held messages', action: 'Go on', text: 'All of them, or those that both fields select.',
    fields: [{name: 'key', label: 'Routing key', hint: 'empty: any'}, {name: 'hours', label: 'Released within', type: 'number', hint: 'hours from now; empty: whenever'}],
    done: ({key, hours}) => { which = {...key ? {routing_key: key} : {}, ...hours != null ? {before: String(Math.round(now() + hours * 3_600_000))} : {}}; },
  });
  if (!chosen) return;
  const some = Object.keys(which).length > 0;
  await destroy({
    title: some ? 'Cancel the selected messages?' : 'Cancel all held messages?', action: 'Cancel them', name, messages: all,
    text: some ? 'At most so many are dropped, and not dead-lettered:' : 'They are dropped, and not dead-lettered.',
    async done() {
      const answer = await remove(address + (some ? '?' + new URLSearchParams(which) : ''));
      say(`${plural(answer.cancelled, 'message')} cancelled${answer.complete === false ? '; there are more: do it again' : ''}.`);
    },
  });
  await done();
}
