// Small pieces that several views are made of.

import {Failure} from './api.js';
import {fill, h, keyed, set} from './dom.js';
import {duration} from './format.js';
import {href} from './link.js';

/** @typedef {import('./dom.js').Child} Child */

/** Returns names and values, one pair a line. Pairs that are false are left out. @param {([string, Child] | false)[]} pairs */
export function facts(pairs) {
  return h('dl', {class: 'facts'}, pairs.filter((p) => p !== false).map(([name, value]) => [h('dt', null, name), h('dd', null, value)]));
}

/** Settings that are durations, which are shown in words, too. */
const DURATIONS = new Set(['message-ttl', 'expires', 'delivery-lease', 'delivery-delay', 'delayed-retry-min', 'delayed-retry-max', 'consumer-timeout']);

/** Returns the value of a setting. @param {string} key without x- @param {any} v @returns {Child} */
export function setting(key, v) {
  if (v === '') return '(empty)';
  if (DURATIONS.has(key) && typeof v === 'number') return [`${v} ms`, duration(v) !== `${v} ms` && h('span', {class: 'quiet'}, ` (${duration(v)})`)];
  return typeof v === 'string' ? v : JSON.stringify(v);
}

/** @typedef {{name: string, value: Child, means?: string}} Figure means: its meaning, which a press on the name shows */

/** Shows figures in a list of definitions, and updates them in place. @param {Element} list @param {Figure[]} all */
export function figures(list, all) {
  keyed(list, all, (f) => f.name, (f) => h('div', {class: 'stat'}, h('dt', null, f.means ? term(f.name, f.means) : f.name), h('dd', null, f.value)), (element, f) => {
    const dd = element.lastElementChild, old = dd.firstElementChild;
    if (f.value instanceof HTMLElement && old?.getAttribute('data-at') && old.getAttribute('data-at') === f.value.getAttribute('data-at')) return; // it counts down by itself
    fill(dd, f.value);
  });
}

let terms = 0;

/** Returns a name that shows its meaning when it is pressed. @param {string} name @param {string} means */
export function term(name, means) {
  const id = 'term-' + ++terms;
  return [h('button', {type: 'button', class: 'term', popovertarget: id}, name), h('span', {id, class: 'means', popover: 'auto', role: 'note'}, means)];
}

/** The one element for all explanations: an element with an explanation stays the same each time it is drawn. */
const note = h('div', {id: 'note', class: 'means', popover: 'auto', role: 'status'});
/** The place of the note: beside the pressed element, which may be drawn anew meanwhile. */
const spot = h('span', {class: 'spot'});
/** @type {Element | null} */
let about = null;

function place() {
  if (!about?.isConnected) return;
  const {left, top, width, height} = about.getBoundingClientRect();
  set(spot, 'style', {left: left + 'px', top: top + 'px', width: width + 'px', height: height + 'px'});
}

document.addEventListener('click', (e) => {
  const pressed = e.target instanceof Element ? e.target.closest('[data-means]') : null;
  if (!pressed) return;
  about = pressed;
  place();
  if (!note.isConnected) document.body.append(spot, note);
  note.showPopover(/** @type {any} */ ({source: spot})); // empty, so that a screen reader reads its new text
  fill(note, about.getAttribute('data-means'));
});
addEventListener('scroll', place, {capture: true, passive: true});
addEventListener('hashchange', () => note.isConnected && note.hidePopover());

/**
 * Returns a button that shows an explanation when it is pressed, with a pointer, a finger or the keyboard. Rows have one such button, however many badges are in it.
 * @param {Child} what
 * @param {string | (string | false | null | undefined)[]} means lines
 * @param {string} [style] a class
 */
export function explained(what, means, style) {
  const lines = (Array.isArray(means) ? means : [means]).filter(Boolean);
  return lines.length ? h('button', {type: 'button', class: ['term', style], 'data-means': lines.join('\n')}, what) : h('span', {class: style}, what);
}

/** Returns the head of a view: its title, and the elements beside it. @param {Child} title @param {...Child} beside */
export function heading(title, ...beside) {
  return h('div', {class: 'head'}, h('h1', null, title), h('div', {class: 'bar'}, beside));
}

/** Returns the link to the list that this view shows one element of. @param {string} view @param {string} text */
export function back(view, text) {
  return h('p', {class: 'small'}, h('a', {href: href(view)}, '← ' + text));
}

/** Returns a section with a title. @param {string} title @param {...Child} content */
export function section(title, ...content) {
  return h('section', {class: 'card'}, h('h2', null, title), content);
}

/** Returns a button. @param {string} text @param {() => any} onclick @param {string} [style] a class, such as plain */
export function button(text, onclick, style) {
  return h('button', {type: 'button', class: style, onclick}, text);
}

/**
 * Says in which virtual host something is, beside its name: another one may have the same name. The usual virtual host goes without saying.
 * @param {string | undefined} vhost
 * @param {string} [style] a class
 */
export const inVHost = (vhost, style) => vhost != null && vhost !== '/' && h('span', {class: ['quiet', style]}, ' in ', vhost);

/** Returns yes or no as text, with more weight for yes. @param {any} is */
export const yes = (is) => is ? 'yes' : h('span', {class: 'quiet'}, 'no');

/** Returns words that are not there as a dash. @param {Child} text */
export const orDash = (text) => text === '' || text == null ? h('span', {class: 'quiet'}, '–') : text;

/**
 * Loads the contents of a place, now and every five seconds, or shows the error there.
 * @param {import('./views.js').Context} context
 * @param {HTMLElement} place
 * @param {() => Promise<void>} load fills the place
 * @param {string} [missing] text for a 404
 */
export function refreshed(context, place, load, missing = 'It does not exist any more.') {
  const guarded = async () => {
    try {
      await load();
    } catch (error) {
      if (context.signal.aborted || error instanceof Failure && error.status === 0 && place.hasChildNodes()) return; // the banner says it
      const gone = error instanceof Failure && error.status === 404;
      fill(place, h('p', {class: gone ? 'empty' : 'error', role: 'alert'}, gone ? missing : error instanceof Error ? error.message : String(error)));
    }
  };
  context.every(5000, guarded);
  return guarded;
}

/**
 * Returns an object of the broker's as names and values, as deep as it is.
 * @param {any} value
 * @returns {Child}
 */
export function tree(value) {
  if (Array.isArray(value)) return value.length ? h('ul', {class: 'tree'}, value.map((v) => h('li', null, tree(v)))) : orDash('');
  if (value && typeof value === 'object') {
    const pairs = Object.entries(value);
    return pairs.length ? facts(pairs.map(([k, v]) => [k, tree(v)])) : orDash('');
  }
  return value === '' || value == null ? orDash('') : String(value);
}

/** @param {import('./views.js').Context} context */
export const isAdministrator = ({user}) => user.tags.includes('administrator');

/** The views of administration, which share a second menu. @type {[string, string][]} */
const ADMIN = [['users', 'Users'], ['vhosts', 'Virtual hosts'], ['limits', 'Limits'], ['definitions', 'Definitions'], ['node', 'Node']];

/** Returns the menu of administration. @param {string} current */
export function adminMenu(current) {
  return h('nav', {class: 'tabs', 'aria-label': 'Administration'},
    ADMIN.map(([view, text]) => h('a', {href: href(view), 'aria-current': view === current && 'page'}, text)));
}
