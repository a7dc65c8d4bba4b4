// The login: a form as password managers know it.

import {call, Failure, get} from './api.js';
import {fill, h} from './dom.js';
import {logo} from './frame.js';

/**
 * Returns the view that asks for a name and a password.
 * @param {string} why it is shown; "" = somebody came, or has logged out
 * @param {(user: import('./views.js').User) => void} entered
 */
export function login(why, entered) {
  const name = field('user', 'Username', 'text', 'username'), password = field('password', 'Password', 'password', 'current-password');
  const failed = h('p', {class: 'error', role: 'alert'}), ok = /** @type {HTMLButtonElement} */ (h('button', {type: 'submit', class: 'primary'}, 'Log in'));
  const form = h('form', {method: 'post', action: '/', class: 'card login'},
    h('div', {class: 'brand'}, logo(), h('h1', null, 'Curfew')), why && h('p', {class: 'notice'}, why), name.element, password.element, failed, ok);
  form.addEventListener('submit', async (e) => {
    e.preventDefault();
    if (ok.disabled) return;
    ok.disabled = true;
    fill(failed, '');
    try {
      await call('POST', 'session', {user: name.input.value, password: password.input.value});
      entered(await get('session'));
    } catch (error) {
      refused(error, failed, ok);
      password.input.select();
      password.input.focus();
    }
  });
  return h('main', {class: 'entrance'}, form);
}

/** @param {string} name @param {string} label @param {string} type @param {string} autocomplete */
function field(name, label, type, autocomplete) {
  const input = /** @type {HTMLInputElement} */ (h('input', {id: name, name, type, autocomplete, required: true, autocapitalize: 'none', spellcheck: 'false'}));
  return {input, element: h('div', {class: 'field'}, h('label', {for: name}, label), input)};
}

/**
 * Says why, and lets the person try again as soon as the broker does.
 * @param {unknown} error @param {HTMLElement} failed @param {HTMLButtonElement} ok
 */
function refused(error, failed, ok) {
  const text = error instanceof Error ? error.message : String(error);
  const until = performance.now() + (error instanceof Failure ? error.retry : 0) * 1000;
  const tick = () => {
    const left = Math.ceil((until - performance.now()) / 1000);
    ok.disabled = left > 0;
    if (left > 0) {
      fill(ok, `Log in (in ${left} s)`);
      setTimeout(tick, 250);
    } else fill(ok, 'Log in');
  };
  fill(failed, text + (/localhost/.test(text) ? '. The user guest is for the machine that the broker runs on; over the network, log in as another user.' : ''));
  tick();
}
