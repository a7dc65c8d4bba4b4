// Makes the story of one message from events, its headers, and the queues that have it.

import {h} from '../../dom.js';
import {duration, exact, plural} from '../../format.js';
import {href} from '../../link.js';

/** @typedef {import('../../dom.js').Child} Child */
/** @typedef {{at: number, rough?: boolean, key: string, kind: 'in' | 'wait' | 'out' | 'bad' | 'now', text: Child, rank: number}} Chapter rough: known to the second */
/** @typedef {{vhost: string, queue: string, message: any, position: number | null}} Place where the message is now */

/** @param {string} vhost @param {string} queue */
export const queueLink = (vhost, queue) => h('a', {href: href('queues', [vhost, queue])}, queue);

/** @param {string} name */
const exchange = (name) => name === '' ? 'the default exchange' : ['exchange ', h('strong', null, name)];

/** @param {string | null | undefined} key */
const withKey = (key) => key == null ? ', with its own key' : key === '' ? ', with an empty key' : [', key ', h('strong', null, key)];

/**
 * Returns the chapters in the order of time.
 * @param {string} vhost @param {any[]} events @param {Place[]} places
 * @param {(queue: string, e: any) => string[]} targets queues that dead letters of an event go to
 * @returns {Chapter[]}
 */
export function chapters(vhost, events, places, targets) {
  /** @type {Map<string, Chapter>} */
  const all = new Map();
  const add = (/** @type {Chapter} */ c) => all.has(c.key) || all.set(c.key, c);
  [...events].sort((a, b) => a.id - b.id).forEach((e, i) => { // within a millisecond, the numbers of events say the order
    if (e.enqueued) add({...entered(vhost, e.schedule, e.queue, e.enqueued, e.deadline, e.strategy, e.policy_digest), rank: 2 * i});
    add({...ended(vhost, e, targets), rank: 2 * i + 1});
  });
  const seen = new Set(events.map((e) => e.queue + '\u0000' + e.reason));
  for (const p of places) {
    for (const d of deaths(p.message)) if (!seen.has(d.queue + '\u0000' + d.reason)) add(died(vhost, d));
    const m = p.message;
    add(entered(vhost, undefined, p.queue, m.since, m.deadline, null, m.policy_digest));
  }
  return [...all.values()].sort((a, b) => Math.floor(a.at / 1000) - Math.floor(b.at / 1000) || (a.rough || b.rough ? 0 : a.at - b.at) || a.rank - b.rank);
}

/** @param {any} m @returns {any[]} */
export function deaths(m) {
  const list = m.properties?.headers?.['x-death'];
  return m.deaths > 0 && Array.isArray(list) ? list.filter((d) => d && typeof d === 'object') : [];
}

/** @returns {Chapter} */
function entered(/** @type {string} */ vhost, /** @type {string | undefined} */ schedule, /** @type {string} */ queue, /** @type {number} */ at, /** @type {number | null} */ deadline,
  /** @type {string | null} */ strategy, /** @type {string | null} */ digest) {
  const by = [strategy && [' by the strategy ', h('strong', null, strategy)], digest && [', policy ', h('code', null, digest.slice(0, 8))]];
  return {
    at, key: ['in', schedule ?? '', queue ?? '', at].join('\u0000'), kind: 'in', rank: 1e9,
    text: schedule != null ? ['came to the exchange ', h('strong', null, schedule), ', which held it'] :
      ['entered ', queueLink(vhost, queue), deadline == null ? '; no deadline' : ['; deadline ', deadline >= at ? '+' + duration(deadline - at) : 'at once', by]],
  };
}

/** @param {any} e */
const late = (e) => e.lateness_ms == null ? '' : e.overstayed ? `, ${duration(e.lateness_ms)} after its deadline (a consumer had it)` : `, +${duration(e.lateness_ms)} late`;

/** The words before the queue's name. @type {Record<string, string>} */
const REASON = {
  expired: 'expired in ', rejected: 'was rejected in ', maxlen: 'was pushed out by the length limit of ', delivery_limit: 'failed too often in ', queue_expired: 'left with the expired queue ', duplicate: 'was a duplicate in ', too_large: 'was too large for the consumers of ',
};

/** @param {string} vhost @param {any} e @param {(queue: string, e: any) => string[]} targets @returns {Chapter} */
function ended(vhost, e, targets) {
  const place = e.schedule != null ? ['exchange ', h('strong', null, e.schedule)] : queueLink(vhost, e.queue);
  const base = {at: e.time, key: 'event' + e.id, rank: 0};
  if (e.kind === 'message_released') return {...base, kind: e.outcome === 'dropped' ? 'bad' : 'wait', text: ['its hold in ', place, ' ended', late(e), ': ', result(e), arrows(vhost, e.queues, e.more_queues)]};
  if (e.kind === 'schedule_cancelled') return {...base, kind: 'out', text: ['was cancelled in ', place, ' while it was held']};
  if (e.kind === 'message_redriven') return {...base, kind: 'wait', text: ['was redriven from ', place, ' → ', exchange(e.target_exchange), withKey(e.target_routing_key), arrows(vhost, e.queues, e.more_queues)]};
  const to = e.dead_letter_exchange == null ? null : [' → ', exchange(e.dead_letter_exchange), withKey(e.dead_letter_routing_key)];
  const good = e.outcome === 'dead_lettered';
  return {
    ...base, kind: good ? 'out' : 'bad',
    text: [REASON[e.reason] ?? e.reason + ' in ', place, late(e), to, good ? arrows(vhost, e.queues ?? targets(e.queue, e), e.more_queues) : [': ', result(e)]],
  };
}

/** @param {string} vhost @param {string[] | null | undefined} queues @param {number} [more] queues that are not named */
function arrows(vhost, queues, more = 0) {
  return queues?.length ? [' → ', queues.map((q, i) => [i > 0 && ', ', queueLink(vhost, q)]), more > 0 && ` and ${exact(more)} more`] : null;
}

/** @param {any} e */
function result(e) {
  switch (e.outcome) {
    case 'ready': return 'it became ready';
    case 'routed': return 'it was published';
    case 'unroutable': return 'that led to no queue, it was dropped';
    case 'no_exchange': return 'that does not exist, it was dropped';
    case 'cycle': return 'it had died there before, the broker dropped it: nothing rejected it on the way round';
    case 'refused': return 'where every queue refused it, it was dropped';
    case 'filtered': return 'a filter kept it out, it was dropped';
    default: return 'it was dropped, because the queue does not dead-letter';
  }
}

/** @param {string} vhost @param {any} d an entry of x-death @returns {Chapter} */
function died(vhost, d) {
  const queue = String(d.queue), n = Number(d.count);
  return {
    at: Number(d.time) * 1000 || 0, rough: true, key: ['death', queue, d.reason].join('\u0000'), kind: 'out', rank: -1,
    text: [REASON[d.reason] ?? String(d.reason) + ' in ', queueLink(vhost, queue), n > 1 && `, ${plural(n, 'time')} since`, h('span', {class: 'quiet'}, ' (x-death)')],
  };
}
