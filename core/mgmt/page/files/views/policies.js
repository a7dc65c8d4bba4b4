// Policies: of queues and exchanges, operators' ceilings for them, and expiry policies.

import {Failure, get, remove} from '../api.js';
import {explained, heading, inVHost} from '../blocks.js';
import {destroy} from '../dialog.js';
import {fill, h} from '../dom.js';
import {exact} from '../format.js';
import {href, path} from '../link.js';
import {table} from '../table.js';
import {short} from '../verdict.js';
import {strategies} from './lab/strategies.js';
import {upload} from './lab/upload.js';
import {some} from './lab/used.js';
import {definitionText, editPolicy} from './policies/edit.js';
import {effects} from './policies/effects.js';

/** @type {Record<string, string>} titles by their part of the API's paths */
const KINDS = {policies: 'User policies', 'operator-policies': 'Operator policies'};
const EMPTY = {
  policies: 'There are no policies. A policy sets arguments of all queues whose names match a pattern, also of those that are there.',
  'operator-policies': 'There are no operator policies. They are ceilings: of a user policy\'s value and theirs, the lower one holds.',
};

/** @type {import('../views.js').View} */
export default async function show(main, context) {
  const tags = context.user.tags, may = {policies: tags.includes('policymaker') || tags.includes('administrator'), 'operator-policies': tags.includes('administrator')};
  const vhosts = (await get('vhosts?columns=name', context.signal)).map((/** @type {any} */ v) => v.name);
  const known = await strategies(context.signal), effective = effects(context);
  /** @type {(() => Promise<void>)[]} */
  const loads = [];
  /** @type {(() => void)[]} */
  const counted = [];
  const load = async () => void await Promise.all(loads.map((f) => f()));
  const changed = async () => {
    await effective.load();
    await load();
  };
  const sections = Object.keys(KINDS).map((k) => {
    const kind = /** @type {'policies' | 'operator-policies'} */ (k);
    const failed = h('p', {class: 'error', role: 'alert', hidden: true});
    const edit = (/** @type {any} */ p) => editPolicy({kind, policy: p, vhosts, strategies: known.map((s) => s.name), done: changed});
    const t = table({label: KINDS[kind], key: (p) => p.vhost + '\u0000' + p.name, empty: EMPTY[kind], columns: [
      {title: 'Virtual host', wide: true, cell: (p) => p.vhost}, {title: 'Name', head: true, cell: (p) => [p.name, inVHost(p.vhost, 'narrow')]}, {title: 'Pattern', cell: (p) => h('code', null, p.pattern)},
      {title: 'Apply to', wide: true, cell: (p) => p['apply-to']}, {title: 'Definition', cell: (p) => definitionText(p.definition)}, {title: 'Priority', number: true, cell: (p) => exact(p.priority)},
      {title: 'Queues', number: true, cell: (p) => h('button', {type: 'button', class: 'plain', 'aria-label': `Queues of ${p.name}: ${effective.matches(kind, p)}`, onclick: () => effective.only(kind, p)}, effective.matches(kind, p))},
      {title: 'Actions', cell: (p) => may[kind] && [h('button', {type: 'button', class: 'plain', 'aria-label': `Update ${p.name}`, onclick: () => edit(p)}, 'Update'),
        h('button', {type: 'button', class: 'plain', 'aria-label': `Clear ${p.name}`, onclick: () => drop(kind, p, changed)}, 'Clear')]},
    ]});
    /** @type {any[] | null} */
    let listed = null;
    counted.push(() => listed && t.show(listed));
    loads.push(async () => {
      try {
        listed = (await get(kind, context.signal)).sort((/** @type {any} */ a, /** @type {any} */ b) => b.priority - a.priority || a.name.localeCompare(b.name));
        effective.know(kind, listed ?? []);
        t.show(listed ?? []);
        failed.hidden = true;
      } catch (error) {
        if (context.signal.aborted) return;
        failed.hidden = false;
        fill(failed, error instanceof Error ? error.message : String(error));
      }
    });
    return h('section', {class: 'list'}, h('div', {class: 'head'}, h('h2', null, KINDS[kind]),
      may[kind] ? h('button', {type: 'button', onclick: () => edit(null)}, 'Add / update a policy') : h('span', {class: 'quiet'}, `They are set by users with the tag ${kind === 'policies' ? 'policymaker' : 'administrator'}.`)), failed, t.element);
  });
  const expiry = expirySection(context, loads);
  const strategy = table({label: 'Expiry strategies', key: (s) => s.name, empty: 'No plugin offers a strategy.', columns: [
    {title: 'Strategy', head: true, cell: (s) => [h('a', {href: href('lab', [s.name])}, s.name), s.default && [' ', h('span', {class: 'badge'}, 'default')]]},
    {title: 'Kind', cell: (s) => s.name.startsWith('wasm/') ? 'module' : 'built in'},
    {title: 'Used by', cell: (s) => s.queues === 0 ? h('span', {class: 'quiet'}, 'no queue') : some(s, 3)}, {title: 'Queues', number: true, cell: (s) => exact(s.queues)},
  ]});
  loads.push(async () => strategy.show(await strategies(context.signal)));
  fill(main, heading('Policies', h('a', {href: href('lab')}, 'Lab: simulate a message')), sections, expiry, h('section', {class: 'list'}, h('h2', null, 'Expiry strategies'), strategy.element), effective.element);
  context.every(5000, load);
  effective.follow(() => counted.forEach((show) => show()));
}

/** @param {'policies' | 'operator-policies'} kind @param {any} p @param {() => Promise<void>} done */
function drop(kind, p, done) {
  return destroy({
    title: `Delete the policy ${p.name}`, action: 'Delete', name: p.name, text: `Queues that match ${p.pattern} lose what it sets, or have it from another policy. Their messages get new deadlines.`,
    async done() {
      await remove(path(kind, p.vhost, p.name));
      await done();
    },
  });
}

/** @param {import('../views.js').Context} context @param {(() => Promise<void>)[]} loads */
function expirySection(context, loads) {
  const note = h('p', {class: 'quiet', hidden: true});
  const t = table({label: 'Expiry policies', key: (m) => m.name, empty: 'No module is loaded. An expiry policy is a WebAssembly module that decides when messages expire.', columns: [
    {title: 'Name', head: true, cell: (m) => h('a', {href: href('lab', [m.strategy || m.name])}, m.name)},
    {title: 'Status', cell: (m) => m.shadow ? h('span', {class: 'badge accent'}, `shadow of ${m.shadow.strategy}`) : m.breaker === 'open' ? h('span', {class: 'badge bad'}, 'breaker open')
      : h('span', {class: ['badge', m.loaded ? 'good' : 'bad']}, m.loaded ? 'active' : 'not loaded')},
    {title: 'Digest', wide: true, cell: (m) => explained(h('code', null, short(m.digest)), m.digest)}, {title: 'Messages', number: true, wide: true, cell: (m) => exact(m.shadow ? m.shadow.compared : m.messages)},
    {title: 'Errors', number: true, cell: (m) => exact(Object.values(m.errors ?? {}).reduce((a, b) => a + Number(b), 0))}, {title: 'Differ', number: true, cell: (m) => m.shadow ? exact(m.shadow.differing) : '–'},
    {title: 'Last error', wide: true, cell: (m) => m.last_error || '–'},
  ]});
  const load = async () => {
    try {
      t.show(await get('wasm/policies', context.signal));
    } catch (error) {
      if (!(error instanceof Failure) || error.status === 0) throw error;
      t.element.hidden = true;
      note.hidden = false;
      fill(note, error.status === 401 ? 'They are shown to users with the tag monitoring or administrator.' : error.message);
    }
  };
  loads.push(load);
  const add = async () => upload({beside: '', strategies: (await strategies(context.signal)).map((s) => s.name), done: load});
  return h('section', {class: 'list'}, h('div', {class: 'head'}, h('h2', null, 'Expiry policies'),
    context.user.tags.includes('administrator') && h('button', {type: 'button', onclick: add}, 'Upload .wasm')), note, t.element);
}
