// One queue: its numbers, and a tab for each thing one asks about it.

import {remove} from '../../api.js';
import {explained} from '../../blocks.js';
import {observe, until} from '../../clock.js';
import {destroy, say} from '../../dialog.js';
import {fill, h, keyed, renew, visible} from '../../dom.js';
import {count, exact, plural, rate} from '../../format.js';
import {href, path} from '../../link.js';
import {publish} from '../../publish.js';
import {features, state} from './features.js';

/**
 * The parameter of a tab.
 * @typedef {object} Tab
 * @property {import('../../views.js').Context} context
 * @property {string} vhost
 * @property {string} name
 * @property {(show: (queue: any) => void) => void} follow calls show with the API's object of the queue, now and after each change
 * @property {() => any} queue the last such object; null = none yet
 */

/** @type {Record<string, {title: string, load: () => Promise<{default: (main: HTMLElement, tab: Tab) => void}>}>} */
const tabs = {
  deadlines: {title: 'Deadlines', load: () => import('./deadlines.js')},
  messages: {title: 'Messages', load: () => import('./messages.js')},
  'dead-letters': {title: 'Dead letters', load: () => import('./deadletters.js')},
  consumers: {title: 'Consumers', load: () => import('./consumers.js')},
  bindings: {title: 'Bindings', load: () => import('./bindings.js')},
  settings: {title: 'Settings', load: () => import('./settings.js')},
};

/** @type {{key: string, queue: any}} the queue that was shown last: another tab of it begins with this object */
let last = {key: '', queue: null};

/** @type {import('../../views.js').View} */
export default async function show(main, context) {
  const [vhost, name] = context.parts, key = vhost + '\u0000' + name;
  const chosen = context.query.get('tab') ?? '', current = Object.hasOwn(tabs, chosen) ? chosen : 'deadlines';
  document.title = `${visible(name)} · Curfew`;
  const followers = /** @type {((q: any) => void)[]} */ ([]);
  let queue = last.key === key ? last.queue : null;
  const {element: head, show: showHead} = header(vhost, name, () => queue);
  const failed = h('p', {class: 'error', role: 'alert', hidden: true}), body = h('div', {class: 'list'});
  const menu = nav(vhost, name, current);
  main.append(head, failed, menu, body);
  menu.scrollLeft = (/** @type {HTMLElement} */ (menu.querySelector('[aria-current]'))).offsetLeft - menu.offsetLeft - 16;

  const take = (/** @type {any} */ q) => {
    queue = q;
    observe(q.deadlines.at);
    last = {key, queue};
    failed.hidden = true;
    showHead(q);
    for (const f of followers) f(q);
  };
  const refused = (/** @type {import('../../api.js').Failure} */ error) => {
    const missing = error.status === 404, why = missing ? `There is no queue ${name} in the virtual host ${vhost}${queue ? ' any more' : ''}.` : error.message;
    failed.hidden = false;
    fill(failed, why);
    if (!missing || queue) return;
    leave();
    fill(main, h('h1', null, name), h('div', {class: 'card empty'}, h('p', {role: 'alert'}, why), h('a', {href: href('queues')}, 'All queues')));
  };
  const tab = {context, vhost, name, queue: () => queue, follow: (/** @type {(q: any) => void} */ f) => {
    followers.push(f);
    if (queue) f(queue);
  }};
  if (queue) showHead(queue);
  let leave = () => {};
  await new Promise((/** @type {(value?: any) => void} */ told) => {
    context.signal.addEventListener('abort', told);
    leave = context.live('queue', {vhost, queue: name}, (q) => told(take(q)), (error) => told(refused(error)));
    if (queue) told();
  });
  if (queue && !context.signal.aborted) (await tabs[current].load()).default(body, tab); // without one, it is said why
}

/** @param {string} vhost @param {string} name @param {string} current */
function nav(vhost, name, current) {
  return h('nav', {class: 'tabs', 'aria-label': 'Parts of the queue'}, Object.entries(tabs).map(([tab, {title}]) =>
    h('a', {href: href('queues', [vhost, name], {tab: tab === 'deadlines' ? null : tab}), 'aria-current': tab === current && 'page'}, title)));
}

/** @param {string} vhost @param {string} name @param {() => any} queue */
function header(vhost, name, queue) {
  const badges = h('div', {class: 'bar'}), stats = h('dl', {class: 'grid strip'});
  const buttons = h('div', {class: 'bar'},
    h('button', {type: 'button', onclick: () => publish({vhost, exchange: '', queue: name})}, 'Publish message'),
    h('button', {type: 'button', onclick: () => queue() && purge(vhost, name, queue())}, 'Purge Messages'),
    h('button', {type: 'button', onclick: () => queue() && erase(vhost, name, queue())}, 'Delete'));
  const element = h('div', {class: 'list'},
    h('div', {class: 'head'}, h('h1', null, name), buttons), badges, h('div', {class: 'card'}, stats));
  return {
    element,
    show(/** @type {any} */ q) {
      renew(badges, h('a', {href: href('queues', [], {vhost}), class: 'quiet'}, 'virtual host ', vhost), h('span', {class: 'quiet'}, q.type), state(q), features(q),
        q.owner_pid_details && h('span', {class: 'quiet'}, 'exclusive owner ', h('a', {href: href('connections', [q.owner_pid_details.name])}, q.owner_pid_details.name)));
      keyed(stats, numbers(q), (s) => s.title, stat, update);
    },
  };
}

/** @typedef {{title: string, value: string | HTMLElement, hint?: string}} Stat */

/** @param {any} q @returns {Stat[]} */
function numbers(q) {
  const amount = (/** @type {string} */ title, /** @type {number | undefined} */ n) => ({title, value: count(n), hint: plural(n ?? 0, 'message')});
  const speed = (/** @type {string} */ title, /** @type {string} */ counter) => ({title, value: rate(q.message_stats?.[counter + '_details']?.rate)});
  const instant = (/** @type {string} */ title, /** @type {number | null} */ at, /** @type {string} */ hint) => ({title, value: until(at), hint});
  return [
    amount('Ready', q.messages_ready), amount('Unacked', q.messages_unacknowledged), amount('Held', q.messages_held), amount('Total', q.messages),
    speed('incoming', 'publish'), speed('deliver / get', 'deliver_get'), speed('ack', 'ack'),
    instant('Next deadline', q.next_deadline, 'when the next message is due'),
    ...q.next_release == null ? [] : [instant('Next release', q.next_release, 'when the next held message becomes ready')],
    ...q.lease_expires_at == null ? [] : [instant('Deleted, unless used', q.lease_expires_at, 'when the queue expires')],
  ];
}

/** @param {Stat} s */
function stat({title, value, hint}) {
  return h('div', {class: 'stat'}, h('dt', null, explained(title, hint ?? '')), h('dd', null, value));
}

/** @param {Element} element @param {Stat} s */
function update(element, {value, hint}) {
  const dd = /** @type {Element} */ (element.lastElementChild), old = dd.firstElementChild;
  if (hint) element.querySelector('[data-means]')?.setAttribute('data-means', hint);
  if (value instanceof HTMLElement && old && old.getAttribute('data-at') === value.getAttribute('data-at')) return; // it counts down by itself
  fill(dd, value);
}

/** @param {string} vhost @param {string} name @param {any} q */
function purge(vhost, name, q) {
  return destroy({
    title: 'Purge Messages', action: 'Purge Messages', name, messages: q.messages_ready ?? 0,
    text: `All ready messages of the queue ${name} are dropped, and not dead-lettered. Those that are unacknowledged or held stay.`,
    done: async () => {
      await remove(path('queues', vhost, name, 'contents'));
      say('Purged.');
    },
  });
}

/** @param {string} vhost @param {string} name @param {any} q */
function erase(vhost, name, q) {
  const only = /** @type {HTMLSelectElement} */ (h('select', {id: 'delete-only'}, [['', 'in any case'], ['if-unused', 'only if unused: it has no consumers'], ['if-empty', 'only if empty']].map(([value, text]) => h('option', {value}, text))));
  return destroy({
    title: 'Delete', action: 'Delete', name, messages: q.messages ?? 0,
    text: [`The queue ${name} is deleted, and its messages with it; they are not dead-lettered.`,
      q.consumers > 0 && ` It has ${q.consumers === 1 ? 'a consumer' : exact(q.consumers) + ' consumers'}, which will be cancelled.`,
      h('span', {class: 'field'}, h('label', {for: 'delete-only'}, 'Delete'), only)],
    done: async () => {
      await remove(path('queues', vhost, name) + (only.value ? `?${only.value}=true` : ''));
      say(`Queue ${name} deleted.`);
      location.hash = href('queues');
    },
  });
}
