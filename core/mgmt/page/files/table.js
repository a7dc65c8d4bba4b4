// A table of a list of the API: pages from the server, sorted there, updated in place.

import {get} from './api.js';
import {fill, h, keyed, renew} from './dom.js';
import {plural} from './format.js';

/**
 * @typedef {object} Column
 * @property {string} title
 * @property {(row: any) => import('./dom.js').Child} cell
 * @property {string} [sort] the API's name of the sort key; a column without it cannot be sorted
 * @property {boolean} [still] a live view cannot be sorted by it, so that the API is asked instead
 * @property {boolean} [number] it is set flush right
 * @property {boolean} [head] it names the row
 * @property {boolean} [wide] it is left out where there is little room
 * @property {boolean} [actions] it has buttons, which stand in one line
 */

/**
 * Returns a table of rows that are there already.
 * @param {object} o
 * @param {string} o.label the name of the list, for screen readers
 * @param {Column[]} o.columns
 * @param {(row: any) => string} o.key
 * @param {import('./dom.js').Child} o.empty text without rows
 * @param {(column: Column) => void} [o.onsort]
 * @returns {{element: HTMLElement, show: (rows: any[], sort?: string, reverse?: boolean) => void}}
 */
export function table({label, columns, key, empty, onsort}) {
  const head = h('tr'), body = h('tbody'), none = h('div', {class: 'empty', hidden: true}, empty);
  const grid = h('table', null, h('caption', {class: 'unseen'}, label), h('thead', null, head), body);
  const element = h('div', {class: 'table', role: 'region', 'aria-label': label, tabindex: '0'}, grid, none);
  const style = (/** @type {Column} */ c) => [c.number && 'number', c.wide && 'wide', c.actions && 'actions'];
  const cells = (/** @type {any} */ row) => columns.map((c) => h(c.head ? 'th' : 'td', {class: style(c), scope: c.head && 'row'}, c.cell(row)));
  /** @type {WeakMap<Element, any>} the data of each row, renewed in place: buttons of cells that still look the same act on the new data */
  const now = new WeakMap();
  const make = (/** @type {any} */ row) => {
    const mine = {...row}, tr = h('tr', null, cells(mine));
    now.set(tr, mine);
    return tr;
  };
  const update = (/** @type {Element} */ tr, /** @type {any} */ row) => {
    const mine = now.get(tr);
    for (const name of Object.keys(mine)) delete mine[name];
    Object.assign(mine, row);
    columns.forEach((c, i) => replaceIfChanged(tr.children[i], c.cell(mine)));
  };
  let sortedBy = '\u0000';
  return {
    element,
    show(rows, sort = '', reverse = false) {
      if (sortedBy !== sort + reverse) renew(head, columns.map((c) => heading(c, style(c), sort, reverse, onsort)));
      sortedBy = sort + reverse;
      keyed(body, rows, key, make, update);
      none.hidden = rows.length > 0;
    },
  };
}

// A cell that looks the same stays, so that focus and an open menu in it stay.
/** @param {Element} cell @param {import('./dom.js').Child} content */
function replaceIfChanged(cell, content) {
  const next = h('td', null, content);
  if (next.isEqualNode(cell) || sameInside(next, cell)) return;
  if (cell.contains(document.activeElement)) return; // it is being used
  cell.replaceChildren(...next.childNodes);
}

/** @param {Element} a @param {Element} b */
function sameInside(a, b) {
  if (a.childNodes.length !== b.childNodes.length) return false;
  return [...a.childNodes].every((n, i) => n.isEqualNode(b.childNodes[i]));
}

/** @param {Column} c @param {any[]} classes @param {string} sort @param {boolean} reverse @param {((c: Column) => void) | undefined} onsort */
function heading(c, classes, sort, reverse, onsort) {
  if (!c.sort || !onsort) return h('th', {scope: 'col', class: classes}, c.title || h('span', {class: 'unseen'}, 'Actions'));
  const order = c.sort === sort ? (reverse ? 'descending' : 'ascending') : null;
  return h('th', {scope: 'col', class: classes, 'aria-sort': order}, h('button', {class: 'sort', type: 'button', onclick: () => onsort(c)}, c.title));
}

/**
 * Returns a table with a search box and pages, which it asks the API for, and again every five seconds. The address's query has its state.
 * @param {import('./views.js').Context} context
 * @param {object} o as for table, and
 * @param {string | (() => string)} o.path of the list below /api/
 * @param {{view: string, query: () => Record<string, string>}} [o.live] a live view of the same, with parameters of its own: it is followed instead
 * @param {import('./dom.js').Child} [o.tools] elements beside the search box, such as a filter
 * @param {Record<string, string>} [o.query] of each request, such as columns
 * @param {string} o.label
 * @param {string} o.noun the name of one row, such as "queue"
 * @param {Column[]} o.columns
 * @param {(row: any) => string} o.key
 * @param {import('./dom.js').Child} o.empty
 * @returns {{element: HTMLElement, load: () => Promise<void>}}
 */
export function list(context, {path, live, tools, query = {}, label, noun, columns, key, empty}) {
  const state = {
    page: Number(context.query.get('page')) || 1, sort: context.query.get('sort') ?? '', reverse: context.query.get('reverse') === 'true',
    name: context.query.get('name') ?? '',
  };
  const search = /** @type {HTMLInputElement} */ (h('input', {type: 'search', 'aria-label': `Names of ${noun}s`, placeholder: 'name, or /expression', value: state.name, 'data-search': true}));
  const total = h('span', {class: 'quiet'}), pager = h('div', {class: 'pager'}), failed = h('p', {class: 'error', role: 'alert', hidden: true});
  const rows = table({label, columns, key, empty, onsort: (c) => change({sort: c.sort ?? '', reverse: state.sort === c.sort && !state.reverse, page: 1})});
  let asked = 0, follows = false, leave = () => {};

  /** @param {Partial<typeof state>} next @returns {Promise<void>} */
  const change = (next) => {
    Object.assign(state, next);
    context.replace({page: state.page > 1 ? state.page : null, sort: state.sort || null, reverse: state.reverse ? 'true' : null, name: state.name || null});
    return load();
  };
  const wanted = () => ({
    ...query, page: String(state.page), page_size: '100', ...state.sort && {sort: state.sort}, ...state.reverse && {sort_reverse: 'true'},
    ...state.name && {name: state.name.replace(/^\//, '')}, ...state.name.startsWith('/') && {use_regex: 'true'},
  });
  const take = (/** @type {any} */ answer) => {
    if (state.page > 1 && state.page > answer.page_count) return void change({page: 1});
    failed.hidden = true;
    rows.show(answer.items ?? answer.order.map((/** @type {string} */ k) => answer.rows[k]), state.sort, state.reverse);
    fill(total, answer.filtered_count === answer.total_count ? plural(answer.total_count, noun) : `${answer.filtered_count} of ${plural(answer.total_count, noun)}`);
    renew(pager, answer.page_count > 1 && pages(answer, (page) => change({page})));
  };
  const refused = (/** @type {unknown} */ error) => {
    failed.hidden = false;
    fill(failed, error instanceof Error ? error.message : String(error));
  };
  /** @returns {Promise<void>} */
  async function load() {
    leave();
    const mine = ++asked; // answers to earlier requests come too late
    follows = !!live && !columns.some((c) => c.sort === state.sort && c.still);
    if (live && follows) {
      leave = context.live(live.view, {...wanted(), ...live.query()}, take, refused);
      return;
    }
    try {
      const answer = await get(`${typeof path === 'string' ? path : path()}?${new URLSearchParams({...wanted(), ...live && {unknown_rates: 'true'}})}`, context.signal);
      if (mine === asked) take(answer);
    } catch (error) {
      if (context.signal.aborted || mine !== asked) return;
      if (state.page > 1 && /Page out of range/.test(String(error))) return change({page: 1});
      refused(error);
    }
  }
  /** @type {ReturnType<typeof setTimeout>} */
  let typing;
  search.addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(() => !context.signal.aborted && change({name: search.value.trim(), page: 1}), 200);
  });
  context.every(5000, () => follows ? undefined : load());
  return {element: h('div', {class: 'list'}, h('div', {class: 'bar'}, search, tools, total), failed, rows.element, pager), load};
}

/** Returns the buttons to the other pages of a list. @param {{page: number, page_count: number}} answer @param {(page: number) => void} go */
export function pages({page, page_count: last}, go) {
  const to = (/** @type {string} */ text, /** @type {number} */ n) => h('button', {type: 'button', disabled: n < 1 || n > last || n === page, onclick: () => go(n)}, text);
  return [to('First', 1), to('Previous', page - 1), h('span', {class: 'quiet'}, `page ${page} of ${last}`), to('Next', page + 1), to('Last', last)];
}
