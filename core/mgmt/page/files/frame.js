// The frame around views: the main menu, and the user's menu.

import {remove} from './api.js';
import {h, s} from './dom.js';
import {dateTime} from './format.js';
import {help} from './keys.js';
import {href} from './link.js';
import {setTheme, theme, themes} from './theme.js';
import {views} from './views.js';

/**
 * Returns the frame.
 * @param {import('./views.js').User} user
 * @param {() => void} left called when the person has logged out
 */
export function frame(user, left) {
  const links = Object.entries(views).flatMap(([view, v]) => v.menu ? [h('a', {href: href(view), 'data-view': view}, v.menu)] : []);
  return h('header', {class: 'frame'},
    h('a', {class: 'brand', href: href(''), 'aria-label': 'Curfew: Now'}, logo(), h('span', null, 'Curfew')),
    h('nav', {'aria-label': 'Views'}, links),
    h('div', {class: 'tools'},
      h('button', {type: 'button', class: 'quiet-button', popovertarget: 'help', 'aria-label': 'Keyboard (?)'}, '?'),
      h('button', {type: 'button', class: 'quiet-button who', popovertarget: 'person'}, h('span', null, user.name))),
    help(), person(user, left));
}

/** Returns the logo: a clock just before the hour. */
export function logo() {
  return s('svg', {class: 'logo', viewBox: '0 0 32 32', 'aria-hidden': 'true'},
    s('circle', {cx: 16, cy: 16, r: 14}), s('path', {d: 'M16 7v9l6 4'}));
}

/** @param {import('./views.js').User} user @param {() => void} left */
function person(user, left) {
  const out = async () => {
    try {
      await remove('session');
    } finally {
      left(); // a broker that is gone has forgotten the session
    }
  };
  const choice = h('fieldset', {class: 'choice'}, h('legend', {class: 'quiet small'}, 'Theme'), h('div', {class: 'segments'}, themes.map(([name, text]) =>
    h('label', null, h('input', {type: 'radio', name: 'theme', value: name, checked: theme() === name, onchange: () => setTheme(name)}), h('span', null, text)))));
  return h('div', {class: 'menu', id: 'person', popover: 'auto', role: 'group', 'aria-label': 'You'},
    h('div', null, h('strong', null, user.name), h('div', {class: 'quiet small'}, user.tags.join(', ') || 'no tags')),
    choice,
    h('div', {class: 'quiet small'}, h('div', null, user.cluster_name), h('div', null, 'Curfew ', user.version),
      user.expires_at && h('div', null, 'Logged in until ', dateTime(user.expires_at))),
    h('button', {type: 'button', onclick: out}, 'Log out'));
}

/** Marks in the menu where the person is. @param {string} view */
export function showCurrent(view) {
  for (const a of document.querySelectorAll('.frame nav a')) {
    if (a.getAttribute('data-view') !== view) {
      a.removeAttribute('aria-current');
      continue;
    }
    a.setAttribute('aria-current', 'page');
    const nav = /** @type {HTMLElement} */ (a.parentElement), at = /** @type {HTMLElement} */ (a);
    nav.scrollLeft = at.offsetLeft - nav.offsetLeft - (nav.clientWidth - at.offsetWidth) / 2;
  }
}
