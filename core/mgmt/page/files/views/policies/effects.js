// The effective settings of each queue, and their origins: its arguments, its policy, its operator policy.

import {get} from '../../api.js';
import {inVHost, setting} from '../../blocks.js';
import {fill, h} from '../../dom.js';
import {exact, plural} from '../../format.js';
import {href} from '../../link.js';
import {table} from '../../table.js';

/** As often are queues counted, in ms: there may be many. */
const EVERY = 30_000;

/** @param {import('../../views.js').Context} context */
export function effects(context) {
  /** The answer of GET /api/policy-use. @type {{queues: number, matching: number, policies: any[], some: any[]} | null} */
  let use = null;
  let asked = 0;
  /** @type {{kind: string, policy: any} | null} */
  let chosen = null;
  /** @type {Map<string, any>} */
  const policies = new Map();
  const note = h('p', {class: 'quiet'}), clear = h('button', {type: 'button', hidden: true, onclick: () => self.only('', null)}, 'Show all');
  const title = h('h2', {tabindex: '-1'}, 'What queues end up with');
  const list = table({label: 'What queues end up with', key: (q) => q.vhost + '\u0000' + q.name, empty: 'No queue matches a policy.', columns: [
    {title: 'Queue', head: true, cell: (q) => [h('a', {href: href('queues', [q.vhost, q.name])}, q.name), inVHost(q.vhost)]}, {title: 'Policy', cell: (q) => q.policy ?? '–'},
    {title: 'Operator policy', wide: true, cell: (q) => q.operator_policy ?? '–'}, {title: 'Effective, and why', cell: (q) => reasons(q, policies)}, {title: 'Strategy', cell: (q) => h('a', {href: href('lab', [q.expiry_strategy])}, q.expiry_strategy || '–')},
  ]});
  /** @param {boolean} [anew] the table is about something else from now on */
  const count = async (anew) => {
    const mine = ++asked;
    const q = chosen && {vhost: chosen.policy.vhost, [chosen.kind === 'policies' ? 'policy' : 'operator_policy']: chosen.policy.name};
    const next = await get('policy-use?' + new URLSearchParams(q ?? {}), context.signal);
    if (mine !== asked) return; // something else was asked for since
    const vhost = chosen?.policy.vhost;
    use = vhost && use ? {...next, queues: use.queues, policies: use.policies.filter((u) => u.vhost !== vhost).concat(next.policies)} : next;
    draw();
    if (anew) title.focus();
  };
  const draw = () => {
    if (!use) return;
    const {queues, matching, some} = use;
    list.show(some);
    clear.hidden = !chosen;
    fill(note, chosen ? `${plural(matching, 'queue')} with the policy ${chosen.policy.name}` : `${plural(matching, 'queue')} of ${exact(queues)} with a policy`,
      matching > some.length && `; the first ${some.length} are shown`, '.');
  };
  const self = {
    element: h('section', {class: 'list'}, h('div', {class: 'head'}, title, clear), note, list.element),
    /** Counts the queues of each policy, and goes on to. @param {() => void} shown is called after each time */
    follow(shown) {
      context.every(EVERY, async () => {
        await self.load();
        shown();
      });
    },
    load: () => count(),
    /** Takes a list of the API. @param {string} kind @param {any[]} all */
    know(kind, all) {
      for (const p of all) policies.set(`${kind} ${p.vhost} ${p.name}`, p);
    },
    /** Says how many queues have a policy. @param {string} kind @param {any} p */
    matches(kind, p) {
      if (!use) return '–';
      const of = use.policies.find((u) => u.vhost === p.vhost && u.name === p.name && u.operator === (kind !== 'policies'));
      return exact(of?.queues ?? 0);
    },
    /** Shows the queues of one policy. @param {string} kind @param {any} policy null: all */
    only(kind, policy) {
      chosen = policy && {kind, policy};
      void count(!!policy).catch((error) => context.signal.aborted || fill(note, error.message));
    },
  };
  return self;
}

/** @param {any} q @param {Map<string, any>} policies */
function reasons(q, policies) {
  const user = policies.get(`policies ${q.vhost} ${q.policy}`)?.definition ?? {}, operator = policies.get(`operator-policies ${q.vhost} ${q.operator_policy}`)?.definition ?? {};
  const pairs = Object.entries(q.effective_policy_definition ?? {});
  if (pairs.length === 0) return h('span', {class: 'quiet'}, 'nothing');
  return pairs.map(([key, value]) => {
    const argument = q.arguments?.['x-' + key], same = JSON.stringify(value);
    const from = [JSON.stringify(user[key]) === same && `policy ${q.policy}`, JSON.stringify(operator[key]) === same && `operator policy ${q.operator_policy}`].filter(Boolean).join(' and ');
    return h('div', {class: 'setting'}, h('code', null, key), ': ', setting(key, value), h('small', {class: 'quiet'}, from && ` by ${from}`,
      key in user && key in operator && JSON.stringify(user[key]) !== JSON.stringify(operator[key]) && [' (user ', setting(key, user[key]), ', operator ', setting(key, operator[key]), ')'],
      argument !== undefined && ['; the queue\'s argument is ', setting(key, argument), typeof argument === 'number' && typeof value === 'number' && [', so ', setting(key, Math.min(argument, value)), ' holds']]));
  });
}
