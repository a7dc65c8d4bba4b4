// Builds and updates elements. Nothing here or elsewhere makes markup from strings: the broker's answers are text.

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Returns an element. Properties that begin with "on" are listeners; "class" may be a list, without its false elements; "style" is
 * an object of CSS properties; others are attributes, left out if they are null or false, and empty if they are true.
 * @param {string} tag
 * @param {Record<string, any> | null} [properties]
 * @param {...Child} children strings become text
 * @returns {HTMLElement}
 */
export function h(tag, properties, ...children) {
  return /** @type {HTMLElement} */ (build(document.createElement(tag), properties, children));
}

/**
 * Returns an element of SVG, as h does one of HTML.
 * @param {string} tag
 * @param {Record<string, any> | null} [properties]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function s(tag, properties, ...children) {
  return /** @type {SVGElement} */ (build(document.createElementNS(SVG, tag), properties, children));
}

/**
 * @param {HTMLElement | SVGElement} element
 * @param {Record<string, any> | null | undefined} properties
 * @param {Child[]} children
 */
function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) set(element, name, value);
  append(element, children);
  return element;
}

/**
 * Sets one property, as h does.
 * @param {HTMLElement | SVGElement} element
 * @param {string} name
 * @param {any} value
 */
export function set(element, name, value) {
  if (name.startsWith('on')) return element.addEventListener(name.slice(2), value);
  if (name === 'style') {
    for (const [property, v] of Object.entries(value)) element.style.setProperty(property, String(v));
    return;
  }
  if (name === 'class' && Array.isArray(value)) value = value.filter(Boolean).join(' ') || null;
  if (value == null || value === false) return element.removeAttribute(name);
  const text = value === true ? '' : visible(String(value));
  if (element.getAttribute(name) !== text) element.setAttribute(name, name === 'href' || name === 'value' ? String(value) : text);
}

/**
 * @param {Element} element
 * @param {Child[]} children
 */
function append(element, children) {
  for (const child of children) {
    if (child == null || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : visible(String(child)));
  }
}

/**
 * Replaces the contents of an element. Text that has not changed is left alone, so that a selection in it stays.
 * @template {Element} E
 * @param {E} element
 * @param {...Child} children
 * @returns {E}
 */
export function fill(element, ...children) {
  const only = children.length === 1 ? children[0] : null;
  if (typeof only === 'string' || typeof only === 'number') {
    const text = visible(String(only));
    if (element.textContent !== text || element.childElementCount > 0) element.textContent = text;
    return element;
  }
  const used = element.contains(document.activeElement) ? document.activeElement : null;
  element.replaceChildren();
  append(element, children);
  if (used?.matches('a, button') && !used.isConnected) again(element, used);
  return element;
}

// Focuses the element that corresponds to the used one: it has the same place among the elements with the same text.
/** @param {Element} element @param {Element} used @param {boolean} [first] if there is none, the first element */
function again(element, used, first) {
  const all = /** @type {HTMLElement[]} */ ([...element.querySelectorAll(first ? 'a, button' : used.localName)]);
  (all.find((e) => e.textContent === used.textContent) ?? (first ? all[0] : undefined))?.focus({preventScroll: true});
}

/**
 * Replaces the contents of an element, unless they would look the same. The focus stays in its place.
 * @param {Element} element
 * @param {...Child} children
 */
export function renew(element, ...children) {
  const next = element.cloneNode();
  append(/** @type {Element} */ (next), children);
  if (next.isEqualNode(element)) return;
  const places = () => /** @type {HTMLElement[]} */ ([...element.querySelectorAll('a, button, input, select')]);
  const at = places().findIndex((p) => p === document.activeElement);
  element.replaceChildren(...next.childNodes);
  if (at < 0) return;
  places()[at]?.focus();
  if (!element.contains(document.activeElement)) places().find((p) => !p.hasAttribute('disabled'))?.focus();
}

/**
 * Makes one child of an element for each item, in their order. Elements of items that stay are updated in place, so that focus,
 * selection and open parts of them stay.
 * @template T
 * @param {Element} parent of these children alone
 * @param {T[]} items
 * @param {(item: T) => string} key different for each item
 * @param {(item: T) => Element} make
 * @param {(element: any, item: T) => void} [update] is not called for a new child
 */
export function keyed(parent, items, key, make, update) {
  /** @type {Map<string, Element>} */
  const old = new Map(), wanted = new Set(items.map(key));
  const used = /** @type {HTMLElement | null} */ (parent.contains(document.activeElement) ? document.activeElement : null);
  const place = used ? [...parent.children].findIndex((c) => c.contains(used)) : -1;
  for (const child of [...parent.children]) {
    const k = child.getAttribute('data-key') ?? '';
    if (wanted.has(k)) old.set(k, child);
    else child.remove(); // first, so that later children need not move
  }
  let at = parent.firstElementChild;
  for (const item of items) {
    const k = key(item);
    let child = old.get(k);
    if (child) {
      old.delete(k);
      update?.(child, item);
    } else {
      child = make(item);
      child.setAttribute('data-key', k);
    }
    if (child === at) at = at.nextElementSibling;
    else if (at && child === at.nextElementSibling) at = child.nextElementSibling; // the passed children move when their turn comes
    else parent.insertBefore(child, at);
  }
  for (const child of old.values()) child.remove();
  if (!used || used === document.activeElement) return;
  if (!used.isConnected) again(parent.children[Math.min(place, parent.childElementCount - 1)] ?? parent, used, true);
  else used.focus({preventScroll: true}); // a child that moves loses the focus
}

// Control characters, and characters that change the direction of the text behind them: with these a name can look like another one.
// eslint-disable-next-line no-control-regex
const DECEPTIVE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

/**
 * Shows characters that cannot be seen as escapes. h does this for all text.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(DECEPTIVE, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}
