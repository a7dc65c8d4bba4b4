// The broker's state, renewed each second: one stream a tab, closed while the tab is hidden. When a stream fails, the
// page asks instead, and opens it again after a second, then every five.

import {connection, Failure, get} from './api.js';

/** @typedef {(state: any) => void} Show */

const POLL = 5000;
const RETRY = 1000;

/**
 * Follows a live view until the signal is aborted. show gets the whole state, with changed parts replaced.
 * @param {string} view
 * @param {Record<string, string>} query
 * @param {Show} show
 * @param {AbortSignal} signal
 * @param {(why: Failure) => void} [refused] gets why the broker does not show it, such as that there is no such queue any more
 * @returns {() => void} ends it earlier
 */
export function follow(view, query, show, signal, refused) {
  const address = 'live?' + new URLSearchParams({view, ...query}), left = new AbortController();
  const ended = AbortSignal.any([signal, left.signal]);
  /** @type {EventSource | null} */
  let stream = null;
  let asking = new AbortController(), failures = 0, state = /** @type {any} */ ({});
  /** @type {ReturnType<typeof setTimeout>} */
  let timer;

  const close = () => {
    stream?.close();
    stream = null;
    asking.abort();
    clearTimeout(timer);
  };
  const open = () => {
    close();
    if (ended.aborted || document.hidden) return;
    stream = new EventSource('/api/' + address);
    stream.addEventListener('state', (e) => told(JSON.parse(/** @type {MessageEvent} */ (e).data)));
    stream.addEventListener('change', (e) => told(merge(state, JSON.parse(/** @type {MessageEvent} */ (e).data))));
    stream.onerror = () => {
      failures++;
      close();
      connection.dispatchEvent(new Event('down'));
      void poll();
    };
  };
  const told = (/** @type {any} */ next) => {
    failures = 0;
    take(next);
  };
  const take = (/** @type {any} */ next) => {
    state = next;
    connection.dispatchEvent(new Event('up'));
    show(state);
  };
  // A stream does not say why it ends: an answer does.
  const poll = async () => {
    const mine = asking = new AbortController();
    try {
      const answer = await get(address, mine.signal);
      if (!mine.signal.aborted) take(answer);
    } catch (error) {
      if (!(error instanceof Failure) && !mine.signal.aborted) console.error(error);
      if (error instanceof Failure && error.status !== 0 && !mine.signal.aborted) refused?.(error);
    }
    if (!mine.signal.aborted) timer = setTimeout(open, failures < 2 ? RETRY : POLL);
  };
  document.addEventListener('visibilitychange', open, {signal: ended});
  ended.addEventListener('abort', close);
  open();
  return () => left.abort();
}

/**
 * Returns a state with changes: members that are null are gone, objects are merged, and all others replaced [RFC 7396].
 * @param {any} state @param {any} change @returns {any}
 */
export function merge(state, change) {
  if (!isObject(change)) return change;
  const merged = new Map(Object.entries(isObject(state) ? state : {})); // a member of an object may be called __proto__
  for (const [name, value] of Object.entries(change)) {
    if (value === null) merged.delete(name);
    else merged.set(name, merge(merged.get(name), value));
  }
  return Object.fromEntries(merged);
}

/** @param {any} v */
const isObject = (v) => typeof v === 'object' && v !== null && !Array.isArray(v);
