// A message's payload: as text, as JSON with its lines indented, or as bytes.

import {button} from '../../blocks.js';
import {fill, h} from '../../dom.js';
import {bytes} from '../../format.js';

/**
 * Returns an element with the payload of a message.
 * @param {any} m a message, as the API shows it
 * @param {(() => Promise<any>) | null} whole asks for the message again, with all of its payload; null = it cannot
 */
export function payload(m, whole) {
  const place = h('pre', {class: 'payload', tabindex: '0', 'aria-label': 'Payload'}), bar = h('div', {class: 'bar'});
  const said = h('p', {class: 'error', role: 'alert', hidden: true});
  const show = (/** @type {any} */ message) => {
    const raw = decode(message), forms = formsOf(message, raw);
    const choose = (/** @type {string} */ name) => {
      fill(place, forms[name]() || '(empty)');
      for (const b of bar.querySelectorAll('[aria-pressed]')) b.setAttribute('aria-pressed', String(b.textContent === name));
    };
    const cut = raw.length < message.payload_bytes;
    fill(bar, Object.keys(forms).map((name) => h('button', {type: 'button', class: 'plain', 'aria-pressed': 'false', onclick: () => choose(name)}, name)),
      h('span', {class: 'quiet'}, cut ? `the first ${bytes(raw.length)} of ${bytes(message.payload_bytes)}` : bytes(message.payload_bytes)),
      cut && whole && button('Show all', async () => {
        try {
          show(await whole());
        } catch (error) {
          said.hidden = false;
          fill(said, /** @type {Error} */ (error).message);
        }
      }));
    choose(Object.keys(forms)[0]);
  };
  show(m);
  return h('section', null, h('h3', null, 'Payload'), bar, said, place);
}

/** @param {any} m @returns {Uint8Array} */
function decode(m) {
  return m.payload_encoding === 'base64' ? Uint8Array.from(atob(m.payload), (c) => c.charCodeAt(0)) : new TextEncoder().encode(m.payload);
}

/** Returns the forms in which a payload can be shown, the best one first. @param {any} m @param {Uint8Array} raw @returns {Record<string, () => string>} */
function formsOf(m, raw) {
  const hex = () => dump(raw);
  if (m.payload_encoding === 'base64') return {Hex: hex, Base64: () => m.payload};
  const text = () => m.payload;
  return isJSON(m.payload) ? {JSON: () => indent(m.payload), Text: text, Hex: hex} : {Text: text, Hex: hex};
}

/** @param {string} text */
function isJSON(text) {
  if (!/^\s*[[{]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * Indents JSON. It is not parsed and written again: numbers would lose digits, and members that are there twice one of them.
 * @param {string} text valid JSON
 */
export function indent(text) {
  let out = '', depth = 0;
  const line = () => '\n' + '  '.repeat(depth);
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[{]\s*[\]}]|[[\]{},:]|[^\s[\]{},:"]+/g)) {
    if (token === '{' || token === '[') {
      depth++;
      out += token + line();
    } else if (token === '}' || token === ']') {
      depth--;
      out += line() + token;
    } else if (token === ',') out += token + line();
    else out += token === ':' ? ': ' : token.replace(/^([[{])\s+/, '$1');
  }
  return out;
}

const MOST = 16 << 10; // bytes that are written out

/** Writes bytes in lines of sixteen. @param {Uint8Array} raw */
export function dump(raw) {
  const lines = [];
  for (let at = 0; at < Math.min(raw.length, MOST); at += 16) {
    const part = [...raw.slice(at, Math.min(at + 16, MOST))];
    const hex = part.map((b) => b.toString(16).padStart(2, '0')).join(' ');
    lines.push(`${at.toString(16).padStart(6, '0')}  ${hex.padEnd(47)}  ${part.map((b) => b > 31 && b < 127 ? String.fromCharCode(b) : '.').join('')}`);
  }
  if (raw.length > MOST) lines.push(`… and ${bytes(raw.length - MOST)} more`);
  return lines.join('\n');
}
