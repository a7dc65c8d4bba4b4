// Flow: where dead letters go.

import {get} from '../api.js';
import {explained, heading, inVHost, orDash} from '../blocks.js';
import {fill, h, keyed} from '../dom.js';
import {exact, plural, rate} from '../format.js';
import {href} from '../link.js';
import {table} from '../table.js';
import {components, fold, loses, losing, lost, percent, problem, share} from './flow/graph.js';
import {picture} from './flow/picture.js';

/** @typedef {import('./flow/graph.js').Component} Component @typedef {import('./flow/graph.js').Edge} Edge */

const LIMIT = 300; // edges

/** @type {import('../views.js').View} */
export default async function show(main, context) {
  const q = context.query, vhosts = /** @type {{name: string}[]} */ (await get('vhosts?columns=name', context.signal));
  const choose = /** @type {HTMLSelectElement} */ (h('select', {'aria-label': 'Virtual host'}, h('option', {value: ''}, 'all virtual hosts'),
    vhosts.map((v) => h('option', {value: v.name, selected: v.name === q.get('vhost')}, v.name))));
  const search = /** @type {HTMLInputElement} */ (h('input', {type: 'search', 'aria-label': 'Names of queues', placeholder: 'queue', value: q.get('name') ?? '', 'data-search': true}));
  const drops = /** @type {HTMLInputElement} */ (h('input', {type: 'checkbox', checked: q.has('dropped')}));
  const failed = h('p', {class: 'error', role: 'alert', hidden: true}), note = h('p', {class: 'legend'}), sum = h('p', {class: 'error', hidden: true});
  const cards = h('div', {class: 'flows'}), empty = h('div', {class: 'card empty', hidden: true});
  const rows = ways(), all = h('section', {class: 'view', hidden: true}, h('h2', null, 'As a table'), rows.element);
  main.append(heading('Flow', h('label', {class: 'check'}, drops, 'also what is only dropped'), vhosts.length > 1 && choose, search), failed, sum, note, empty, cards, all);

  let asked = 0;
  const load = async () => {
    const name = search.value.trim(), mine = ++asked;
    try {
      const flow = await get('dead-letters/flow?' + new URLSearchParams({limit: String(LIMIT), ...choose.value && {vhost: choose.value}, ...name && {name}}), context.signal);
      if (mine !== asked) return; // something else was asked for since
      failed.hidden = true;
      const shown = components(flow).filter((c) => drops.checked || c.edges.some((e) => e.problem !== 'dropped')).sort(busier);
      keyed(cards, shown, (c) => c.key, card, (element, c) => parts.get(element)?.(c));
      for (const element of cards.children) parts.get(element)?.(/** @type {Component} */ (shown.find((c) => c.key === element.getAttribute('data-key'))));
      const edges = shown.flatMap((c) => c.edges), hidden = flow.edges.length - edges.length;
      rows.show(edges);
      const loss = losing(flow.edges), least = flow.left_out.edges > 0 ? 'At least ' : '';
      sum.hidden = loss.queues === 0;
      fill(sum, loss.rate > 0 ? `${least}${rate(loss.rate).replace('/s', '')} messages a second are lost, in ${plural(loss.queues, 'queue')}.` : `Messages ${loss.past ? 'were' : 'would be'} lost, in ${plural(loss.queues, 'queue')}.`);
      all.hidden = edges.length === 0;
      empty.hidden = shown.length > 0;
      if (shown.length === 0) fill(empty, nothing(name, hidden));
      note.hidden = shown.length === 0;
      fill(note, legend(flow, edges, hidden));
    } catch (error) {
      if (context.signal.aborted || mine !== asked) return;
      failed.hidden = false;
      fill(failed, /** @type {Error} */ (error).message);
    }
  };
  const change = () => {
    context.replace({vhost: choose.value || null, name: search.value.trim() || null, dropped: drops.checked ? 'true' : null});
    void load();
  };
  /** @type {ReturnType<typeof setTimeout>} */
  let typing;
  search.addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(change, 200);
  });
  choose.addEventListener('change', change);
  drops.addEventListener('change', change);
  context.every(5000, load);
}

// The order changes when rates do so clearly.
/** @param {Component} a @param {Component} b */
function busier(a, b) {
  const size = (/** @type {Component} */ c) => Math.round(Math.log2(1 + c.rate));
  return size(b) - size(a) || Number(b.bad) - Number(a.bad) || (a.key < b.key ? -1 : 1);
}

/** @type {WeakMap<Element, (c: Component) => void>} */
const parts = new WeakMap();

/** @param {Component} c */
function card(c) {
  const title = h('h2'), badges = h('div', {class: 'bar'}), cycles = h('div'), drawn = picture();
  const scroller = h('div', {class: 'scroller', tabindex: '0', role: 'region'}, drawn.element);
  const element = h('section', {class: 'card'}, h('div', {class: 'head'}, title, badges), cycles, scroller);
  parts.set(element, (c) => {
    const queues = [...c.nodes.values()].filter((n) => n.kind === 'queue').map((n) => n.name), first = c.edges[0].from;
    const text = queues.length > 1 ? `${first} and ${plural(queues.length - 1, 'other queue')}` : first;
    fill(title, text, inVHost(c.edges[0].vhost));
    scroller.setAttribute('aria-label', 'Picture of ' + title.textContent);
    fill(badges, c.rate > 0 && h('span', {class: 'badge'}, rate(c.rate)), c.bad && h('span', {class: 'badge warn'}, c.lost ? '⚠ messages are lost' : '⚠ messages would be lost'),
      c.cycles.length > 0 && h('span', {class: 'badge accent'}, '↻ ' + plural(c.cycles.length, 'cycle')));
    fill(cycles, c.cycles.map((cycle) => h('p', {class: 'small quiet'}, says(cycle, c))));
    fold(c);
    drawn.show(c);
  });
  return element;
}

/** Names the rule that ends a cycle. @param {any} cycle @param {Component} c */
function says(cycle, c) {
  const within = c.edges.filter((e) => cycle.queues.includes(e.from)), dropped = within.reduce((n, e) => n + (e.outcomes.cycle ?? 0), 0);
  const rule = 'the broker drops a message that comes back to a queue where it died' + (cycle.bound === 'rejected' ? ', unless a consumer rejected it on the way: then it goes round again.' : '.');
  return [
    cycle.certain ? 'Cycle through ' : 'Possible cycle through ', h('strong', null, cycle.queues.slice(0, 6).join(', '), cycle.queues.length > 6 && ` and ${cycle.queues.length - 6} more`), ': ', rule,
    dropped > 0 && ` So it did with ${exact(dropped)}, of the events that are remembered.`, cycle.slowed && ' Messages wait on their way round.',
    cycle.rate != null && ` On its slowest way: ${rate(cycle.rate)}.`,
  ];
}

/** @param {any} flow @param {Edge[]} edges @param {number} hidden */
function legend(flow, edges, hidden) {
  const left = flow.left_out;
  return [
    h('span', null, 'wider: faster'), h('span', null, h('span', {class: 'stroke'}), 'certain'), h('span', null, h('span', {class: 'stroke dashed'}), 'possible: depends on the message'),
    edges.some((e) => loses(e) || share(e) > 0) && h('span', null, h('span', {class: 'stroke warn'}), 'lost'), h('span', {class: 'spring'}),
    hidden > 0 && h('span', null, `${plural(hidden, 'way')} of queues that only drop ${hidden === 1 ? 'is' : 'are'} left out`),
    left.edges > 0 && h('span', null, `the busiest; ${exact(left.edges)} more ways${left.components ? ` in ${plural(left.components, 'other group')}` : ''}: search for a queue`),
    !flow.complete && h('span', {class: 'badge warn'}, 'not complete'),
  ];
}

function ways() {
  const link = (/** @type {Edge} */ e, /** @type {string} */ name) => [h('a', {class: 'long', href: href('queues', [e.vhost, name])}, name), inVHost(e.vhost)];
  return table({
    label: 'Where dead letters go', key: (e) => JSON.stringify([e.vhost, e.from, e.reason, e.exchange, e.key, e.own_key, e.to, e.problem]), empty: 'Nothing dead-letters.',
    columns: [
      {title: 'Queue', head: true, cell: (e) => link(e, e.from)},
      {title: 'Reason', cell: (e) => orDash(e.reason?.replace('_', ' '))},
      {title: 'Exchange', cell: (e) => e.exchange == null ? orDash('') : h('a', {href: href('exchanges', [e.vhost, e.exchange || 'amq.default'])}, e.exchange || '(AMQP default)')},
      {title: 'Routing key', cell: (e) => e.exchange == null ? orDash('') : e.key ?? h('span', {class: 'quiet'}, 'its own')},
      {title: 'To', cell: (e) => [e.to != null ? link(e, e.to) : e.others ? `${e.others} other queues` : h('span', {class: loses(e) && 'badge warn'}, loses(e) && '⚠ ', problem(e)),
        share(e) > 0 && !e.problem && explained(h('span', {class: 'badge warn'}, `⚠ ${percent(share(e))} lost: ${lost(e).by.map(([outcome]) => outcome).join(', ')}`), `Of the ${plural(lost(e).of, 'message')} that are remembered`),
        !e.certain && h('span', {class: 'quiet'}, ' (possible)'), e.held_by && h('span', {class: 'quiet'}, ` (can be held by ${e.held_by})`)]},
      {title: 'Messages', number: true, cell: (e) => [exact(e.count), e.recent && [' ', explained('lately', 'Of the events that are remembered', 'quiet')]]},
      {title: 'Rate', number: true, cell: (e) => rate(e.rate)},
    ],
  });
}

/** @param {string} name @param {number} hidden */
function nothing(name, hidden) {
  if (name) return h('p', null, 'No queue of that name dead-letters, or gets dead letters.');
  return [
    h('p', null, 'No queue dead-letters.'),
    h('p', null, 'A queue can send on what it would drop: messages that expire, are rejected, or are too many. This sends those of all queues whose names begin with “jobs” to the queue “late”:'),
    h('pre', {class: 'mono'}, 'curfew ctl set_policy --apply-to queues late \'^jobs\' \'{"dead-letter-exchange":"","dead-letter-routing-key":"late"}\''),
    hidden > 0 && h('p', null, `${plural(hidden, 'queue')} only drop${hidden === 1 ? 's' : ''} messages: tick the box above to see them.`),
  ];
}
