// The broker's clock, which instants are of: the browser's may be minutes off. And times that count down by themselves.

import {fill, h} from './dom.js';
import {dateTime, LAST, relative} from './format.js';

let offset = 0; // of the broker's clock to the browser's, in milliseconds

/** Takes the broker's time from an answer that has just come. @param {number} at ms since 1970 */
export function observe(at) {
  const seen = at - Date.now();
  // Answers are late by how long they took, so that the largest is the best; but clocks are set, too.
  offset = seen > offset || offset - seen > 2000 ? seen : offset;
}

/** Returns the broker's time, in milliseconds since 1970. */
export const now = () => Date.now() + offset;

/** @type {Set<WeakRef<HTMLElement>>} */
const shown = new Set();
const TICK = 200;
let ticking = false;

/**
 * Returns how far off an instant is: "in 0.4 s", "2 m ago". It is kept up to date while it is shown.
 * @param {number | null | undefined} at ms since 1970
 */
export function until(at) {
  if (at == null) return h('span', {class: 'quiet'}, '–');
  if (!(Math.abs(at) <= LAST)) return h('span', null, dateTime(at));
  const element = h('time', {datetime: new Date(at).toISOString(), title: dateTime(at), class: 'until', 'data-at': at}, text(at, now()));
  shown.add(new WeakRef(element));
  if (!ticking) setTimeout(tick, TICK);
  ticking = true;
  return element;
}

// What has just come is news to the broker, too, until the page hears of it.
/** @param {number} at @param {number} t */
const text = (at, t) => t >= at && t - at < 1500 ? 'now' : relative(at, t);

function tick() {
  const t = now();
  for (const ref of shown) {
    const element = ref.deref();
    if (element?.isConnected) fill(element, text(Number(element.getAttribute('data-at')), t));
    else if (!element || element.hasAttribute('data-seen')) shown.delete(ref);
    element?.toggleAttribute('data-seen', true);
  }
  ticking = shown.size > 0;
  if (ticking) setTimeout(tick, TICK);
}
