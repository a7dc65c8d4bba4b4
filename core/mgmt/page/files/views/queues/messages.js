// The messages of a queue, without consuming them.

import {Failure, get, patch, post, remove} from '../../api.js';
import {button} from '../../blocks.js';
import {now, until} from '../../clock.js';
import {ask, destroy, say} from '../../dialog.js';
import {fill, h, keyed} from '../../dom.js';
import {bytes, plural} from '../../format.js';
import {href, path} from '../../link.js';
import {fetchMessages} from './get.js';
import {message} from './message.js';
import {redrive} from './redrive.js';

const SHOWN = 2048; // bytes of a payload that are asked for
const COUNT = 50;

/** @typedef {{order: string, state: string, message_id: string, after: string[], first: number}} Wanted */

/** @param {HTMLElement} main @param {import('./detail.js').Tab} tab */
export default function show(main, tab) {
  const {context, vhost, name} = tab, q = context.query;
  /** @type {Wanted} */
  const wanted = {order: q.get('order') === 'deadline' ? 'deadline' : 'position', state: q.get('state') ?? '', message_id: q.get('message_id') ?? '', after: [''], first: 1};
  const failed = h('p', {class: 'error', role: 'alert', hidden: true}), note = h('p', {class: 'quiet small'}), pager = h('div', {class: 'pager'}), got = h('div', {class: 'list'});
  const opened = new Set(/** @type {string[]} */ ([]));
  let page = /** @type {any[]} */ ([]), refused = false, asked = 0;
  const url = (/** @type {Record<string, string>} */ more) => path('queues', vhost, name, 'messages') + '?' + new URLSearchParams(Object.entries({order: wanted.order, state: wanted.state, message_id: wanted.message_id, ...more}).filter(([, v]) => v !== ''));

  const draw = () => rows.show(page, wanted.first, opened);
  const load = async () => {
    const mine = ++asked;
    try {
      const answer = await get(url({count: String(COUNT), truncate: String(SHOWN), after: wanted.after.at(-1) ?? ''}), context.signal);
      if (mine !== asked) return; // another page was asked for since
      page = answer.messages;
      refused = false;
      failed.hidden = !answer.error;
      fill(failed, answer.error);
      draw();
      fill(note, said(answer, wanted));
      fill(pager, (wanted.after.length > 1 || answer.next != null) && pages(wanted, answer.next, page.length, () => (opened.clear(), load())));
    } catch (error) {
      if (context.signal.aborted || mine !== asked) return;
      refused = error instanceof Failure && error.status !== 0; // asking again does not help
      failed.hidden = false;
      fill(failed, /** @type {Error} */ (error).message);
    }
  };
  const change = (/** @type {Partial<Wanted>} */ next) => {
    Object.assign(wanted, next, {after: [''], first: 1});
    context.replace({order: wanted.order === 'deadline' ? 'deadline' : null, state: wanted.state, message_id: wanted.message_id});
    opened.clear();
    void load();
  };
  const rows = grid(tab, wanted, {
    toggle(id) {
      if (!opened.delete(id)) opened.add(id);
      draw();
    },
    // A page by position begins behind an id, which need not be there any more.
    whole: async (m) => {
      const before = (BigInt(m.id) & (1n << 56n) - 1n) === 0n ? '' : String(BigInt(m.id) - 1n);
      const {messages} = await get(path('queues', vhost, name, 'messages') + '?' + new URLSearchParams({count: '1', ...before && {after: before}}), context.signal);
      if (messages[0]?.id !== m.id) throw new Error('The message has left the queue.');
      return messages[0];
    },
    changed: load,
  });
  main.append(
    h('h2', {class: 'unseen'}, 'Messages'), h('div', {class: 'head'}, filters(wanted, change), h('div', {class: 'bar'},
      button('Get Message(s)', () => fetchMessages(tab, (all) => fill(got, received(all, vhost))).then(load)),
      button('Move messages', () => redrive(tab, {to: 'queue'}).then(load)))),
    got, failed, rows.element, pager, note);
  void refresh(context, load, () => opened.size === 0 && !refused);
}

/**
 * Loads, and again after a second, or twenty times as long as it took: looking by deadline reads the whole queue.
 * @param {import('../../views.js').Context} context @param {() => Promise<void>} load @param {() => boolean} wanted
 */
async function refresh({signal}, load, wanted) {
  while (!signal.aborted) {
    const began = performance.now();
    if (!document.hidden && wanted()) await load();
    await new Promise((done) => setTimeout(done, Math.max(1000, 20 * (performance.now() - began))));
  }
}

/** @param {any} answer @param {Wanted} wanted */
function said(answer, wanted) {
  const looks = 'Looking changes nothing: no message is delivered, requeued or counted by it, and the queue\'s expiry is not put off. ';
  if (answer.error) return looks;
  const nameless = answer.messages.some((/** @type {any} */ m) => !idOf(m)) ? 'Messages without the property message_id have no story, and are not redriven one by one. ' : '';
  return looks + nameless + (answer.complete ? '' : `The queue is long: after two seconds not all of it had been looked at. ${wanted.order === 'deadline' ? 'There may be earlier deadlines.' : 'Next goes on.'}`);
}

/** @param {Wanted} wanted @param {(next: Partial<Wanted>) => void} change */
function filters(wanted, change) {
  const select = (/** @type {string} */ label, /** @type {'order' | 'state'} */ name, /** @type {[string, string][]} */ options) => h('label', {class: 'inline'}, h('span', null, label),
    h('select', {onchange: (/** @type {any} */ e) => change({[name]: e.target.value})}, options.map(([value, text]) => h('option', {value, selected: wanted[name] === value}, text))));
  return h('div', {class: 'bar'},
    select('order', 'order', [['position', 'position'], ['deadline', 'deadline']]),
    select('state', 'state', [['', 'all'], ['ready', 'ready'], ['unacked', 'unacked'], ['held', 'held']]),
    h('label', {class: 'inline'}, h('span', null, 'id'), h('input', {type: 'search', 'data-search': true, placeholder: 'message_id', value: wanted.message_id, onchange: (/** @type {any} */ e) => change({message_id: e.target.value})})));
}

/** @param {Wanted} wanted @param {string | null} next @param {number} shown @param {() => void} go */
function pages(wanted, next, shown, go) {
  const to = (/** @type {string} */ text, /** @type {boolean} */ can, /** @type {() => void} */ move) => h('button', {type: 'button', disabled: !can, onclick: () => {
    move();
    go();
  }}, text);
  return [
    to('First', wanted.after.length > 1, () => Object.assign(wanted, {after: [''], first: 1})),
    h('span', {class: 'quiet'}, shown > 0 ? `${wanted.first} to ${wanted.first + shown - 1}` : 'none'),
    to('Next', next != null, () => Object.assign(wanted, {after: [...wanted.after, next], first: wanted.first + shown})),
  ];
}

/** @param {any[]} all @param {string} vhost */
function received(all, vhost) {
  return h('section', {class: 'card'}, h('h2', null, all.length ? `Got ${plural(all.length, 'message')}` : 'Queue is empty'), all.map((m) => message(m, {vhost, whole: null})));
}

/** @typedef {{m: any, n: number, inside: boolean}} Line a message, or its contents when it is opened */

/** @typedef {{toggle: (id: string) => void, whole: (m: any) => Promise<any>, changed: () => Promise<void>}} Actions */

const COLUMNS = [['#', 'number wide'], ['id', ''], ['state', ''], ['due', ''], ['delivered', 'wide'], ['held by', 'wide'], ['size', 'number wide'], ['', 'wide']];

/** @param {import('./detail.js').Tab} tab @param {Wanted} wanted @param {Actions} actions */
function grid(tab, wanted, actions) {
  const body = h('tbody'), none = h('div', {class: 'empty', hidden: true});
  const element = h('div', {class: 'table dense', role: 'region', 'aria-label': 'Messages', tabindex: '0'}, h('table', null, h('caption', {class: 'unseen'}, 'Messages'),
    h('thead', null, h('tr', null, COLUMNS.map(([title, style]) => h('th', {scope: 'col', class: style}, title || h('span', {class: 'unseen'}, 'actions'))))), body), none);
  /** @param {HTMLElement} tr @param {Line} l @param {boolean} open */
  const row = (tr, l, open) => {
    const look = l.inside ? 'inside' : JSON.stringify([l.n, open, l.m.state, l.m.deadline, l.m.hold, l.m.deliveries, l.m.consumer]);
    if (tr.dataset.look === look) return tr; // it looks the same
    tr.dataset.look = look;
    if (l.inside) return fill(tr, h('td', {colspan: COLUMNS.length}, h('div', {class: 'row-actions narrow'}, links(tab, l.m, idOf(l.m), actions)), message(l.m, {vhost: tab.vhost, whole: () => actions.whole(l.m)})));
    const focused = tr.contains(document.activeElement) ? document.activeElement?.textContent : null;
    fill(tr, ...cells(tab, l.m, l.n, actions, open));
    if (focused) /** @type {HTMLElement | undefined} */ ([...tr.querySelectorAll('button, a')].find((b) => b.textContent === focused))?.focus();
    return tr;
  };
  return {
    element,
    /** @param {any[]} page @param {number} first @param {Set<string>} opened */
    show(page, first, opened) {
      const lines = page.flatMap((m, i) => [{m, n: first + i, inside: false}, ...opened.has(m.id) ? [{m, n: 0, inside: true}] : []]);
      keyed(body, lines, (l) => l.m.id + (l.inside ? 'inside' : ''), (l) => row(h('tr'), l, opened.has(l.m.id)), (tr, l) => row(tr, l, opened.has(l.m.id)));
      none.hidden = page.length > 0;
      fill(none, wanted.state || wanted.message_id ? 'No message is like that.' : 'The queue is empty.');
    },
  };
}

/** @param {import('./detail.js').Tab} tab @param {any} m @param {number} n @param {Actions} actions @param {boolean} open */
function cells(tab, m, n, actions, open) {
  const id = idOf(m);
  return [
    h('td', {class: 'number wide quiet'}, String(n)),
    h('th', {scope: 'row'}, h('button', {type: 'button', class: 'plain', 'aria-expanded': String(open), onclick: () => actions.toggle(m.id)}, id || `(${m.id})`)),
    h('td', null, h('span', {class: ['badge', {ready: 'good', unacked: 'accent', held: 'warn'}[/** @type {string} */ (m.state)]]}, m.state)),
    h('td', null, m.hold != null ? ['released ', until(m.hold)] : until(m.deadline)),
    h('td', {class: 'wide'}, deliveries(m)),
    h('td', {class: 'wide'}, holder(m)),
    h('td', {class: 'number wide'}, bytes(m.payload_bytes)),
    h('td', {class: 'wide'}, h('div', {class: 'row-actions'}, links(tab, m, id, actions))),
  ];
}

/** @param {any} m @returns {string | undefined} */
const idOf = (m) => Array.isArray(m.properties) ? undefined : m.properties.message_id;

/** @param {any} m */
function deliveries(m) {
  const parts = [m.deliveries > 0 && String(m.deliveries) + (m.state === 'held' ? ' (retry)' : ''), m.deaths > 0 && plural(m.deaths, 'death')].filter(Boolean);
  return parts.length ? parts.join(', ') : m.redelivered ? 'redelivered' : h('span', {class: 'quiet'}, '0');
}

/** @param {any} m */
function holder({consumer: c, state}) {
  if (c) return [c.consumer_tag ?? 'basic.get', ' ', h('a', {href: href('channels', [c.channel])}, 'channel ', c.channel.replace(/^.*\((\d+)\)$/, '$1'))];
  return state === 'leaving' ? 'on its way to other queues' : h('span', {class: 'quiet'}, '–');
}

/** @param {import('./detail.js').Tab} tab @param {any} m @param {string | undefined} id @param {Actions} actions */
function links(tab, m, id, actions) {
  const {vhost, name} = tab, link = (/** @type {string} */ text, /** @type {string} */ to) => h('a', {class: 'small', href: to}, text);
  const held = path('queues', vhost, name, 'held', m.id), told = (/** @type {Promise<any>} */ p, /** @type {string} */ text) => p.then(() => say(text), (e) => say(e.message)).then(actions.changed);
  return [
    id && link('story', href('story', [], {vhost, queue: name, message_id: id})),
    link('simulate', href('lab', [tab.queue()?.expiry_strategy ?? ''], {vhost, queue: name, message: m.id})),
    m.state === 'held' && [
      button('now', () => told(post(held + '/release'), 'Released.'), 'plain'),
      button('move…', () => move(held, m).then(actions.changed), 'plain'),
      button('cancel', () => destroy({title: 'Cancel a held message', text: 'It is dropped, and not dead-lettered.', action: 'Cancel the message', name, messages: 1, done: () => remove(held)}).then(actions.changed), 'plain'),
    ],
    m.state === 'ready' && m.deaths > 0 && id && button('redrive…', () => redrive(tab, {to: 'source', message_id: id}).then(actions.changed), 'plain'),
  ];
}

/** @param {string} held path of the message @param {any} m */
function move(held, m) {
  return ask({
    title: 'Move the release', action: 'Move',
    fields: [{name: 'seconds', label: 'Release in', type: 'number', value: Math.max(0, Math.round((m.hold - now()) / 1000)), required: true, hint: 'seconds from now, up to ten years'}],
    done: ({seconds}) => patch(held, {deliver_at: Math.round(now() + seconds * 1000)}),
  });
}
