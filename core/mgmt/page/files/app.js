// Starts the page: the login, the frame around views, and the view that the address names.

import {access} from './access.js';
import {connection, Failure, get} from './api.js';
import {watch} from './banner.js';
import {setAside} from './dialog.js';
import {fill, h} from './dom.js';
import {frame, showCurrent} from './frame.js';
import {keyboard} from './keys.js';
import {href, readHash} from './link.js';
import {follow} from './live.js';
import {login} from './login.js';
import {applyTheme} from './theme.js';
import {views} from './views.js';

/** @type {AbortController | null} ends everything that the present view has begun */
let shown = null;
/** @type {import('./views.js').User | null} the user that is logged in */
let user = null;

/** @type {{user: string, dialogs: ReturnType<typeof setAside>} | null} the user's open dialogs when the login ended */
let aside = null;

const main = h('main', {id: 'main', tabindex: '-1'});
const vhosts = access();
const banner = watch({back, lost: ended});

/** Logs in if need be, and shows the view that the address names. */
async function start() {
  applyTheme();
  addEventListener('hashchange', () => user && show(true));
  connection.addEventListener('logout', ended);
  keyboard(main);
  try {
    enter(await get('session'));
  } catch (error) {
    leave(error instanceof Failure && error.status === 401 ? '' : String(error instanceof Error ? error.message : error));
  }
}

/** @param {import('./views.js').User} who */
function enter(who) {
  user = who;
  fill(document.body, h('a', {class: 'skip', href: '#main', onclick: skip}, 'Skip to content'), frame(who, () => leave('')), banner.element, vhosts.element, main);
  banner.start();
  void vhosts.look(who);
  const then = aside;
  aside = null;
  if (then?.user !== who.name) then?.dialogs.close();
  void show(false).then(() => {
    setTimeout(preload, 1000);
    if (then?.user === who.name) then.dialogs.back();
  });
}

/** @param {Event} e */
function skip(e) {
  e.preventDefault(); // the address is the view's
  main.focus();
}

// Sessions are in the broker's memory.
function ended() {
  if (user) leave(banner.isDown() ? 'The broker was restarted. Log in again, and you are where you were.' : 'Your login has ended.');
}

/** Ends the present view, and asks for a login. @param {string} why */
function leave(why) {
  shown?.abort();
  const dialogs = setAside();
  if (user && why) aside = {user: user.name, dialogs};
  else dialogs.close();
  user = null;
  banner.stop();
  document.title = 'Log in · Curfew';
  fill(document.body, login(why, enter));
  document.querySelector('input')?.focus();
}

/** Shows the view again: the broker was gone, and its state may have changed. @param {import('./views.js').User} who */
function back(who) {
  if (!user) return;
  user = who;
  void show(false);
}

// The views that are not shown yet are fetched beforehand, so that the menu goes on working while the broker is gone.
async function preload() {
  for (const view of Object.values(views)) await view.load().catch(() => {});
}

/** @param {boolean} moved somebody went there, so that the keyboard goes along */
async function show(moved) {
  shown?.abort();
  const mine = shown = new AbortController();
  const {view, parts, query} = readHash(location.hash);
  const entry = Object.hasOwn(views, view) ? views[view] : undefined;
  showCurrent(entry?.of ?? view);
  if (moved) scrollTo(0, 0);
  if (moved && !vhosts.element.hidden && user) void vhosts.look(user); // somebody may have given permissions
  try {
    const render = entry ? (await entry.load()).default : nowhere;
    if (mine.signal.aborted) return;
    fill(main);
    await render(main, contextOf(mine.signal, parts, query));
  } catch (error) {
    if (mine.signal.aborted) return;
    fail(error);
  }
  if (mine.signal.aborted) return;
  document.title = (main.querySelector('h1')?.textContent || entry?.menu || 'Curfew') + ' · Curfew';
  if (moved) main.focus({preventScroll: true});
}

/** @param {AbortSignal} signal @param {string[]} parts @param {URLSearchParams} query @returns {import('./views.js').Context} */
function contextOf(signal, parts, query) {
  return {
    parts, query, signal, user: /** @type {import('./views.js').User} */ (user),
    live: (name, q, fn, refused) => follow(name, q, fn, signal, refused),
    every: (ms, load) => void every(ms, load, signal),
    replace,
  };
}

/** @param {HTMLElement} main */
function nowhere(main) {
  main.append(h('h1', null, 'There is no such view'), h('p', null, h('a', {href: href('')}, 'To the first one')));
}

/** Says in place of a view why it cannot be shown. @param {unknown} error */
function fail(error) {
  console.error(error);
  fill(main, h('h1', null, 'This view cannot be shown'), h('div', {class: 'card'},
    h('p', {class: 'error', role: 'alert'}, error instanceof Error ? error.message : String(error)),
    h('div', null, h('button', {type: 'button', onclick: () => show(false)}, 'Try again'))));
}

/** @param {number} ms @param {() => Promise<void> | void} load @param {AbortSignal} signal */
async function every(ms, load, signal) {
  const failed = h('p', {class: 'error', role: 'alert'});
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        await load();
        failed.remove();
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof Failure)) console.error(error);
        if (!(error instanceof Failure && error.status === 0)) main.append(fill(failed, error instanceof Error ? error.message : String(error)));
      }
    }
    await new Promise((done) => setTimeout(done, ms));
  }
}

/** @param {Record<string, string | number | null>} changes */
function replace(changes) {
  const {view, parts, query} = readHash(location.hash);
  history.replaceState(null, '', href(view, parts, {...Object.fromEntries(query), ...changes}));
}

void start();
