// Places a graph from left to right: layers by the longest way to them, in each layer the order with few crossings, and ways that
// lead back drawn below.

/** @typedef {import('./graph.js').Node} Node @typedef {import('./graph.js').Way} Way */
/** @typedef {{id: string, layer: number, y: number, x: number, width: number, height: number, node: Node | null, before: Box[], after: Box[]}} Box */

const GAP = 20, COLUMN = 132, SWEEPS = 8;

/**
 * Sets the positions of nodes, which know their sizes, and the points of ways.
 * @param {Node[]} nodes @param {Way[]} ways
 * @returns {{width: number, height: number}}
 */
export function layout(nodes, ways) {
  markBack(nodes, ways);
  const boxes = new Map(nodes.map((n) => [n.id, box(n.id, 0, n)]));
  const forward = ways.filter((w) => !w.back);
  layers(boxes, forward);
  /** @type {Map<Way, Box[]>} */
  const routes = new Map();
  const all = [...boxes.values()];
  for (const w of forward) routes.set(w, route(w, boxes, all));
  const columns = order(all);
  const width = place(columns);
  for (const b of all) if (b.node) b.node.x = b.x, b.node.y = b.y, b.node.layer = b.layer;
  let bottom = Math.max(...all.map((b) => b.y + b.height));
  for (const [w, way] of routes) w.points = way.flatMap((b, i) => ends(b, i === 0, i === way.length - 1));
  const backs = ways.filter((w) => w.back).sort((a, b) => span(boxes, a) - span(boxes, b));
  for (const w of backs) w.points = below(boxes, w, all, (y) => bottom = Math.max(bottom, y));
  return {width, height: bottom};
}

/** @param {string} id @param {number} layer @param {Node | null} node @returns {Box} */
const box = (id, layer, node) => ({id, layer, node, x: 0, y: 0, width: node?.width ?? 0, height: node?.height ?? 8, before: [], after: []});

/** @param {Map<string, Box>} boxes @param {Way} w */
const span = (boxes, w) => Math.abs((boxes.get(w.from)?.layer ?? 0) - (boxes.get(w.to)?.layer ?? 0));

// Ways that lead back to where a search comes from are turned round. It begins where nothing leads to.
/** @param {Node[]} nodes @param {Way[]} ways */
function markBack(nodes, ways) {
  const out = Map.groupBy(ways, (w) => w.from), into = new Set(ways.map((w) => w.to));
  /** @type {Map<string, number>} 1 = on the way, 2 = done */
  const state = new Map();
  const starts = [...nodes.filter((n) => !into.has(n.id)), ...[...nodes].sort((a, b) => (out.get(b.id)?.length ?? 0) - (out.get(a.id)?.length ?? 0))];
  for (const start of starts) {
    if (state.has(start.id)) continue;
    const stack = [{id: start.id, at: 0}];
    state.set(start.id, 1);
    while (stack.length > 0) {
      const top = stack[stack.length - 1], w = out.get(top.id)?.[top.at++];
      if (!w) {
        state.set(top.id, 2);
        stack.pop();
        continue;
      }
      w.back = state.get(w.to) === 1;
      if (state.has(w.to)) continue;
      state.set(w.to, 1);
      stack.push({id: w.to, at: 0});
    }
  }
}

/** @param {Map<string, Box>} boxes @param {Way[]} ways */
function layers(boxes, ways) {
  for (let moved = true, left = boxes.size + 1; moved && left > 0; left--) {
    moved = false;
    for (const w of ways) {
      const a = /** @type {Box} */ (boxes.get(w.from)), b = /** @type {Box} */ (boxes.get(w.to));
      if (b.layer > a.layer) continue;
      b.layer = a.layer + 1;
      moved = true;
    }
  }
}

// Where a way passes layers, it gets room there.
/** @param {Way} w @param {Map<string, Box>} boxes @param {Box[]} all */
function route(w, boxes, all) {
  const a = /** @type {Box} */ (boxes.get(w.from)), b = /** @type {Box} */ (boxes.get(w.to)), way = [a];
  for (let layer = a.layer + 1; layer < b.layer; layer++) {
    const passing = box('', layer, null);
    all.push(passing);
    way.push(passing);
  }
  way.push(b);
  for (let i = 1; i < way.length; i++) {
    way[i - 1].after.push(way[i]);
    way[i].before.push(way[i - 1]);
  }
  return way;
}

/** @param {Box[]} all */
function order(all) {
  /** @type {Box[][]} */
  const columns = [];
  for (const b of all) (columns[b.layer] ??= []).push(b);
  const middle = (/** @type {Box[]} */ list, /** @type {number} */ otherwise) => list.length ? list.reduce((n, b) => n + b.y, 0) / list.length : otherwise;
  const number = () => columns.forEach((c) => c.forEach((b, i) => b.y = i - c.length / 2));
  number();
  for (let i = 0; i < SWEEPS; i++) {
    const down = i % 2 === 0;
    for (const column of down ? columns : [...columns].reverse()) {
      const wish = new Map(column.map((b) => [b, middle(down ? b.before : b.after, b.y)]));
      column.sort((a, b) => (wish.get(a) ?? 0) - (wish.get(b) ?? 0));
      column.forEach((b, k) => b.y = k - column.length / 2);
    }
  }
  return columns;
}

/** @param {Box[][]} columns */
function place(columns) {
  let x = 0;
  for (const column of columns) {
    const width = Math.max(...column.map((b) => b.width));
    let y = 0;
    for (const b of column) {
      b.x = x;
      if (!b.node) b.width = width;
      b.y = y;
      y += b.height + GAP;
    }
    x += width + COLUMN;
  }
  const centre = (/** @type {Box} */ b) => b.y + b.height / 2;
  for (let i = 0; i < SWEEPS; i++) for (const column of i % 2 ? [...columns].reverse() : columns) {
    const wish = column.map((b) => {
      const near = [...b.before, ...b.after];
      return near.length ? near.reduce((n, o) => n + centre(o), 0) / near.length - b.height / 2 : b.y;
    });
    spread(column, wish);
  }
  const top = Math.min(...columns.flat().map((b) => b.y));
  for (const b of columns.flat()) b.y -= top;
  return x - COLUMN;
}

// Puts each box as near as possible to its wish, in order: boxes that touch move as one.
/** @param {Box[]} column @param {number[]} wish */
function spread(column, wish) {
  /** @type {{at: number, sum: number, boxes: number[], size: number}[]} */
  const groups = [];
  column.forEach((b, i) => {
    let g = {at: wish[i], sum: wish[i], boxes: [i], size: b.height + GAP};
    for (let last; (last = groups.at(-1)) && last.at + last.size > g.at;) {
      groups.pop();
      const joined = [...last.boxes, ...g.boxes];
      const sum = last.sum + g.sum - last.size * g.boxes.length;
      g = {at: sum / joined.length, sum, boxes: joined, size: last.size + g.size};
    }
    groups.push(g);
  });
  for (const g of groups) {
    let y = g.at;
    for (const i of g.boxes) {
      column[i].y = y;
      y += column[i].height + GAP;
    }
  }
}

/** @param {Box} b @param {boolean} first @param {boolean} last @returns {[number, number][]} */
function ends(b, first, last) {
  const y = b.y + b.height / 2;
  return first ? [[b.x + b.width, y]] : last ? [[b.x, y]] : [[b.x, y], [b.x + b.width, y]];
}

// A way back leaves to the right, passes below all that is between, and enters from the left.
/** @param {Map<string, Box>} boxes @param {Way} w @param {Box[]} all @param {(y: number) => void} used */
function below(boxes, w, all, used) {
  const a = /** @type {Box} */ (boxes.get(w.from)), b = /** @type {Box} */ (boxes.get(w.to));
  const between = all.filter((o) => o.layer >= b.layer && o.layer <= a.layer);
  const y = Math.max(...between.map((o) => o.y + o.height)) + 28;
  all.push({...box('', b.layer, null), y: y - 6, height: 12});
  used(y + 8);
  const from = a.y + a.height / 2, to = b.y + b.height / 2;
  return /** @type {[number, number][]} */ ([[a.x + a.width, from], [a.x + a.width + 4, y], [b.x - 4, y], [b.x, to]]);
}
