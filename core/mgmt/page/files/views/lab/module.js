// A policy in WebAssembly: its properties, and the actions on it.

import {post, remove} from '../../api.js';
import {explained, facts, orDash} from '../../blocks.js';
import {ask, destroy, say} from '../../dialog.js';
import {h} from '../../dom.js';
import {bytes, count, duration, exact, plural} from '../../format.js';
import {href, path} from '../../link.js';
import {short} from '../../verdict.js';
import {some} from './used.js';

/** @param {any} m as the API has it @param {Node} used says which queues use it */
export function moduleCard(m, used) {
  const errors = Object.entries(m.errors ?? {}).filter(([, n]) => Number(n) > 0);
  return h('section', {class: 'card'}, h('h2', null, 'Module'), used,
    m.last_error && h('p', {class: 'error'}, 'Last error: ', m.last_error),
    m.rolled_back && h('p', {class: 'error'}, `Version ${short(m.rolled_back)} failed too often, and was rolled back. `, m.rolled_back_for),
    (m.warnings ?? []).map((/** @type {string} */ w) => h('p', {class: 'note'}, w)),
    h('div', {class: 'halves'},
      facts([
        ['Digest', explained(h('code', null, short(m.digest)), m.digest)], ['Origin', m.path ? `${m.origin}: ${m.path}` : m.origin], ['Size', bytes(m.size)],
        ['Hooks', orDash((m.hooks ?? []).join(', '))], ['Grants', orDash((m.grants ?? []).join(', '))], ['Imports', orDash((m.imports ?? []).join(', '))],
        ['On error', m.on_error], !!m.previous && ['Version before', explained(h('code', null, short(m.previous)), m.previous)],
        ['Config', m.config ? h('pre', null, JSON.stringify(m.config, null, 2)) : orDash('')],
      ]),
      facts([
        ['Breaker', h('span', {class: ['badge', m.breaker === 'open' ? 'bad' : 'good']}, m.breaker || '–')], ['Calls', count(m.calls)], ['Messages', count(m.messages)],
        ['Errors', errors.length === 0 ? 'none' : errors.map(([kind, n]) => `${kind} ${exact(Number(n))}`).join(', ')],
        ['Fuel', `${m.fuel}: at most ${exact(m.max_fuel)} a call`], ['Used', `${exact(m.fuel_per_call)} at most, ${m.calls ? exact(Math.round(m.fuel_used / m.calls)) : '–'} on average a call`],
        ['Longest pause', duration(m.worst_pause / 1e6)], ['Instances', `${m.instances} of ${m.slots}, ${bytes(m.memory)}`],
        m.undecided > 0 && ['Undecided', `${exact(m.undecided)} messages came while it failed`],
        Object.keys(m.counters ?? {}).length > 0 && ['Counters', Object.entries(m.counters).map(([k, v]) => `${k} ${v}`).join(', ')],
      ])));
}

/**
 * Returns the buttons for a policy.
 * @param {any} m
 * @param {import('./strategies.js').Strategy[]} known
 * @param {() => Promise<void>} done
 * @returns {HTMLElement[]}
 */
export function actions(m, known, done) {
  const at = path('wasm', 'policies', m.name);
  const change = (/** @type {string} */ verb, /** @type {string} */ title, /** @type {string} */ text, /** @type {string} */ said) => ask({
    title, text, action: title, fields: [{name: 'recompute', label: 'New deadlines for queued messages', type: 'checkbox', hint: 'without it, they keep those that they have'}],
    async done({recompute}) {
      const answer = await post(`${at}/${verb}`, {recompute});
      say([said, ...(answer?.warnings ?? []).map((/** @type {string} */ w) => h('p', null, w))]);
      await done();
    },
  });
  const button = (/** @type {string} */ text, /** @type {() => any} */ onclick, style = '') => h('button', {type: 'button', class: style || null, onclick}, text);
  const use = known.find((s) => s.name === m.strategy && s.queues > 0);
  const unload = () => destroy({
    title: `Unload ${m.name}`, action: 'Unload', name: m.name,
    text: m.shadow ? 'The shadow ends. No queue is affected.' : !use ? 'No queue uses it.'
      : [`${plural(use.queues, 'queue')} will have the default strategy until it is loaded again: `, h('strong', null, some(use, 20)), '. Messages keep their deadlines.'],
    async done() {
      await remove(at + (use ? '?force=true' : ''));
      location.hash = href('policies');
    },
  });
  return [
    ...m.shadow ? [button('Activate', () => change('activate', 'Activate the shadow',
      m.shadow.strategy.startsWith('wasm/') ? `It becomes the next version of ${m.shadow.strategy}: its queues use it from then on.` : `It becomes the strategy wasm/${m.name}, which queues can choose. Those of ${m.shadow.strategy} stay as they are.`, 'The shadow was activated.'), 'primary')] : [],
    button('Reload', () => change('reload', 'Reload', m.path ? `It is read again from ${m.path}.` : 'It is made anew from the module that is stored; its counts start at zero.', 'The module was loaded again.')),
    ...m.previous ? [button('Back', () => change('back', 'Go back', `The version before, ${short(m.previous)}, is put in force again.`, 'The version before is in force.'))] : [],
    ...m.origin === 'configuration' ? [] : [button('Unload', unload)],
  ];
}
