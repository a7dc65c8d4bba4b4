// Editor of a table of names and typed values, as arguments and headers are.

import {fill, h} from './dom.js';

/** @typedef {'String' | 'Number' | 'Boolean' | 'List'} Type */

/**
 * A name that the broker knows.
 * @typedef {object} Known
 * @property {string} name
 * @property {Type} type
 * @property {string} title on the button that adds it
 * @property {string} hint units, range, effect
 * @property {string[]} [options] values that are accepted
 */

let editors = 0;

/**
 * Returns an editor. Its value is an object; it throws an error that names the first wrong entry.
 * @param {object} o
 * @param {string} o.noun of one, such as "argument"
 * @param {Known[]} [o.known] names to choose from
 * @param {Record<string, any>} [o.values] that are there already; objects cannot be edited, and are left out
 * @returns {{element: HTMLElement, value: () => Record<string, any>}}
 */
export function typed({noun, known = [], values = {}}) {
  const id = 'typed-' + ++editors;
  const rows = h('div', {class: 'typed'}), names = h('datalist', {id}, known.map((k) => h('option', {value: k.name}, k.title)));
  /** @type {ReturnType<typeof row>[]} */
  const all = [];
  const add = () => {
    const r = row(noun, id, known, {filled: () => all.at(-1) === r && add(), removed: () => drop(r)});
    all.push(r);
    rows.append(r.element);
    return r;
  };
  const drop = (/** @type {ReturnType<typeof row>} */ r) => {
    const i = all.indexOf(r);
    if (all.length > 1) {
      all.splice(i, 1);
      r.element.remove();
    } else r.set('', 'String');
    all[Math.max(0, i - 1)].focus();
  };
  const choose = (/** @type {Known} */ k) => {
    const r = all.find((it) => it.name() === k.name) ?? all.find((it) => it.name() === '') ?? add();
    r.set(k.name, k.type);
    if (r === all.at(-1)) add();
    r.focus(true);
  };
  for (const [name, value] of Object.entries(values)) {
    const type = typeof value === 'number' ? 'Number' : typeof value === 'boolean' ? 'Boolean' : Array.isArray(value) ? 'List' : 'String';
    if (value == null || typeof value === 'object' && type !== 'List') continue;
    add().set(name, type, type === 'List' ? JSON.stringify(value) : String(value));
  }
  add();
  // The purpose of a name stands below the buttons while one of them has the focus or the pointer; touch users read it in the row.
  const about = h('small', {id: id + '-about', class: 'quiet'}, '\u00a0');
  const buttons = known.length > 0 && h('div', {class: 'choices'}, h('span', {class: 'quiet'}, 'Add'), known.map((k) => {
    const tell = () => fill(about, `${k.name}: ${k.hint}`);
    return h('button', {type: 'button', class: 'plain', 'aria-describedby': about.id, onfocus: tell, onpointerenter: tell, onclick: () => choose(k)}, k.title);
  }));
  return {element: h('div', {class: 'typed-box'}, rows, names, buttons, buttons && about), value: () => valueOf(all, noun)};
}

/** @param {ReturnType<typeof row>[]} rows @param {string} noun */
function valueOf(rows, noun) {
  /** @type {[string, any][]} */
  const members = [];
  for (const r of rows) {
    const name = r.name();
    if (!name && !r.text()) continue;
    if (!name) throw new Error(`The ${noun} with the value ${r.text()} has no name.`);
    if (members.some(([other]) => other === name)) throw new Error(`The ${noun} ${name} is there twice.`);
    members.push([name, parse(name, r.type(), r.text())]);
  }
  return Object.fromEntries(members);
}

/** @param {string} name @param {Type} type @param {string} text */
function parse(name, type, text) {
  if (type === 'String') return text;
  if (type === 'Boolean') return text === 'true';
  if (type === 'Number') return number(name, text);
  try {
    const list = JSON.parse(text);
    if (Array.isArray(list)) return exactly(name, list);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new Error(`${name}: a list is written as JSON, such as ["a", 1].`);
}

/** @param {string} name @param {any[]} list */
function exactly(name, list) {
  JSON.stringify(list, (_, n) => Number.isInteger(n) ? number(name, String(n)) : n);
  return list;
}

/** @param {string} name @param {string} text */
function number(name, text) {
  const n = Number(text);
  if (text.trim() === '' || !Number.isFinite(n)) throw new Error(`${name} is "${text}", which is no number.`);
  if (Number.isInteger(n) && !Number.isSafeInteger(n)) throw new Error(`${name} is beyond 2^53, which a browser cannot send exactly.`);
  return n;
}

/**
 * @param {string} noun @param {string} list id of the names @param {Known[]} known
 * @param {{filled: () => void, removed: () => void}} on
 */
function row(noun, list, known, on) {
  const name = /** @type {HTMLInputElement} */ (h('input', {list, autocomplete: 'off', 'aria-label': `Name of the ${noun}`, placeholder: 'name'}));
  const type = /** @type {HTMLSelectElement} */ (h('select', {'aria-label': 'Type'}, ['String', 'Number', 'Boolean', 'List'].map((t) => h('option', null, t))));
  const hint = h('small', {id: list + '-' + Math.random().toString(36).slice(2), class: 'quiet', hidden: true});
  const slot = h('span');
  /** @type {HTMLInputElement | HTMLSelectElement} */
  let value;
  const shape = (/** @type {string} */ text) => {
    const options = known.find((k) => k.name === name.value)?.options ?? (type.value === 'Boolean' ? ['true', 'false'] : null);
    value = /** @type {any} */ (options && !(text && !options.includes(text))
      ? h('select', null, options.map((o) => h('option', {selected: o === text}, o)))
      : h('input', {autocomplete: 'off', inputmode: type.value === 'Number' && 'decimal', placeholder: type.value === 'List' ? '["a", 1]' : 'value'}));
    if (value instanceof HTMLInputElement) value.value = text;
    value.setAttribute('aria-label', 'Value');
    value.setAttribute('aria-describedby', hint.id);
    fill(slot, value);
  };
  const described = () => {
    const k = known.find((it) => it.name === name.value);
    hint.hidden = !k;
    if (k) fill(hint, k.hint);
    return k;
  };
  name.addEventListener('input', () => {
    const k = described();
    if (k && type.value !== k.type) type.value = k.type;
    if (k || value instanceof HTMLSelectElement) shape('');
    if (name.value) on.filled();
  });
  type.addEventListener('change', () => shape(''));
  shape('');
  return {
    element: h('div', {class: 'row', role: 'group', 'aria-label': noun}, name, slot, type,
      h('button', {type: 'button', class: 'plain', 'aria-label': `Remove this ${noun}`, onclick: on.removed}, '×'), hint),
    name: () => name.value.trim(), type: () => /** @type {Type} */ (type.value), text: () => value.value,
    focus: (/** @type {boolean} */ atValue = false) => (atValue ? value : name).focus(),
    /** @param {string} n @param {Type} t @param {string} [text] */
    set(n, t, text = '') {
      name.value = n;
      type.value = t;
      shape(text);
      described();
    },
  };
}
