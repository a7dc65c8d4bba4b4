// Charts in SVG. Each has a label that says the same in words, and a table beside it.

import {fill, h, keyed, s} from './dom.js';
import {count, duration, exact, plural} from './format.js';

/**
 * The API's answer about deadlines.
 * @typedef {object} Deadlines
 * @property {number} at
 * @property {boolean} [complete]
 * @property {number} overdue
 * @property {number} never
 * @property {{to_ms?: number | null, count: number, held?: number}[]} buckets the last one has no bound
 */

const HEIGHT = 180, LEFT = 36, RIGHT = 8, TOP = 8, BOTTOM = 22;
const FIRST = 10; // ms: where the time axis begins
/** @type {[number, string][]} */
const TICKS = [[10, '10 ms'], [100, '100 ms'], [1000, '1 s'], [10_000, '10 s'], [60_000, '1 m'], [600_000, '10 m'], [3_600_000, '1 h'], [86_400_000, '1 d'], [30 * 86_400_000, '30 d']];

/**
 * Returns a chart of when messages are due, on a logarithmic axis of time; heights are logarithmic, too, so that one message is
 * seen beside a million.
 * @param {string} label the name of the chart
 * @returns {{element: HTMLElement, show: (d: Deadlines) => void}}
 */
export function histogram(label) {
  const svg = s('svg', {class: 'chart', role: 'img', height: HEIGHT});
  const rows = h('tbody'), note = h('p', {class: 'legend'});
  const element = h('figure', {class: 'histogram'}, svg, note, h('details', null, h('summary', null, 'As a table'),
    h('div', {class: 'table plain'}, h('table', null, h('caption', {class: 'unseen'}, label),
      h('thead', null, h('tr', null, ['Due within', 'Ready', 'Held'].map((t, i) => h('th', {scope: 'col', class: i && 'number'}, t)))), rows))));
  /** @type {Deadlines | null} */
  let last = null;
  let width = 0;
  const draw = () => {
    if (!last || width === 0) return;
    svg.setAttribute('aria-label', summary(label, last));
    plot(svg, last, width);
  };
  new ResizeObserver(([entry]) => {
    width = Math.round(entry.contentRect.width);
    draw();
  }).observe(element);
  return {
    element,
    show(d) {
      last = d;
      draw();
      fill(note, ...legend(d));
      const filled = d.buckets.map((b, i) => ({...b, i})).filter((b) => b.count || b.held);
      keyed(rows, filled, (b) => String(b.i), (b) => h('tr', null, row(d, b)), (tr, b) => fill(tr, row(d, b)));
    },
  };
}

/** @param {Deadlines} d @param {{i: number, count: number, held?: number}} b */
function row(d, b) {
  return [h('th', {scope: 'row'}, range(d, b.i)), h('td', {class: 'number'}, exact(b.count)), h('td', {class: 'number'}, exact(b.held ?? 0))];
}

/** @param {Deadlines} d @param {number} i */
function range(d, i) {
  const to = d.buckets[i].to_ms, from = i > 0 ? d.buckets[i - 1].to_ms : 0;
  return to == null ? 'later than ' + duration(from) : (from ? duration(from) + ' to ' : 'up to ') + duration(to);
}

/** @param {string} label @param {Deadlines} d */
function summary(label, d) {
  const within = (/** @type {number} */ ms) => d.buckets.reduce((n, b) => n + (b.to_ms != null && b.to_ms <= ms * 1.001 ? b.count + (b.held ?? 0) : 0), 0);
  return `${label}: ${plural(within(1000), 'message')} due within 1 s, ${exact(within(60_000))} within 1 m, ${exact(within(3_600_000))} within 1 h; ` +
    `${exact(d.overdue)} overdue, ${exact(d.never)} without a deadline.`;
}

/** @param {Deadlines} d */
function legend(d) {
  const held = d.buckets.some((b) => b.held), later = d.buckets.at(-1);
  return [
    h('span', {class: 'key ready'}, 'expire'), held && h('span', {class: 'key held'}, 'held until then'),
    d.overdue > 0 && h('span', {class: 'badge bad'}, exact(d.overdue), ' overdue'),
    h('span', {class: 'spring'}), later && later.to_ms == null && later.count + (later.held ?? 0) > 0 && h('span', null, 'later ', count(later.count + (later.held ?? 0))),
    h('span', null, 'never ', count(d.never)), d.complete === false && h('span', null, 'some queues are still being counted'),
  ];
}

/** @param {SVGElement} svg @param {Deadlines} d @param {number} width */
function plot(svg, d, width) {
  const bounded = d.buckets.filter((b) => b.to_ms != null);
  const end = bounded.at(-1)?.to_ms ?? FIRST * 10;
  const x = (/** @type {number} */ ms) => LEFT + Math.log(Math.max(ms, FIRST) / FIRST) / Math.log(end / FIRST) * (width - LEFT - RIGHT);
  const most = Math.max(10, ...bounded.map((b) => Math.max(b.count, b.held ?? 0)));
  const top = Math.ceil(Math.log10(most + 1)), floor = HEIGHT - BOTTOM;
  const y = (/** @type {number} */ n) => n <= 0 ? floor : floor - (Math.log10(n) + .3) / (top + .3) * (floor - TOP);
  svg.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
  if (svg.getAttribute('data-drawn') !== `${width} ${end} ${top}`) {
    svg.setAttribute('data-drawn', `${width} ${end} ${top}`);
    fill(svg, s('g', {class: 'lines'}, levels(top, y, width)), s('g', {class: 'ticks'}, ticks(x, end, width)), s('g', {class: 'bars'}));
  }
  const bars = bounded.flatMap((b, i) => bar(b, i, i > 0 ? Number(bounded[i - 1].to_ms) : FIRST, x, y, floor, range(d, i)));
  keyed(/** @type {Element} */ (svg.lastElementChild), bars, (b) => b.key, (b) => drawn(s('rect', null, s('title')), b), drawn);
}

/** @param {number} top @param {(n: number) => number} y @param {number} width */
function levels(top, y, width) {
  const step = top > 4 ? 2 : 1;
  return Array.from({length: Math.floor(top / step) + 1}, (_, i) => 10 ** (i * step)).map((n) => [
    s('line', {class: 'axis', x1: LEFT, x2: width - RIGHT, y1: y(n), y2: y(n)}), s('text', {x: LEFT - 6, y: y(n) + 4, 'text-anchor': 'end'}, count(n)),
  ]);
}

/** @param {(ms: number) => number} x @param {number} end @param {number} width */
function ticks(x, end, width) {
  const every = width < 520 ? 2 : 1;
  return TICKS.filter(([ms], i) => ms <= end && (i % every === 0)).map(([ms, text]) => [
    s('line', {class: 'axis', x1: x(ms), x2: x(ms), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4}),
    s('text', {x: x(ms), y: HEIGHT - 4, 'text-anchor': x(ms) > width - 24 ? 'end' : x(ms) < LEFT + 8 ? 'start' : 'middle'}, text),
  ]);
}

/** @typedef {{key: string, x: number, width: number, y: number, height: number, held: boolean, title: string}} Bar */

/**
 * Returns the bars of a bucket: a solid one for messages that expire and, beside it, an outline for held messages.
 * @param {{to_ms?: number | null, count: number, held?: number}} b
 * @param {number} i @param {number} from @param {(ms: number) => number} x @param {(n: number) => number} y @param {number} floor @param {string} span
 * @returns {Bar[]}
 */
function bar(b, i, from, x, y, floor, span) {
  const left = x(from), right = Math.max(left + 2, x(Number(b.to_ms)) - 1), half = b.count > 0 && (b.held ?? 0) > 0 ? (right - left) / 2 : right - left;
  const one = (/** @type {number} */ n, /** @type {boolean} */ held) => n > 0 ? [{
    key: i + (held ? 'held' : ''), x: held ? right - half : left, width: Math.max(1, half), y: y(n), height: floor - y(n), held, title: `${span}: ${exact(n)} ${held ? 'held' : 'ready'}`,
  }] : [];
  return [...one(b.count, false), ...one(b.held ?? 0, true)];
}

/** @param {SVGElement} rect @param {Bar} b */
function drawn(rect, b) {
  for (const [name, value] of Object.entries({x: b.x, y: b.y, width: b.width, height: b.height})) rect.setAttribute(name, String(Math.round(value * 10) / 10));
  rect.setAttribute('class', b.held ? 'held' : 'ready');
  if (rect.firstElementChild) fill(rect.firstElementChild, b.title);
  return rect;
}

/**
 * Returns a small line of the last values of a rate, newest to the right.
 * @param {string} label the name of the chart
 * @param {number} [length] how many values are shown
 * @returns {{element: SVGElement, add: (n: number) => void}}
 */
export function sparkline(label, length = 60) {
  const line = s('polyline', {class: 'spark'});
  const element = s('svg', {class: 'sparkline', role: 'img', viewBox: '0 0 120 32', preserveAspectRatio: 'none', 'aria-label': label}, line);
  /** @type {number[]} */
  const values = [];
  return {
    element,
    add(n) {
      values.push(n);
      if (values.length > length) values.shift();
      const most = Math.max(1, ...values);
      line.setAttribute('points', values.map((v, i) => `${((length - values.length + i) / (length - 1) * 120).toFixed(1)},${(30 - v / most * 28).toFixed(1)}`).join(' '));
      element.setAttribute('aria-label', `${label}: now ${count(Math.round(n))}, at most ${count(Math.round(most))} in the last ${plural(values.length, 'second')}`);
    },
  };
}
