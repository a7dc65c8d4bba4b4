// The form of a policy.

import {put} from '../../api.js';
import {setting} from '../../blocks.js';
import {ask} from '../../dialog.js';
import {h} from '../../dom.js';
import {path} from '../../link.js';
import {typed} from '../../typed.js';
import {queueArguments} from '../queues/arguments.js';

/** Arguments that policies cannot set. */
const DECLARED = ['x-max-priority', 'x-single-active-consumer', 'x-queue-type'];
/** Keys that operator policies have. */
const CEILINGS = ['message-ttl', 'expires', 'max-length', 'max-length-bytes', 'delivery-limit', 'delivery-lease', 'expiry-strategy'];

/** @param {string} kind @param {string[]} strategies @returns {import('../../typed.js').Known[]} */
function keys(kind, strategies) {
  const all = queueArguments.filter((a) => !DECLARED.includes(a.name)).map((a) => ({...a, name: a.name.replace(/^x-/, ''), hint: a.hint.replace('x-', '')}));
  const chosen = all.map((k) => k.name === 'expiry-strategy' ? {...k, options: strategies} : k);
  const exchanges = {name: 'alternate-exchange', type: /** @type {const} */ ('String'), title: 'Alternate exchange', hint: 'gets what an exchange routes to no queue'};
  return kind === 'policies' ? [...chosen, exchanges] : chosen.filter((k) => CEILINGS.includes(k.name));
}

/**
 * @param {object} o
 * @param {'policies' | 'operator-policies'} o.kind
 * @param {any} o.policy to change; null: a new one
 * @param {string[]} o.vhosts
 * @param {string[]} o.strategies
 * @param {() => Promise<void>} o.done
 */
export function editPolicy({kind, policy, vhosts, strategies, done}) {
  return ask({
    title: policy ? `Update ${policy.name}` : kind === 'policies' ? 'Add / update a policy' : 'Add / update an operator policy', action: 'Add / update policy',
    fields: [
      ...policy ? [] : [{name: 'vhost', label: 'Virtual host', type: /** @type {const} */ ('select'), options: vhosts}, {name: 'name', label: 'Name', required: true}],
      {name: 'pattern', label: 'Pattern', value: policy?.pattern ?? '', required: true, hint: 'a regular expression for names, such as ^jobs\\.'},
      {name: 'apply', label: 'Apply to', type: 'select', value: policy?.['apply-to'] ?? (kind === 'policies' ? 'all' : 'queues'),
        options: kind === 'policies' ? [['all', 'Exchanges and queues'], ['exchanges', 'Exchanges'], ['queues', 'Queues'], ['classic_queues', 'Classic queues'], ['quorum_queues', 'Quorum queues']]
          : [['queues', 'Queues'], ['classic_queues', 'Classic queues'], ['quorum_queues', 'Quorum queues']]},
      {name: 'priority', label: 'Priority', type: 'number', value: policy?.priority ?? 0, hint: 'of several policies that match, the one with the highest applies'},
      {name: 'definition', label: 'Definition', control: typed({noun: 'key', known: keys(kind, strategies), values: policy?.definition})},
    ],
    async done(v) {
      await put(path(kind, policy?.vhost ?? v.vhost, policy?.name ?? v.name), {pattern: v.pattern, 'apply-to': v.apply, priority: v.priority ?? 0, definition: v.definition});
      await done();
    },
  });
}

/** Returns a definition in words. @param {Record<string, any>} definition */
export function definitionText(definition) {
  const pairs = Object.entries(definition ?? {});
  if (pairs.length === 0) return h('span', {class: 'quiet'}, '–');
  return pairs.map(([k, v]) => h('div', {class: 'setting'}, h('code', null, k), ': ', setting(k, v)));
}
