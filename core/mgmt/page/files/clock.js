// The broker's clock, which instants are of: the browser's may be minutes off. And times that count down by themselves. A press on a time
// says when that is; the key "t" has all times say it.

import {fill, h} from './dom.js';
import {dateTime, exactly, LAST, relative, time} from './format.js';

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
  const element = h('time', {datetime: new Date(at).toISOString(), 'data-means': dateTime(at), class: 'until', 'data-at': at}, text(at, now()));
  shown.add(new WeakRef(element));
  if (!ticking) setTimeout(tick, TICK);
  ticking = true;
  return element;
}

// An instant up to 1.5 s ago is still "now": the page gets news that late.
/** @param {number} at @param {number} t */
const text = (at, t) => dates ? dateTime(at) : t >= at && t - at < 1500 ? 'now' : relative(at, t);

let dates = false; // times are shown as dates

/**
 * Returns a time of the day. It stays as it is.
 * @param {number} at ms since 1970
 * @param {boolean} [rough] it is known to the second only
 */
export function timeOfDay(at, rough = false) {
  if (!(Math.abs(at) <= LAST)) return h('span', null, dateTime(at));
  const short = rough ? time(at).replace(/\.\d+$/, '') : time(at), long = rough ? dateTime(at) : exactly(at);
  return h('time', {datetime: new Date(at).toISOString(), 'data-means': long, 'data-short': short}, dates ? long : short);
}

/** Shows all times as dates, or as they were. */
export function switchDates() {
  dates = !dates;
  for (const element of document.querySelectorAll('time[data-short]')) fill(element, element.getAttribute(dates ? 'data-means' : 'data-short'));
  for (const ref of shown) show(ref.deref(), now());
}

/** @param {HTMLElement | undefined} element one of until's @param {number} t */
const show = (element, t) => void (element?.isConnected && fill(element, text(Number(element.getAttribute('data-at')), t)));

function tick() {
  const t = now();
  for (const ref of shown) {
    const element = ref.deref();
    show(element, t);
    if (element?.isConnected) continue;
    if (!element || element.hasAttribute('data-seen')) shown.delete(ref);
    element?.toggleAttribute('data-seen', true);
  }
  ticking = shown.size > 0;
  if (ticking) setTimeout(tick, TICK);
}
