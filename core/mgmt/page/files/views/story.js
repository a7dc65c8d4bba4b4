// Story: the life of one message, as far as it is known.

import {get} from '../api.js';
import {button, facts, heading, orDash} from '../blocks.js';
import {now, timeOfDay, until} from '../clock.js';
import {fill, h, keyed} from '../dom.js';
import {bytes, dateTime, exact, plural} from '../format.js';
import {href, path} from '../link.js';
import {chapters, deaths, queueLink} from './story/chapters.js';
import {redrive} from './queues/redrive.js';

/** @typedef {import('./story/chapters.js').Place} Place */

const MOST = 12; // queues that are looked into
const BEFORE = 1000; // messages before it that are counted

/** @type {import('../views.js').View} */
export default function show(main, context) {
  const vhost = context.query.get('vhost') || '/', queue = context.query.get('queue') ?? '', id = context.query.get('message_id') ?? '';
  main.append(heading(id ? ['Story of ', h('span', {class: 'mono'}, id)] : 'Story of a message'), form(vhost, queue, id));
  if (!id) return void main.append(h('p', {class: 'quiet'}, 'A message is known by the property message_id, which its publisher sets; one without has no story.'));
  const here = h('div', {class: 'card'}), line = h('ol', {class: 'told'}), unknown = h('div', {class: 'quiet small view'}), trace = h('p');
  main.append(here, h('section', {class: 'card'}, h('h2', null, 'What happened'), trace, line, unknown));
  follow(context, {vhost, queue, id}, {here, line, unknown, trace});
}

/** @param {string} vhost @param {string} queue @param {string} id */
function form(vhost, queue, id) {
  const input = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ value, /** @type {boolean} */ required) =>
    h('label', {class: 'field'}, label, h('input', {name, value, required, autocomplete: 'off', 'data-search': name === 'message_id'}));
  return h('form', {class: 'bar story-form', onsubmit: (/** @type {SubmitEvent} */ e) => {
    e.preventDefault();
    const v = new FormData(/** @type {HTMLFormElement} */ (e.target));
    location.hash = href('story', [], {vhost: String(v.get('vhost')), queue: String(v.get('queue')), message_id: String(v.get('message_id'))});
  }}, input('vhost', 'Virtual host', vhost, true), input('queue', 'Queue it is or was in', queue, false), input('message_id', 'Message id', id, true), h('button', {type: 'submit', class: 'primary'}, 'Look'));
}

/**
 * @param {import('../views.js').Context} context
 * @param {{vhost: string, queue: string, id: string}} what
 * @param {{here: HTMLElement, line: HTMLElement, unknown: HTMLElement, trace: HTMLElement}} shown
 */
function follow(context, what, shown) {
  const {vhost, queue, id} = what, events = /** @type {any[]} */ ([]), state = {places: /** @type {Place[]} */ ([]), notes: /** @type {string[]} */ ([]), edges: /** @type {any[]} */ ([]), looked: false};
  const targets = (/** @type {string} */ q, /** @type {any} */ e) => [...new Set(state.edges.filter((o) => o.from === q && o.to != null && o.exchange === e.dead_letter_exchange &&
    (o.key ?? null) === e.dead_letter_routing_key && o.certain).map((o) => o.to))];
  const draw = () => {
    const list = chapters(vhost, events, state.places, targets);
    keyed(shown.line, list, (c) => c.key + c.at, (c) => h('li', {class: c.kind}, timeOfDay(c.at, c.rough), h('div', null, c.text)));
    shown.line.hidden = list.length === 0;
    drawTrace(context, shown.trace, [...events.map((e) => e.trace_id), ...state.places.map((p) => traceOf(p.message))]);
    if (state.looked) drawHere(context, shown.here, what, state, events.length > 0);
  };
  let again = false, looking = false;
  const look = async () => {
    if (looking) return void (again = true);
    looking = true;
    do {
      again = false;
      await lookFor(context, what, events, state);
      if (context.signal.aborted) return;
      draw();
    } while (again);
    looking = false;
  };
  fill(shown.here, h('p', {class: 'quiet'}, 'Looking for it…'));
  void remembered(context, shown.unknown);
  const stream = new EventSource('/api/events?' + new URLSearchParams({history: '1000000', vhost, message_id: id, kind: KINDS.join(',')}));
  context.signal.addEventListener('abort', () => stream.close());
  /** @type {ReturnType<typeof setTimeout>} */
  let soon;
  for (const kind of KINDS) stream.addEventListener(kind, (m) => {
    const e = JSON.parse(/** @type {MessageEvent} */ (m).data);
    if (e.message_id !== id || events.some((o) => o.id === e.id)) return;
    events.push(e);
    clearTimeout(soon);
    soon = setTimeout(look, 300);
  });
  soon = setTimeout(look, 400);
  context.every(10_000, () => state.looked ? look() : undefined);
}

const KINDS = ['message_expired', 'message_dead_lettered', 'message_dropped', 'message_cycle', 'message_released', 'message_redriven', 'schedule_cancelled'];

/** Looks for the message in queues that may have it. @param {import('../views.js').Context} context @param {{vhost: string, queue: string, id: string}} what @param {any[]} events @param {any} state */
async function lookFor(context, {vhost, queue, id}, events, state) {
  const names = new Set(/** @type {string[]} */ ([queue, ...state.places.map((/** @type {Place} */ p) => p.queue)].filter(Boolean)));
  for (const e of events) for (const name of [e.queue, ...e.queues ?? []]) if (name) names.add(name);
  try {
    if (events.length > 0 || queue) state.edges = (await Promise.all([...names].slice(0, 4).map((name) => get('dead-letters/flow?' + new URLSearchParams({vhost, name, limit: '300'}), context.signal)))).flatMap((f) => f.edges);
    for (const e of state.edges) if (names.has(e.from) && e.to && names.size < MOST) names.add(e.to);
  } catch {
    // without it, fewer queues are looked into
  }
  const places = /** @type {Place[]} */ ([]), notes = /** @type {string[]} */ ([]);
  for (const name of [...names].slice(0, MOST)) {
    try {
      const found = await get(path('queues', vhost, name, 'messages') + '?' + new URLSearchParams({message_id: id, count: '5', truncate: '0'}), context.signal);
      for (const message of found.messages) places.push({vhost, queue: name, message, position: await position(context, vhost, name, message)});
      if (!found.complete && !found.messages.length) notes.push(`${name}: ${found.error ?? 'it was not found in two seconds, the queue is long'}`);
    } catch (error) {
      if (context.signal.aborted) return;
      notes.push(`${name}: ${/** @type {Error} */ (error).message}`);
    }
  }
  Object.assign(state, {places, notes, looked: [...names]});
}

/** Returns which of the messages it is in a queue; null if that is far behind. @param {import('../views.js').Context} context @param {string} vhost @param {string} queue @param {any} message */
async function position(context, vhost, queue, message) {
  if (message.state !== 'ready') return null;
  const {messages} = await get(path('queues', vhost, queue, 'messages') + '?' + new URLSearchParams({state: 'ready', count: String(BEFORE), truncate: '0', columns: 'messages.id'}), context.signal);
  const i = messages.findIndex((/** @type {{id: string}} */ m) => m.id === message.id);
  return i < 0 ? null : i + 1;
}

/** @param {import('../views.js').Context} context @param {HTMLElement} here @param {{vhost: string, id: string}} what @param {any} state @param {boolean} known */
function drawHere(context, here, {vhost, id}, state, known) {
  if (here.contains(document.activeElement) && here.querySelector('h2')) return; // it is being used
  fill(here, h('h2', null, 'Where it is now'), h('div', {class: 'halves'}, state.places.map((/** @type {Place} */ p) => place(context, p, id))),
    state.places.length === 0 && h('p', null, known ? 'It is in none of the queues that it may have gone to: it was acknowledged, dropped, purged, or moved on.' : 'No queue that was looked into has it, and no event about it is remembered.'),
    state.places.length > 1 && h('p', {class: 'quiet small'}, `${plural(state.places.length, 'message')} have this id: copies, or others that were published with it.`),
    h('p', {class: 'quiet small'}, 'Looked into ', state.looked.length ? state.looked.map((/** @type {string} */ q, /** @type {number} */ i) => [i > 0 && ', ', queueLink(vhost, q)]) : 'no queue: name one above', '. Looking changes nothing.'),
    state.notes.length > 0 && h('ul', {class: 'tree small'}, state.notes.map((/** @type {string} */ n) => h('li', null, n))));
}

/** @param {import('../views.js').Context} context @param {Place} p @param {string} id */
function place(context, {vhost, queue, message: m, position}, id) {
  const last = deaths(m)[0], source = last && String(last.queue);
  const tab = {context, vhost, name: queue, follow() {}, queue: () => null};
  return h('div', {class: 'list'}, facts([
    ['Queue', queueLink(vhost, queue)],
    ['State', [h('span', {class: ['badge', m.state === 'ready' ? 'good' : m.state === 'held' ? 'accent' : 'warn']}, m.state), m.state === 'ready' && (position ? ` position ${exact(position)}` : ` behind the first ${exact(BEFORE)}`),
      m.consumer && [' held by ', m.consumer.consumer_tag ?? 'a client', ', ', h('a', {href: href('channels', [m.consumer.channel])}, m.consumer.channel)]]],
    m.hold != null && m.hold > now() && ['Held until', [dateTime(m.hold), ' (', until(m.hold), ')']],
    ['Deadline', m.deadline == null ? 'none' : [dateTime(m.deadline), ' (', until(m.deadline), ')']],
    ['Delivered', m.deliveries ? plural(m.deliveries, 'time') + ' without success' : orDash('')],
    ['Size', bytes(m.payload_bytes)],
  ]), h('div', {class: 'bar'},
    m.state === 'ready' && m.deaths > 0 && button(source ? `Redrive to ${source}…` : 'Redrive…', () => redrive(tab, {to: 'source', message_id: id}), 'primary'),
    m.state === 'ready' && button('Move to…', () => redrive(tab, {to: 'queue', message_id: id})),
    h('a', {class: 'button', href: href('queues', [vhost, queue], {tab: 'messages', message_id: id})}, 'Look at the message')));
}

/** @param {any} m */
const traceOf = (m) => /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(String(m.properties?.headers?.traceparent ?? ''))?.[1];

/** @param {any} context @param {HTMLElement} element @param {(string | null | undefined)[]} ids */
function drawTrace(context, element, ids) {
  const trace = ids.find(Boolean), to = context.user.trace_url;
  element.hidden = !trace;
  if (!trace) return;
  const address = /^https?:\/\//.test(to ?? '') ? String(to).replaceAll('{trace_id}', encodeURIComponent(trace)) : null;
  fill(element, 'Trace ', address ? h('a', {href: address, rel: 'noreferrer', target: '_blank'}, trace, ' ↗') : h('code', null, trace));
}

/** Says how far back the story is known. @param {import('../views.js').Context} context @param {HTMLElement} element */
async function remembered(context, element) {
  const text = 'Who published a message, and who acknowledged it, is not recorded: this is what its headers and the remembered events say. ';
  fill(element, h('p', null, text));
  try {
    const r = await get('events/remembered', context.signal);
    fill(element, h('p', null, text, r.messages === 0 ? 'No event of a message is remembered yet.' :
      ['The broker remembers the last ', exact(r.messages), r.messages < r.most ? ` of at most ${exact(r.most)}` : '', ' events of messages, since ', dateTime(r.since), '. What happened before is not known any more.']));
  } catch {
    if (!context.signal.aborted) fill(element, h('p', null, text, 'No events are remembered (telemetry.events).'));
  }
}
