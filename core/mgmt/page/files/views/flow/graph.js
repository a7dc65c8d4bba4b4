// Makes a graph to draw of what the API says about dead letters: queues, exchanges between them, and ends where messages are lost.

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
 * @property {number} rate
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
 * @property {{reason: string | null, rate: number, count: number, recent: boolean}[]} what
 * @property {number} rate @property {boolean} certain @property {boolean} bad @property {string[]} notes
 * @property {boolean} [back] it is drawn against the direction
 * @property {[number, number][]} [points]
 */

/** @typedef {{key: string, nodes: Map<string, Node>, ways: Map<string, Way>, edges: Edge[], cycles: any[], rate: number, bad: boolean}} Component */

const id = (/** @type {string[]} */ ...parts) => parts.join('\u0000');

/** Says what becomes of messages that get nowhere. @param {Edge} e */
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

/**
 * Returns the connected parts of what the API answered.
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
  c.rate += e.rate;
  c.bad ||= loses(e);
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
  if (!ofQueue || !w.what.some((o) => o.reason === e.reason && o.recent === e.recent)) {
    w.rate += e.rate;
    if (ofQueue) w.what.push({reason: e.reason, rate: e.rate, count: e.count, recent: e.recent});
  }
  if (c.nodes.get(to)?.kind !== 'exchange') {
    w.certain &&= e.certain;
    w.bad ||= loses(e) || e.outcomes.refused > 0;
    for (const note of [e.outcomes.refused > 0 && `${e.outcomes.refused} lately refused: lost`, e.via && 'via ' + e.via.map((x) => x || '(AMQP default)').join(', '), e.held_by && 'can be held by ' + e.held_by]) if (note && !w.notes.includes(note)) w.notes.push(note);
  }
}

const ALIKE = 6;

/**
 * Draws queues that are alike as one: those which nothing comes to, and which lead to the same places.
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
    if (same) same.rate += o.rate, same.count += o.count;
    else into.what.push({...o});
  }
}
