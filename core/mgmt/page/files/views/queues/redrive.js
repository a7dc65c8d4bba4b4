// Moving messages back to their origin, or elsewhere, after a look at the plan.

import {get, post, remove} from '../../api.js';
import {ask, say} from '../../dialog.js';
import {fill, h, keyed} from '../../dom.js';
import {exact, plural, rate} from '../../format.js';
import {href, path} from '../../link.js';
import {button} from '../../blocks.js';

/** @typedef {{to?: string, queue?: string, exchange?: string, key?: string, reason?: string, where?: string, message_id?: string, older?: number | null, count?: number | null, per_second?: number | null}} Values of the form */

const REASONS = ['expired', 'rejected', 'maxlen', 'delivery_limit', 'queue_expired', 'too_large'];

/** The meanings of a redrive's failures. @type {Record<string, string>} */
const FAILURES = {
  no_death: 'have no x-death of this broker: where they came from is unknown', no_permission: 'may not be published there by you', no_queue: 'have no queue to go to any more',
  no_exchange: 'have no exchange to go to any more', unroutable: 'would be routed to no queue', filtered: 'are filtered out', refused: 'are refused by their target', target_stopped: 'have a target that is stopped',
};

/**
 * Asks for messages and target, shows the plan of a dry run, and begins.
 * @param {import('./detail.js').Tab} tab
 * @param {Values} values that the form begins with
 */
export async function redrive(tab, values) {
  /** @type {any} */
  let plan = null, body = null;
  for (;;) {
    const asked = await ask({
      title: values.to === 'queue' ? 'Move messages' : 'Redrive', action: 'Dry run', fields: fields(tab, values),
      text: `Ready messages of the queue ${tab.name} are moved. Nothing is moved before you have seen what would be.`,
      async done(v) {
        values = v;
        body = request(v);
        plan = await post(path('queues', tab.vhost, tab.name, 'redrive'), {...body, dry_run: true});
      },
    });
    if (!asked) return;
    if (await confirmed(tab, plan, body)) return;
  }
}

/** @param {import('./detail.js').Tab} tab @param {any} plan @param {any} body */
function confirmed(tab, plan, body) {
  const moved = plan.targets.reduce((/** @type {number} */ n, /** @type {any} */ t) => n + t.messages, 0), many = Math.min(moved, body.count ?? moved);
  return ask({
    title: moved ? `Move ${plural(many, 'message')}?` : 'Nothing would be moved', action: moved ? `Move ${plural(many, 'message')}` : null, cancel: 'Back',
    text: outcome(plan, body),
    async done() {
      await post(path('queues', tab.vhost, tab.name, 'redrive'), body);
      say(['The redrive has begun. ', h('a', {href: href('queues', [tab.vhost, tab.name], {tab: 'dead-letters'})}, 'Its progress')]);
    },
  });
}

/** @param {any} plan @param {any} body */
function outcome(plan, body) {
  const failed = Object.entries(plan.failed);
  return [
    h('p', null, `${plural(plan.messages, 'message')} ${plan.messages === 1 ? 'is' : 'are'} meant`, !plan.complete && ', as far as the dry run looked in two seconds', body.count && `, of which ${exact(body.count)} at most are moved`, '.'),
    plan.targets.length > 0 && h('div', {class: 'table plain'}, h('table', null, h('caption', {class: 'unseen'}, 'Targets'),
      h('thead', null, h('tr', null, h('th', {scope: 'col'}, 'To'), h('th', {scope: 'col', class: 'number'}, 'Messages'))),
      h('tbody', null, plan.targets.map((/** @type {any} */ t) => h('tr', null, h('th', {scope: 'row'}, target(t)), h('td', {class: 'number'}, exact(t.messages))))))),
    failed.length > 0 && h('ul', {class: 'deaths'}, failed.map(([why, n]) => h('li', null, exact(Number(n)), ' ', FAILURES[why] ?? why, ' and would stay'))),
  ];
}

/** @param {any} t */
const target = (t) => t.others ? 'others' : t.exchange !== undefined ? `exchange ${t.exchange || '(AMQP default)'}` : `queue ${t.queue}`;

/** @param {import('./detail.js').Tab} tab @param {Values} v @returns {import('../../dialog.js').Field[]} */
function fields(tab, v) {
  return [
    {name: 'to', label: 'To', type: 'select', value: v.to, options: [['source', 'source: the queue where each message died'], ['origin', 'origin: the exchange it was first published to'], ['queue', 'queue'], ['exchange', 'exchange']]},
    {name: 'queue', label: 'Queue', value: v.queue, required: true, when: ({to}) => to === 'queue', suggest: (text) => suggestions(tab, text)},
    {name: 'exchange', label: 'Exchange', value: v.exchange, when: ({to}) => to === 'exchange', hint: 'empty: the default exchange'},
    {name: 'key', label: 'Routing key', value: v.key, when: ({to}) => to === 'exchange', hint: 'empty: each message\'s own'},
    {name: 'reason', label: 'Only those with the reason', type: 'select', value: v.reason ?? '', options: [['', 'any'], ...REASONS]},
    {name: 'where', label: 'Only those that died in the queue', value: v.where},
    {name: 'message_id', label: 'Only those with the message id', value: v.message_id},
    {name: 'older', label: 'Only those in this queue for longer than', type: 'number', value: v.older, hint: 'seconds'},
    {name: 'count', label: 'At most', type: 'number', value: v.count, hint: 'messages; empty: all that are there now'},
    {name: 'per_second', label: 'Not faster than', type: 'number', value: v.per_second, hint: 'messages per second, up to 1,000,000; empty: as fast as their targets take them'},
  ];
}

/** @param {import('./detail.js').Tab} tab @param {string} text */
async function suggestions({vhost, name}, text) {
  const {items} = await get(path('queues', vhost) + '?' + new URLSearchParams({columns: 'name', page: '1', page_size: '20', name: text}));
  return items.map((/** @type {{name: string}} */ q) => q.name).filter((/** @type {string} */ n) => n !== name);
}

/** @param {Values} v */
function request(v) {
  const to = v.to === 'queue' ? {queue: v.queue} : v.to === 'exchange' ? {exchange: v.exchange || 'amq.default', ...v.key && {routing_key: v.key}} : v.to;
  const where = {...v.reason && {reason: v.reason}, ...v.where && {queue: v.where}, ...v.message_id && {message_id: v.message_id}, ...v.older != null && {older_than_ms: Math.round(v.older * 1000)}};
  return {to, where, ...v.count != null && {count: v.count}, ...v.per_second != null && {per_second: v.per_second}};
}

/**
 * Returns a list of the redrives of a queue with their progress.
 * @param {import('./detail.js').Tab} tab
 */
export function redrives(tab) {
  const place = h('ul', {class: 'redrives'}), element = h('section', {class: 'card', hidden: true}, h('h2', null, 'Redrives'), place);
  const load = async () => {
    const all = await get('redrives', tab.context.signal).catch(() => []);
    const mine = all.filter((/** @type {any} */ r) => r.vhost === tab.vhost && r.queue === tab.name);
    element.hidden = mine.length === 0;
    keyed(place, mine, (r) => r.id, (r) => fill(h('li'), ...progress(r, load)), (li, r) => {
      if (!li.contains(document.activeElement) || r.state !== 'running') fill(li, ...progress(r, load));
    });
  };
  tab.context.every(1000, load);
  return element;
}

/** @param {any} r @param {() => Promise<void>} load */
function progress(r, load) {
  const failed = Object.entries(r.failed), running = r.state === 'running';
  return [
    h('div', {class: 'bar'}, h('span', {class: ['badge', {done: 'good', failed: 'bad', running: 'accent'}[/** @type {string} */ (r.state)]]}, r.state),
      h('span', null, 'to ', typeof r.to === 'string' ? r.to : target(r.to)), h('span', {class: 'quiet'}, `${exact(r.moved)} of ${plural(r.total, 'message')}, ${rate(r.rate)}`),
      button(running ? 'Cancel' : 'Forget', () => remove(path('redrives', r.id)).then(load, (e) => say(e.message)), 'plain')),
    running && h('progress', {max: Math.max(1, r.total), value: r.moved, 'aria-label': 'moved'}),
    r.reason && h('p', {class: 'error'}, r.reason),
    failed.length > 0 && h('p', {class: 'quiet small'}, failed.map(([why, n]) => `${exact(Number(n))} ${FAILURES[why] ?? why}`).join('; ')),
  ];
}
