// Events as they happen: a stream, shown as rows of plain words. Of very many, the page shows as many as a person can read, and counts the rest.

import {connection, Failure, send} from './api.js';
import {inVHost} from './blocks.js';
import {timeOfDay} from './clock.js';
import {fill, h} from './dom.js';
import {bytes, duration, exact, plural, time} from './format.js';
import {href, traceHref} from './link.js';

/** The names of kinds, and their colours. @type {Record<string, [string, string]>} */
export const kinds = {
  message_expired: ['expired', 'accent'], message_dead_lettered: ['dead-lettered', 'warn'], message_dropped: ['dropped', 'bad'],
  message_cycle: ['cycle', 'bad'], message_released: ['released', 'good'], message_redriven: ['redriven', 'good'],
  schedule_cancelled: ['cancelled', ''], queue_expired: ['queue expired', 'warn'], exchange_deleted: ['exchange deleted', 'warn'],
  policy_applied: ['policy', ''], module_loaded: ['module loaded', ''], module_reloaded: ['module reloaded', ''],
  module_rolled_back: ['module rolled back', 'warn'], module_unloaded: ['module unloaded', ''], breaker_opened: ['breaker opened', 'bad'],
  breaker_closed: ['breaker closed', 'good'], alarm_raised: ['alarm', 'bad'], alarm_cleared: ['alarm over', 'good'],
  redrive_finished: ['redrive finished', ''], vhost_moved: ['vhost moved', 'warn'], missed: ['missed', 'warn'],
};

/** Why messages leave, in words. @type {Record<string, string>} */
export const reasons = {
  expired: 'expired', rejected: 'rejected', maxlen: 'over the length limit', delivery_limit: 'delivered too often', queue_expired: 'its queue expired',
  duplicate: 'a duplicate', too_large: 'too large for its consumers', released: 'released', redriven: 'redriven', cancelled: 'cancelled',
};

const SOON = 150; // ms from the first of several events until all of them so far are shown
const EVERY = 500; // ms between changes of the rows, at least
const AT_ONCE = 12; // rows that are added at a time: more cannot be read, and each costs
const PER_SECOND = AT_ONCE * 1000 / EVERY;
const RETRY = 3000; // ms until a stream that was cut is opened again

/**
 * Returns a list of events that goes on until the view is left. It has no heading.
 * @param {import('./views.js').Context} context
 * @param {object} o
 * @param {Record<string, string>} o.query parameters of GET /api/events, such as vhost, queue and kind
 * @param {string} o.label the name of the list
 * @param {number} [o.history] how many past events it begins with
 * @param {number} [o.most] rows that are kept
 * @param {import('./dom.js').Child} [o.empty] text before the first row
 * @returns {{element: HTMLElement, button: HTMLElement, follow: (query: Record<string, string>) => void}} button pauses; follow begins anew, with other parameters
 */
export function events(context, {query, label, history = 200, most = 500, empty = 'Nothing has happened yet.'}) {
  const rows = h('ol', {class: 'events', 'aria-label': label}), none = h('div', {class: 'empty'}, empty);
  const failed = h('p', {class: 'error', role: 'alert', hidden: true}), left = h('p', {class: 'quiet small', hidden: true});
  const button = h('button', {type: 'button', 'aria-pressed': 'false', onclick: () => pause(!paused)}, 'Pause');
  const element = h('div', {class: 'table'}, failed, left, rows, none);
  /** @type {string[]} the JSON of events that are not shown yet */
  let waiting = [];
  let paused = false, leftOut = 0, last = '', begun = history;
  /** @type {EventSource | null} */
  let stream = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let retry, drawing;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let counting;
  let drawn = 0, kept = false; // when rows were added last, by performance.now(); whether rows wait because the user is reading

  const take = (/** @type {MessageEvent} */ e) => {
    last = e.lastEventId;
    waiting.push(e.data);
    if (waiting.length > 2 * most) forget(); // not for each event
    if (!paused && !used()) soon();
    else {
      kept = true;
      counting ??= setTimeout(count, counted() ? EVERY : 0);
    }
  };
  const soon = () => { drawing ??= setTimeout(draw, Math.max(SOON, drawn + EVERY - performance.now())); };
  const forget = () => { leftOut += waiting.splice(0, waiting.length - most).length; };
  // Rows do not move while the user is about to use one.
  const used = () => rows.contains(document.activeElement);
  rows.addEventListener('focusout', (e) => {
    if (!rows.contains(/** @type {Node | null} */ (e.relatedTarget))) soon();
  });
  const counted = () => !left.hidden;
  const count = () => {
    clearTimeout(counting);
    counting = undefined;
    if (waiting.length > most) forget();
    const since = waiting.length > 0 && (paused ? ' since the pause. ' : used() ? ' since somebody is in the list. ' : '');
    left.hidden = leftOut === 0 && !since;
    fill(left, [since ? plural(waiting.length, 'event') + since : '', leftOut ? exact(leftOut) + ' are left out: they came faster than they could be shown.' : ''].join(''));
  };
  const draw = () => {
    drawing = undefined;
    if (paused || context.signal.aborted) return;
    if (used()) return count();
    if (waiting.length > most) forget();
    const fresh = begun || kept ? waiting : waiting.slice(-AT_ONCE); // past events come at once
    kept = false;
    leftOut += waiting.length - fresh.length;
    waiting = [];
    begun = 0;
    drawn = performance.now();
    rows.prepend(...fresh.map((data) => row(JSON.parse(data), context.user)).reverse());
    while (rows.childElementCount > most) rows.lastElementChild?.remove();
    none.hidden = rows.childElementCount > 0;
    count();
  };
  const pause = (/** @type {boolean} */ on) => {
    paused = on;
    fill(button, on ? 'Go on' : 'Pause');
    button.setAttribute('aria-pressed', String(on));
    if (on) count();
    else draw();
  };
  const close = () => {
    stream?.close();
    stream = null;
    clearTimeout(retry);
  };
  const open = () => {
    close();
    if (context.signal.aborted || document.hidden) return;
    const q = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== ''));
    q.set('per_second', String(PER_SECOND)); // the broker sends no more, and counts the rest
    q.set('history', String(history));
    if (last) q.set('after', last);
    begun = history;
    stream = new EventSource('/api/events?' + q);
    stream.onopen = () => { failed.hidden = true; };
    stream.onerror = () => void refused('events?' + q);
    for (const kind of Object.keys(kinds)) stream.addEventListener(kind, /** @type {any} */ (take));
    stream.addEventListener('left_out', /** @type {any} */ ((/** @type {MessageEvent} */ e) => { leftOut += JSON.parse(e.data).count; }));
  };
  // A stream does not say why it ends: an answer does.
  const refused = async (/** @type {string} */ address) => {
    close();
    connection.dispatchEvent(new Event('down'));
    const probe = new AbortController();
    try {
      const answer = await send('GET', address, undefined, probe.signal);
      if (!answer.ok) {
        failed.hidden = false;
        fill(failed, reason(await answer.text()));
      }
    } catch (error) {
      if (!(error instanceof Failure)) throw error; // the banner says that the broker is gone
    }
    probe.abort();
    if (!context.signal.aborted) retry = setTimeout(open, RETRY);
  };
  document.addEventListener('visibilitychange', open, {signal: context.signal});
  context.signal.addEventListener('abort', close);
  open();
  return {
    element, button,
    follow(next) {
      query = next;
      [waiting, leftOut, last] = [[], 0, ''];
      rows.replaceChildren();
      none.hidden = false;
      failed.hidden = true;
      pause(false);
      open();
    },
  };
}

/** @param {string} text */
function reason(text) {
  try {
    return JSON.parse(text).reason ?? text;
  } catch {
    return text;
  }
}

/** Returns one event as a row. @param {any} e @param {import('./views.js').User} user */
export function row(e, user) {
  const [name, tone] = kinds[e.kind] ?? [e.kind, ''];
  const known = e.message_id && !(e.cut ?? []).includes('message_id');
  const trace = traceHref(user.trace_url, e.trace_id);
  return h('li', null,
    timeOfDay(e.time),
    h('span', null, h('span', {class: ['badge', tone]}, name)),
    h('span', {class: 'where'}, where(e)),
    h('span', {class: 'what'}, sentence(e)),
    h('span', {class: 'links'}, known && h('a', {href: href('story', [], {vhost: e.vhost, queue: e.queue, message_id: e.message_id})}, 'story'),
      trace && h('a', {href: trace, target: '_blank', rel: 'noopener noreferrer'}, 'trace')));
}

/** @param {any} e */
function where(e) {
  return [what(e), e.kind !== 'vhost_moved' && inVHost(e.vhost)];
}

/** @param {any} e */
function what(e) {
  if (e.queue) return h('a', {href: href('queues', [e.vhost, e.queue])}, e.queue);
  const exchange = e.schedule ?? (e.kind === 'exchange_deleted' ? null : undefined);
  if (exchange) return h('a', {href: href('exchanges', [e.vhost, exchange])}, exchange);
  return e.exchange ?? e.policy ?? e.module ?? e.alarm ?? (e.kind === 'vhost_moved' ? e.vhost : '');
}

/**
 * Describes an event in plain words.
 * @param {any} e an event of the API
 * @returns {import('./dom.js').Child}
 */
export function sentence(e) {
  if (e.reason && e.outcome) return [subject(e), ' ', h('span', null, left(e)), way(e)];
  switch (e.kind) {
    case 'queue_expired': return `was not used until it expired, ${duration(e.lateness_ms)} ago; ${plural(e.messages_dropped, 'message')} dropped, ${exact(e.messages_dead_lettered)} dead-lettered`;
    case 'exchange_deleted': return `deleted with ${plural(e.messages, 'message')} that it held`;
    case 'policy_applied': return `${e.operator ? 'operator policy' : 'policy'} ${e.action}, ${plural(e.queues, 'queue')} changed`;
    case 'breaker_opened': return `it fails too often: not asked until ${time(e.until)}`;
    case 'vhost_moved': return `another node serves it now; ${plural(e.messages_lost, 'message')} that had been in memory only ${e.messages_lost === 1 ? 'is' : 'are'} lost`;
    case 'redrive_finished': return `${e.state}: ${plural(e.moved, 'message')} moved, ${exact(e.failed)} not, in ${duration(e.took_ms)}${e.reason ? ': ' + e.reason : ''}`;
    case 'alarm_raised': return e.out_of_files ? 'no more files can be opened: publishers wait' : e.needed_bytes ? `${e.path ?? 'a disk'} has ${bytes(e.free_bytes)} free and needs ${bytes(e.needed_bytes)}: publishers wait` : e.alarm === 'memory' ? 'publishers wait until consumers have made room' : 'see the banner';
    case 'alarm_cleared': return 'publishers go on';
    case 'missed': return e.restarted ? 'the broker was restarted: earlier events are forgotten' : `${plural(e.count, 'event')} came too fast for this stream`;
  }
  return e.digest ? [h('code', null, e.digest.slice(0, 8)), e.previous_digest && [' after ', h('code', null, e.previous_digest.slice(0, 8))], e.beside && ` as shadow of ${e.beside}`] : '';
}

/** @param {any} e */
const subject = (e) => e.message_id ? h('strong', null, e.message_id) : `a message of ${bytes(e.body_bytes)}`;

/** @param {any} e */
function left(e) {
  const why = reasons[e.reason] ?? e.reason;
  if (e.overstayed) return `${why} ${duration(e.lateness_ms)} after its deadline: a consumer had it`;
  return e.lateness_ms == null ? why : `${why} ${duration(e.lateness_ms)} late`;
}

/** Says where a message went. @param {any} e */
function way(e) {
  const exchange = e.target_exchange ?? e.dead_letter_exchange, key = e.target_exchange == null ? e.dead_letter_routing_key : e.target_routing_key;
  const name = exchange === '' ? 'default exchange' : ['exchange ', h('bdi', null, exchange)], to = exchange == null ? '' : [' → ', name, ' key ', h('bdi', null, key ?? e.routing_key)];
  switch (e.outcome) {
    case 'dead_lettered': case 'routed': return [to, entered(e)];
    case 'ready': return ': ready in its queue';
    case 'no_exchange': return [' → ', name, ', which does not exist: dropped'];
    case 'unroutable': return [to, ', where no queue is bound: dropped'];
    case 'cycle': return [to, ' would have been a cycle: dropped'];
    case 'refused': return [to, ', where every queue refused it: dropped'];
    case 'filtered': return [to, ', whose filter kept it out: dropped'];
  }
  return e.reason === 'cancelled' ? '' : ': dropped';
}

/** @param {any} e */
function entered(e) {
  const names = e.queues ?? [];
  return names.length > 0 && [names.length > 1 ? ' → queues ' : ' → queue ', names.map((/** @type {string} */ q, /** @type {number} */ i) => [i > 0 && ', ', h('a', {href: href('queues', [e.vhost, q])}, q)]),
    e.more_queues > 0 && ` and ${exact(e.more_queues)} more`];
}
