// The dead letters in this queue, by origin and reason, and the way back.

import {get} from '../../api.js';
import {button} from '../../blocks.js';
import {until} from '../../clock.js';
import {fill, h} from '../../dom.js';
import {exact, plural} from '../../format.js';
import {href, path} from '../../link.js';
import {table} from '../../table.js';
import {redrive, redrives} from './redrive.js';

const PAGE = 1000; // messages that one request looks at

/** @typedef {{key: string, queue: string, reason: string, exchange: string, routing_key: string, count: number, oldest: number | null}} Group of messages that died in the same way */

/** @param {HTMLElement} main @param {import('./detail.js').Tab} tab */
export default function show(main, tab) {
  const seen = counter();
  const note = h('p', {class: 'quiet small'}), failed = h('p', {class: 'error', role: 'alert', hidden: true}), more = h('div', {class: 'pager'});
  const again = () => tab.context.signal.aborted ? undefined : start();
  const groups = table({
    label: 'Dead letters by where and why they died', key: (g) => g.key,
    empty: [h('p', null, 'No dead letters among the messages.'), h('p', null, 'Messages come here as dead letters if another queue has this one behind its ', h('code', null, 'x-dead-letter-exchange'), '.')],
    columns: [
      {title: 'Died in', head: true, cell: (g) => h('a', {href: href('queues', [tab.vhost, g.queue])}, g.queue)},
      {title: 'Reason', cell: (g) => g.reason},
      {title: 'Exchange there', wide: true, cell: (g) => g.exchange || h('span', {class: 'quiet'}, '(AMQP default)')},
      {title: 'Routing key there', wide: true, cell: (g) => g.routing_key},
      {title: 'Messages', number: true, cell: (g) => exact(g.count)},
      {title: 'Oldest', wide: true, cell: (g) => until(g.oldest)},
      {title: '', actions: true, cell: (g) => button('redrive…', () => redrive(tab, {to: 'source', where: g.queue, reason: g.reason}).then(again), 'plain')},
    ],
  });
  const look = async (/** @type {number} */ requests) => {
    fill(more);
    try {
      for (let i = 0; i < requests && !seen.done(); i++) {
        await seen.look(tab);
        groups.show(seen.groups());
        fill(note, seen.said());
      }
      failed.hidden = true;
      if (!seen.done()) fill(more, button('Look at 10,000 more', () => look(10)), button('Look again', start));
      else fill(more, button('Look again', start));
    } catch (error) {
      if (tab.context.signal.aborted) return;
      failed.hidden = false;
      fill(failed, /** @type {Error} */ (error).message);
      fill(more, button('Look again', start));
    }
  };
  const start = () => {
    seen.reset();
    return look(1);
  };
  main.append(h('h2', {class: 'unseen'}, 'Dead letters'), h('div', {class: 'head'}, h('p', {class: 'quiet'}, 'Where the ready messages of this queue died last, by the header x-death'), h('div', {class: 'bar'}, button('Redrive…', () => redrive(tab, {to: 'source'}).then(again), 'primary'))),
    redrives(tab), failed, groups.element, more, note);
  groups.show([]);
  void start();
}

/** Counts messages by how they died, page after page. */
function counter() {
  /** @type {Map<string, Group>} */
  const all = new Map();
  let after = '', done = false, looked = 0, died = 0;
  return {
    done: () => done,
    groups: () => [...all.values()].sort((a, b) => b.count - a.count).slice(0, 100),
    reset() {
      all.clear();
      after = '';
      done = false;
      looked = died = 0;
    },
    said: () => `${plural(looked, 'ready message')} looked at, ${exact(died)} of them dead letters${done ? '' : '; there are more'}${all.size > 100 ? `; the 100 most frequent of ${exact(all.size)} ways are shown` : ''}. Looking changes nothing.`,
    /** @param {import('./detail.js').Tab} tab */
    async look({vhost, name, context}) {
      const q = new URLSearchParams({count: String(PAGE), truncate: '0', state: 'ready', columns: 'messages.since,messages.deaths,messages.properties.headers,next,error', ...after && {after}});
      const {messages, next, error} = await get(path('queues', vhost, name, 'messages') + '?' + q, context.signal);
      if (error) throw new Error(error);
      for (const m of messages) {
        looked++;
        const death = m.deaths > 0 ? m.properties?.headers?.['x-death']?.[0] : null;
        if (!death) continue;
        died++;
        add(all, death, m.since);
      }
      after = next ?? '';
      done = !next;
    },
  };
}

/** @param {Map<string, Group>} all @param {any} death @param {number | null} since */
function add(all, death, since) {
  const routed = Array.isArray(death['routing-keys']) ? death['routing-keys'][0] : '';
  const named = {queue: String(death.queue), reason: String(death.reason), exchange: String(death.exchange ?? ''), routing_key: String(routed ?? '')};
  const key = JSON.stringify(named), g = all.get(key) ?? {key, ...named, count: 0, oldest: since};
  g.count++;
  if (since != null && (g.oldest == null || since < g.oldest)) g.oldest = since;
  all.set(key, g);
}
