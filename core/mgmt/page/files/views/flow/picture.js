// Draws a graph of dead letters in SVG.

import {now} from '../../clock.js';
import {fill, keyed, s, set, visible} from '../../dom.js';
import {count, duration, exact, plural, rate} from '../../format.js';
import {href} from '../../link.js';
import {percent} from './graph.js';
import {layout} from './layout.js';

/** @typedef {import('./graph.js').Node} Node @typedef {import('./graph.js').Way} Way @typedef {import('./graph.js').Component} Component */

const LONGEST = 240, MARGIN = 12; // px

const pen = document.createElement('canvas').getContext('2d');

/** Returns how wide a text is drawn. @param {string} text @param {string} [font] size and weight */
function wide(text, font = '600 13px') {
  if (!pen) return text.length * 8;
  pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

/** Cuts a text that has no room. @param {string} text */
function short(text) {
  const all = [...visible(text)];
  if (wide(all.join('')) <= LONGEST) return all.join('');
  let n = Math.min(all.length, 60);
  while (n > 1 && wide(all.slice(0, n).join('') + '…') > LONGEST) n--;
  return all.slice(0, n).join('') + '…';
}

/** Returns the reason and the rate. @param {import('./graph.js').What} o */
export function label(o) {
  if (o.reason == null) return 'nothing yet';
  const part = o.lost ? o.lost / (o.of ?? 1) : 0;
  if (o.source != null) return `${percent(part)} lost${o.rate > 0 ? ', ' + rate(o.rate) : ''}`;
  if (part === 1) return 'none arrives';
  if (part && o.rate === 0) return `${o.reason.replace('_', ' ')}: ${percent(1 - part)} arrive`;
  return `${o.reason.replace('_', ' ')} ${o.rate > 0 ? rate(o.rate) : count(o.count)}`;
}

/** @param {Node} n */
function second(n) {
  const q = n.queue;
  if (n.kind !== 'queue') return n.note ?? '';
  return q?.exists ? plural(q.messages, 'message') : 'deleted';
}

/** @param {Node} n */
const redrivable = (n) => n.queue?.dead_letters > 0 && n.queue.messages_ready > 0;

/**
 * Returns a picture of a component.
 * @returns {{element: SVGElement, show: (c: Component) => void}}
 */
export function picture() {
  const ways = s('g', {class: 'ways'}), nodes = s('g', {class: 'nodes'}), labels = s('g', {class: 'labels'});
  const element = s('svg', {class: 'flow', role: 'group'}, ways, labels, nodes);
  return {
    element,
    show(c) {
      const all = [...c.nodes.values()], list = [...c.ways.values()];
      for (const n of all) size(n);
      const {width, height} = layout(all, list);
      const backs = list.filter((w) => w.back && w.points?.length), left = Math.min(0, ...backs.map((w) => (w.points?.[3][0] ?? 0) - 46));
      const across = Math.max(width, ...backs.map((w) => (w.points?.[0][0] ?? 0) + 36)) - left + 2 * MARGIN;
      set(element, 'viewBox', `${left - MARGIN} ${-MARGIN} ${across} ${height + 2 * MARGIN}`);
      set(element, 'width', across);
      element.closest('.card')?.classList.toggle('whole', across > 600);
      set(element, 'height', height + 2 * MARGIN);
      set(element, 'aria-label', summary(c));
      keyed(ways, list, (w) => w.id, () => s('g', null, s('title'), s('path'), s('path')), drawWay);
      for (const w of list) drawWay(find(ways, w.id), w);
      keyed(labels, list.filter((w) => w.what.length > 0), (w) => w.id, () => s('g'));
      for (const w of list) if (w.what.length > 0) drawLabel(find(labels, w.id), w);
      keyed(nodes, all, (n) => n.id, () => s('g', null, s('title'), s('rect', {rx: 8})));
      for (const n of all) drawNode(find(nodes, n.id), n);
    },
  };
}

/** @param {Element} parent @param {string} key @returns {any} */
const find = (parent, key) => [...parent.children].find((c) => c.getAttribute('data-key') === key);

/** @param {Node} n */
function size(n) {
  const below = wide(short(second(n)), '11px') + (redrivable(n) ? wide('redrive…', '11.5px') + 20 : 0);
  n.width = Math.ceil(Math.max(64, wide(short(n.name)) + (n.kind === 'end' ? 20 : 0), below) + 24);
  n.height = second(n) ? 46 : 30;
}

/** @param {any} g @param {Way} w */
function drawWay(g, w) {
  const [title, line, head] = g.children, points = w.points ?? [];
  g.setAttribute('class', ['way', w.bad && 'bad', !w.certain && 'uncertain', w.back && 'back'].filter(Boolean).join(' '));
  fill(title, [...w.what.map((o) => o.reason == null ? label(o) : `${o.source != null ? o.reason.replace('_', ' ') + ': ' : ''}${label(o)} (${o.lost ? `${exact(o.lost)} of ${exact(o.of ?? 0)} lost lately` : exact(o.count) + (o.recent ? ' lately' : '')})`), ...w.notes, !w.certain && 'not certain'].filter(Boolean).join('; '));
  const thick = w.rate > 0 ? Math.min(7, 1.5 + Math.log10(1 + w.rate) * 1.8) : 1.5;
  set(line, 'd', curve(points, w.back));
  set(line, 'stroke-width', thick.toFixed(1));
  const [x, y] = points[points.length - 1] ?? [0, 0], size = 5 + thick;
  set(head, 'd', `M${x},${y}l${-size},${-size * .6}v${size * 1.2}z`);
  set(head, 'class', 'arrow');
}

/** @param {[number, number][]} p @param {boolean} [back] */
function curve(p, back) {
  if (p.length < 2) return '';
  if (back) {
    const [[ax, ay], [, y], , [bx, by]] = p;
    return `M${ax},${ay}C${ax + 44},${ay} ${ax + 44},${y} ${ax},${y}L${bx - 8},${y}C${bx - 52},${y} ${bx - 52},${by} ${bx - 6},${by}`;
  }
  let d = `M${p[0][0]},${p[0][1]}`;
  for (let i = 1; i < p.length; i++) {
    const [ax, ay] = p[i - 1], last = i === p.length - 1, bx = p[i][0] - (last ? 6 : 0), by = p[i][1], middle = (ax + bx) / 2;
    d += ay === by ? `L${bx},${by}` : `C${middle},${ay} ${middle},${by} ${bx},${by}`;
  }
  return d;
}

/** @param {any} g @param {Way} w */
function drawLabel(g, w) {
  const points = w.points ?? [], [x, y] = w.back ? [(points[1][0] + points[2][0]) / 2, points[1][1]] : points[0];
  const up = !w.back && (points.at(-1)?.[1] ?? y) < y - 8, first = up ? y + 15 : y - 6; // beside the way, which bends away from it
  keyed(g, w.what, (o) => String(o.reason) + o.recent + o.source, () => s('text'));
  [...g.children].forEach((text, i) => {
    const of = w.what[i];
    set(text, 'x', x + (w.back ? 0 : 10));
    set(text, 'y', first + (i === 0 ? 0 : (up ? 0 : 8) + i * 13));
    set(text, 'text-anchor', w.back ? 'middle' : 'start');
    fill(text, label(of));
  });
}

/** @param {any} g @param {Node} n */
function drawNode(g, n) {
  g.setAttribute('class', ['node', n.kind, n.bad && 'bad', n.queue && !n.queue.exists && 'gone'].filter(Boolean).join(' '));
  g.setAttribute('transform', `translate(${n.x},${n.y})`);
  const [title, rect] = g.children, q = n.queue;
  fill(title, q?.exists ? `${n.name}: ${exact(q.messages)} messages, ${exact(q.messages_ready)} ready; ${exact(q.dead_letters)} dead letters came in${q.next_deadline ? '; next deadline in ' + duration(Math.max(0, q.next_deadline - now())) : ''}` : n.name);
  set(rect, 'width', n.width);
  set(rect, 'height', n.height);
  const parts = [{key: 'name', y: 19, text: (n.kind === 'end' && n.bad ? '⚠ ' : '') + short(n.name), href: at(n)}, second(n) && {key: 'note', y: 36, text: short(second(n))},
    redrivable(n) && {key: 'redrive', y: 36, text: 'redrive…', href: href('queues', [n.vhost, n.name], {tab: 'dead-letters'})}].filter((p) => !!p);
  const texts = g.querySelector('g') ?? g.appendChild(s('g'));
  keyed(texts, parts, (p) => p.key + !!p.href, (p) => p.href ? s('a', null, s('text')) : s('text'));
  [...texts.children].forEach((child, i) => {
    const p = parts[i], text = p.href ? child.firstElementChild : child;
    if (p.href) set(child, 'href', p.href);
    if (p.key === 'redrive') set(child, 'aria-label', `Redrive messages of ${n.name}`);
    set(text, 'class', p.key);
    set(text, 'x', p.key === 'redrive' ? (n.width ?? 0) - 12 : 12);
    set(text, 'text-anchor', p.key === 'redrive' ? 'end' : 'start');
    set(text, 'y', p.y);
    fill(text, p.text);
  });
}

/** @param {Node} n */
function at(n) {
  if (n.kind === 'queue') return n.queue?.exists ? href('queues', [n.vhost, n.name]) : '';
  return n.kind === 'exchange' ? href('exchanges', [n.vhost, n.name]) : '';
}

/** @param {Component} c */
function summary(c) {
  const queues = [...c.nodes.values()].filter((n) => n.kind === 'queue').length, lost = c.edges.filter((e) => e.problem).length;
  return `Where dead letters of ${plural(queues, 'queue')} go${c.cycles.length ? `, with ${plural(c.cycles.length, 'cycle')}` : ''}${lost ? `; ${plural(lost, 'way')} lead nowhere` : ''}. The table below says the same.`;
}
