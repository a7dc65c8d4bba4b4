// What each queue ends up with, and why: from its arguments, its policy, and its operator policy.

import {get} from '../../api.js';
import {setting} from '../../blocks.js';
import {fill, h} from '../../dom.js';
import {exact, plural} from '../../format.js';
import {href} from '../../link.js';
import {table} from '../../table.js';

const COLUMNS = 'name,vhost,type,policy,operator_policy,effective_policy_definition,expiry_strategy,arguments';
/** As many pages of 500 queues are looked at. */
const PAGES = 20;

/** @param {import('../../views.js').Context} context */
export function effects(context) {
  /** @type {any[]} */
  let queues = [];
  let complete = true, began = 0;
  /** @type {{kind: string, policy: any} | null} */
  let chosen = null;
  /** @type {Map<string, any>} */
  const policies = new Map();
  const note = h('p', {class: 'quiet'}), clear = h('button', {type: 'button', hidden: true, onclick: () => self.only('', null)}, 'Show all');
  const title = h('h2', {tabindex: '-1'}, 'What queues end up with');
  const list = table({label: 'What queues end up with', key: (q) => q.vhost + '\u0000' + q.name, empty: 'No queue matches a policy.', columns: [
    {title: 'Queue', head: true, cell: (q) => h('a', {href: href('queues', [q.vhost, q.name])}, q.name)}, {title: 'Policy', cell: (q) => q.policy ?? '–'},
    {title: 'Operator policy', wide: true, cell: (q) => q.operator_policy ?? '–'}, {title: 'Effective, and why', cell: (q) => reasons(q, policies)}, {title: 'Strategy', cell: (q) => h('a', {href: href('lab', [q.expiry_strategy])}, q.expiry_strategy || '–')},
  ]});
  const has = (/** @type {any} */ q, /** @type {string} */ kind, /** @type {any} */ p) => q.vhost === p.vhost && q[kind === 'policies' ? 'policy' : 'operator_policy'] === p.name;
  const draw = () => {
    const all = queues.filter((q) => chosen ? has(q, chosen.kind, chosen.policy) : q.policy || q.operator_policy);
    list.show(all.slice(0, 100));
    clear.hidden = !chosen;
    fill(note, chosen ? `${plural(all.length, 'queue')} with the policy ${chosen.policy.name}` : `${plural(all.length, 'queue')} of ${exact(queues.length)} with a policy`,
      all.length > 100 && '; the first 100 are shown', !complete && `; only the first ${exact(PAGES * 500)} queues were looked at`, '.');
  };
  const self = {
    element: h('section', {class: 'list'}, h('div', {class: 'head'}, title, clear), note, list.element),
    /** Loads queues, at most twice a minute: there may be many. */
    async load() {
      for (const kind of ['policies', 'operator-policies']) {
        const all = await get(kind, context.signal).catch(() => []);
        for (const p of all) policies.set(`${kind} ${p.vhost} ${p.name}`, p);
      }
      if (queues.length > 500 && Date.now() - began < 30_000) return;
      began = Date.now();
      /** @type {any[]} */
      const next = [];
      for (let page = 1, last = 1; page <= last; page++) {
        const answer = await get(`queues?page=${page}&page_size=500&columns=${COLUMNS}`, context.signal);
        next.push(...answer.items);
        last = Math.min(answer.page_count, PAGES);
        complete = answer.page_count <= last;
      }
      queues = next;
      draw();
    },
    /** @param {string} kind @param {any} p */
    matches: (kind, p) => exact(queues.filter((q) => has(q, kind, p)).length) + (complete ? '' : '+'),
    /** Shows the queues of one policy. @param {string} kind @param {any} policy null: all */
    only(kind, policy) {
      chosen = policy && {kind, policy};
      draw();
      if (policy) title.focus();
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
      key in user && key in operator && JSON.stringify(user[key]) !== JSON.stringify(operator[key]) && ` (user ${JSON.stringify(user[key])}, operator ${JSON.stringify(operator[key])})`,
      argument !== undefined && `; the queue's argument is ${JSON.stringify(argument)}${typeof argument === 'number' && typeof value === 'number' ? `, so ${Math.min(argument, value)} holds` : ''}`));
  });
}
