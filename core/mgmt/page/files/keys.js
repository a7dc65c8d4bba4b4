// The keyboard: "/" searches, "g" and a letter go to a view, "?" says which.

import {switchDates} from './clock.js';
import {h} from './dom.js';
import {href, readHash} from './link.js';
import {views} from './views.js';

const WAIT = 1500; // ms between "g" and the letter

/** Returns the list of keys, which opens over the page. */
export function help() {
  const row = (/** @type {string[]} */ keys, /** @type {string} */ what) => h('tr', null, h('th', {scope: 'row'}, keys.map((k, i) => [i > 0 && ' ', h('kbd', null, k)])), h('td', null, what));
  return h('div', {class: 'menu help', id: 'help', popover: 'auto', role: 'dialog', 'aria-labelledby': 'help-title'},
    h('h2', {id: 'help-title'}, 'Keyboard'),
    h('table', null, h('tbody', null,
      row(['/'], 'Search'), Object.values(views).filter((v) => v.menu && v.key).map((v) => row(['g', v.key ?? ''], v.menu ?? '')),
      row(['t'], 'Times as dates, and back'), row(['?'], 'This list'), row(['Esc'], 'Close, leave the search'))));
}

/** Listens to the keyboard for as long as the page is there. @param {HTMLElement} main where views are */
export function keyboard(main) {
  let going = 0; // when "g" was pressed
  addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || !main.isConnected) return;
    const at = /** @type {HTMLElement} */ (e.target);
    if (e.key === 'Escape' && at.matches('input[type="search"]')) return at.blur();
    if (at.closest('input:not([type="checkbox"], [type="radio"]), textarea, select, [contenteditable]') || document.querySelector('dialog[open]')) return;
    if (e.timeStamp - going < WAIT && going > 0) {
      going = 0;
      if (go(e.key)) e.preventDefault();
      return;
    }
    switch (e.key) {
      case 'g': going = e.timeStamp; break;
      case 't': switchDates(); break;
      case '?': document.getElementById('help')?.togglePopover(); break;
      case '/':
        e.preventDefault();
        search(main);
    }
  });
}

/** @param {string} key @returns {boolean} whether there is such a view */
function go(key) {
  const found = Object.entries(views).find(([, v]) => v.key === key);
  if (found) location.hash = href(found[0]);
  return Boolean(found);
}

// A view without a search leads to the queues, which most people search for.
/** @param {HTMLElement} main */
function search(main) {
  const field = () => /** @type {HTMLInputElement | null} */ (main.querySelector('[data-search], input[type="search"]'));
  const there = field();
  if (there) {
    there.focus();
    return there.select();
  }
  if (readHash(location.hash).view !== 'queues') location.hash = href('queues');
  const until = performance.now() + WAIT;
  const later = () => {
    const now = field();
    if (now) now.focus();
    else if (performance.now() < until) requestAnimationFrame(later);
  };
  setTimeout(later, 50); // the view that is left has no search
}
