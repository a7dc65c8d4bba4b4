// Lab: a policy in WebAssembly or a strategy, the decisions of its shadow, and simulations of a message.

import {Failure, get} from '../api.js';
import {section} from '../blocks.js';
import {fill, h} from '../dom.js';
import {href} from '../link.js';
import {differences} from './lab/differences.js';
import {actions, moduleCard} from './lab/module.js';
import {simulator} from './lab/simulator.js';
import {strategies, strategyOf} from './lab/strategies.js';
import {usedBy} from './lab/used.js';
import {upload} from './lab/upload.js';

/** @type {import('../views.js').View} */
export default async function show(main, context) {
  const title = context.parts[0] ?? '', admin = context.user.tags.includes('administrator');
  const all = await modules(context);
  const named = (/** @type {any} */ m) => title !== '' && (m.name === title || m.strategy === title); // a shadow has no strategy of its own
  const own = all.list.find(named);
  const strategy = own?.shadow?.strategy ?? own?.strategy ?? title;
  const head = h('div', {class: 'head'}), card = h('div', {class: 'view'}), beside = h('div', {class: 'view'}), used = h('p');
  let known = await strategies(context.signal);
  const names = known.map((s) => s.name);
  fill(head, h('h1', null, title || 'Lab'));
  fill(main, head, all.problem && h('p', {class: 'empty'}, all.problem), card, beside,
    simulator(context, {strategies: choices(names, all.list), strategy: own?.shadow || !names.includes(strategy) ? '' : strategy}));
  const shadows = differences(context);
  const load = async () => {
    const {list} = await modules(context);
    known = await strategies(context.signal);
    const m = list.find(named);
    if (own && !m) location.hash = href('lab', [strategy]); // it was unloaded or activated
    const shadow = m?.shadow ? m : title !== '' && list.find((it) => it.shadow?.strategy === strategy);
    fill(head, h('h1', null, title || 'Lab'), h('div', {class: 'bar'}, badges(m), ...admin && m ? actions(m, known, load) : [],
      admin && !all.problem && h('button', {type: 'button', onclick: () => upload({beside: strategy, strategies: names, done: load})}, 'Upload .wasm')));
    fill(card, m ? moduleCard(m, used) : title === '' ? index(known, list) : used);
    fill(used, usedBy(known.find((s) => s.name === strategy), strategy));
    if (shadow && shadows.of !== shadow.name) fill(beside, shadows.element);
    else if (!shadow && !shadows.of) fill(beside, title !== '' && !all.problem && h('p', {class: 'quiet'}, `${strategy} has no shadow. Upload a module to run it beside without effect.`));
    if (shadow) await shadows.load(shadow);
  };
  context.every(5000, load);
}

/** @param {any} m */
function badges(m) {
  if (!m) return null;
  return [m.shadow ? h('span', {class: 'badge accent'}, 'shadow of ', m.shadow.strategy) : h('span', {class: ['badge', m.loaded ? 'good' : 'bad']}, m.loaded ? 'active' : 'not loaded'),
    m.breaker === 'open' && h('span', {class: 'badge bad'}, 'breaker open')];
}

/**
 * Loads the policies; problem says why there are none.
 * @param {import('../views.js').Context} context
 * @returns {Promise<{list: any[], problem: string | null}>}
 */
async function modules(context) {
  try {
    return {list: await get('wasm/policies', context.signal), problem: null};
  } catch (error) {
    if (error instanceof Failure && error.status !== 0) return {list: [], problem: error.status === 401 ? 'Policies are shown to users with the tag monitoring or administrator.' : error.message};
    throw error;
  }
}

/** @param {string[]} strategies @param {any[]} list @returns {[string, string][]} */
function choices(strategies, list) {
  return [['', 'as the queue has it'], ...strategies.map((s) => /** @type {[string, string]} */ ([s, s])),
    ...list.filter((m) => m.shadow).map((m) => /** @type {[string, string]} */ (['module:' + m.name, `${m.name}, as if it were activated`]))];
}

/** @param {import('./lab/strategies.js').Strategy[]} known @param {any[]} list */
function index(known, list) {
  const names = [...new Set([...known.map((s) => s.name), ...list.map((m) => strategyOf(m))])];
  return section('Strategies', h('p', {class: 'quiet'}, 'What decides when messages expire: which queues have it, what a shadow beside it says, what it would do with a message.'),
    h('ul', {class: 'bar'}, names.map((n) => h('li', null, h('a', {href: href('lab', [n])}, n)))));
}
