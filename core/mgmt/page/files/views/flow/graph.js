// Makes a graph to draw from the API's answer about dead letters: queues, exchanges between them, and ends where messages are lost.

/**
 * @typedef {object} Edge one of the API's
 * @property {string} vhost
 * @property {string} from
 * @property {string | null} reason
 * @property {string} [exchange]
 * @property {string | null} [key]
 * @property {string} [own_key]
 * @property {string} [to]
 * @property {string} [problem]
 * @property {number} [others]
 * @property {string[]} [via]
 * @property {string} [held_by]
 * @property {number} count
 * @property {number | null} rate null: it is not known yet
 * @property {boolean} certain
 * @property {boolean} recent
 * @property {boolean} [at_least_once]
 * @property {Record<string, number>} outcomes
 */

/**
 * @typedef {object} Node
 * @property {string} id
 * @property {'queue' | 'exchange' | 'end' | 'more'} kind
 * @property {string} vhost
 * @property {string} name
 * @property {string} [note] a second line
 * @property {any} [queue] the API's node
 * @property {boolean} [bad] messages are lost there
 * @property {number} [width] @property {number} [height] @property {number} [x] @property {number} [y] @property {number} [layer]
 */

/**
 * @typedef {object} Way between two nodes
 * @property {string} id @property {string} from @property {string} to
 * @property {What[]} what
 * @property {number} rate @property {boolean} certain @property {boolean} bad @property {string[]} notes
 * @property {boolean} [back] it is drawn against the direction
 * @property {[number, number][]} [points]
 */

/**
 * @typedef {object} What goes a way
 * @property {string | null} reason @property {number} rate @property {number} count @property {boolean} recent
 * @property {number} [lost] how many of the remembered messages were lost there, or on their way there @property {number} [of] so many
 * @property {string} [source] queue of messages that are lost behind an exchange
 */

/** @typedef {{key: string, nodes: Map<string, Node>, ways: Map<string, Way>, edges: Edge[], cycles: any[], rate: number, bad: boolean, lost?: boolean}} Component */

const id = (/** @type {string[]} */ ...parts) => parts.join('\u0000');

/** Describes the end of messages without a target. @param {Edge} e */
export function problem(e) {
  const keeps = e.at_least_once ? ': they wait' : '';
  if (e.problem === 'no_exchange') return `no exchange ${e.exchange}${keeps}`;
  if (e.problem === 'dropped') return e.reason === 'duplicate' ? 'dropped: duplicates' : 'dropped';
  if (e.problem === 'unknown') return 'not known any more';
  if (e.exchange === '') return `no queue ${e.own_key ?? e.key ?? ''}${keeps}`;
  return (e.key == null ? 'no binding matches' : `no binding for key ${e.key || '(empty)'}`) + keeps;
}

/** Reports whether an edge loses messages that somebody meant to keep. @param {Edge} e */
export const loses = (e) => e.problem === 'no_exchange' || e.problem === 'unroutable';

/** How messages are lost on a way that bindings allow, by the outcome of their events. @type {Record<string, string>} */
const losses = {cycle: 'dropped: they came back', refused: 'refused by the queue', unroutable: 'no binding matches'};

/**
 * Returns how many of an edge's remembered messages were lost on their way to a queue, and the number of all. A loss of a certain edge is
 * past, and messages whose own key leads nowhere have an edge of their own.
 * @param {Edge} e @returns {{of: number, by: [outcome: string, lost: number][]}}
 */
export function lost(e) {
  const past = (/** @type {string} */ o) => o === 'no_exchange' || o === 'unroutable' && (e.certain || e.own_key != null);
  const seen = e.problem ? [] : Object.entries(e.outcomes).filter(([o]) => !past(o));
  return {of: seen.reduce((n, [, k]) => n + k, 0), by: seen.filter(([o]) => Object.hasOwn(losses, o))};
}

/** Returns the share of an edge's messages that are lost, from 0 to 1. @param {Edge} e */
export function share(e) {
  if (e.problem) return loses(e) && !e.at_least_once ? 1 : 0;
  const {of, by} = lost(e);
  return of && by.reduce((n, [, k]) => n + k, 0) / of;
}

/** Reports whether messages of an edge have been lost. @param {Edge} e */
const hasLost = (e) => share(e) > 0 && (!e.problem || e.count > 0);

/**
 * Returns how many messages a second are lost, and in how many queues; or, if none are now, in how many they were; or, if none ever
 * were, in how many they would be. Of a message for several queues there are as many edges.
 * @param {Edge[]} edges
 */
export function losing(edges) {
  /** @type {Map<string, {queue: string, rate: number, past: boolean}>} */
  const all = new Map();
  for (const e of edges) if (share(e) > 0) all.set(id(e.vhost, e.from, String(e.reason), e.exchange ?? '', e.key ?? '\u0001', e.own_key ?? '\u0001', String(e.recent)), {queue: id(e.vhost, e.from), rate: (e.rate ?? 0) * share(e), past: hasLost(e)});
  const found = [...all.values()], now = found.filter((l) => l.rate > 0), past = found.filter((l) => l.past);
  const shown = now.length ? now : past.length ? past : found;
  return {rate: now.reduce((n, l) => n + l.rate, 0), past: past.length > 0, queues: new Set(shown.map((l) => l.queue)).size};
}

/** Writes a share. @param {number} part from 0 to 1 */
export const percent = (part) => part > 0 && part < .01 ? '< 1 %' : Math.floor(part * 100) + ' %';

/**
 * Returns the connected parts of the API's answer.
 * @param {{nodes: any[], edges: Edge[], cycles: any[]}} flow
 * @returns {Component[]}
 */
export function components(flow) {
  const known = new Map(flow.nodes.map((n) => [id(n.vhost, n.queue), n]));
  /** @type {Map<string, string>} */
  const parent = new Map();
  const root = (/** @type {string} */ q) => {
    let r = q;
    for (let up; (up = parent.get(r)) != null;) r = up;
    if (r !== q) parent.set(q, r);
    return r;
  };
  for (const e of flow.edges) {
    if (e.to == null) continue;
    const a = root(id(e.vhost, e.from)), b = root(id(e.vhost, e.to));
    if (a !== b) parent.set(a, b);
  }
  /** @type {Map<string, Component>} */
  const all = new Map();
  for (const e of flow.edges) {
    const r = root(id(e.vhost, e.from));
    let c = all.get(r);
    if (!c) all.set(r, c = {key: id(e.vhost, e.from), nodes: new Map(), ways: new Map(), edges: [], cycles: [], rate: 0, bad: false});
    addEdge(c, e, known);
  }
  for (const cycle of flow.cycles) all.get(root(id(cycle.vhost, cycle.queues[0])))?.cycles.push(cycle);
  return [...all.values()];
}

/** @param {Component} c @param {Edge} e @param {Map<string, any>} known */
function addEdge(c, e, known) {
  c.edges.push(e);
  c.rate += e.rate ?? 0;
  c.bad ||= loses(e) || share(e) > 0;
  c.lost ||= hasLost(e);
  const queue = (/** @type {string} */ name) => {
    const key = id(e.vhost, name);
    if (!c.nodes.has(key)) c.nodes.set(key, {id: key, kind: 'queue', vhost: e.vhost, name, queue: known.get(key)});
    return key;
  };
  let from = queue(e.from);
  if (e.exchange && e.problem !== 'no_exchange') { // the default exchange is no stop: the queue has the key's name
    const x = id(e.vhost, 'x', e.exchange, e.key ?? '\u0001');
    if (!c.nodes.has(x)) c.nodes.set(x, {id: x, kind: 'exchange', vhost: e.vhost, name: e.exchange, note: e.key == null ? undefined : `key ${e.key || '(empty)'}`});
    way(c, from, x, e);
    from = x;
  }
  way(c, from, e.to != null ? queue(e.to) : end(c, e), e);
  const {of, by} = lost(e);
  for (const [outcome, n] of by) astray(c, from, e, outcome, n, of);
}

/** Draws a separate way for messages that are lost on the way to a queue. @param {Component} c @param {string} from @param {Edge} e @param {string} outcome @param {number} lost @param {number} of */
function astray(c, from, e, outcome, lost, of) {
  const to = id(from, 'end', outcome), key = id(from, '>', to), what = {reason: e.reason, rate: (e.rate ?? 0) * lost / of, count: lost, recent: true, lost, of, source: e.from};
  c.nodes.set(to, {id: to, kind: 'end', vhost: e.vhost, name: losses[outcome], bad: true});
  let w = c.ways.get(key);
  if (!w) c.ways.set(key, w = {id: key, from, to, what: [], rate: 0, certain: true, bad: true, notes: []});
  if (w.what.some((o) => o.reason === e.reason && o.source === e.from)) return; // on the way to another queue
  w.rate += what.rate;
  w.what.push(what);
}

/** @param {Component} c @param {Edge} e */
function end(c, e) {
  const name = e.others ? `${e.others} other queues` : problem(e);
  const key = id(e.vhost, 'end', e.exchange || e.from, name);
  c.nodes.set(key, {id: key, kind: e.others ? 'more' : 'end', vhost: e.vhost, name, bad: loses(e)});
  return key;
}

/** @param {Component} c @param {string} from @param {string} to @param {Edge} e */
function way(c, from, to, e) {
  const key = id(from, '>', to);
  let w = c.ways.get(key);
  if (!w) c.ways.set(key, w = {id: key, from, to, what: [], rate: 0, certain: true, bad: false, notes: []});
  const ofQueue = c.nodes.get(from)?.kind === 'queue';
  const last = c.nodes.get(to)?.kind !== 'exchange', {of, by} = lost(e), part = last && !e.problem ? share(e) : 0;
  if (!ofQueue || !w.what.some((o) => o.reason === e.reason && o.recent === e.recent)) {
    const rate = (e.rate ?? 0) * (1 - part);
    w.rate += rate;
    if (ofQueue) w.what.push({reason: e.reason, rate, count: e.count, recent: e.recent, ...part && {lost: by.reduce((n, [, k]) => n + k, 0), of}});
  }
  if (last) {
    w.certain &&= e.certain;
    w.bad ||= loses(e) || part === 1;
    for (const note of [e.via && 'via ' + e.via.map((x) => x || '(AMQP default)').join(', '), e.held_by && 'can be held by ' + e.held_by]) if (note && !w.notes.includes(note)) w.notes.push(note);
  }
}

const ALIKE = 6;

/**
 * Draws queues as one if no dead letters come to them and theirs go to the same places.
 * @param {Component} c
 */
export function fold(c) {
  const into = new Set([...c.ways.values()].map((w) => w.to));
  /** @type {Map<string, {node: Node, ways: Way[]}[]>} */
  const alike = new Map();
  for (const node of c.nodes.values()) {
    if (node.kind !== 'queue' || into.has(node.id)) continue;
    const ways = [...c.ways.values()].filter((w) => w.from === node.id);
    const sign = ways.map((w) => w.to).sort().join('\u0002');
    alike.set(sign, [...alike.get(sign) ?? [], {node, ways}]);
  }
  for (const list of alike.values()) {
    if (list.length <= ALIKE + 1) continue;
    const rate = (/** @type {{ways: Way[]}} */ o) => o.ways.reduce((n, w) => n + w.rate, 0);
    const rest = list.sort((a, b) => rate(b) - rate(a) || (a.node.name < b.node.name ? -1 : 1)).slice(ALIKE);
    const more = id(rest[0].node.vhost, 'more', rest[0].ways[0]?.to ?? '');
    c.nodes.set(more, {id: more, kind: 'more', vhost: rest[0].node.vhost, name: `${rest.length} more queues`});
    for (const {node, ways} of rest) {
      c.nodes.delete(node.id);
      for (const w of ways) merge(c, more, w);
    }
  }
}

/** @param {Component} c @param {string} from @param {Way} w */
function merge(c, from, w) {
  c.ways.delete(w.id);
  const key = id(from, '>', w.to), into = c.ways.get(key);
  if (!into) return void c.ways.set(key, {...w, id: key, from, what: w.what.map((o) => ({...o}))});
  into.rate += w.rate;
  into.certain &&= w.certain;
  for (const o of w.what) {
    const same = into.what.find((p) => p.reason === o.reason);
    if (same) same.rate += o.rate, same.count += o.count, same.lost = (same.lost ?? 0) + (o.lost ?? 0), same.of = (same.of ?? 0) + (o.of ?? 0);
    else into.what.push({...o});
  }
}
