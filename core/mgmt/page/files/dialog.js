// Dialogs: forms, and questions before something is destroyed.

import {fill, h, visible} from './dom.js';
import {exact} from './format.js';

/**
 * @typedef {object} Field
 * @property {string} name of its value
 * @property {string} label
 * @property {'text' | 'number' | 'datetime-local' | 'password' | 'checkbox' | 'select' | 'textarea' | 'file'} [type]
 * @property {any} [value]
 * @property {(string | [string, string])[]} [options] of a select: values, or values with texts
 * @property {string} [hint] units, range, the meaning of an empty field
 * @property {boolean} [required]
 * @property {{element: HTMLElement, value: () => any}} [control] in place of an input, such as an editor of arguments
 * @property {(values: Record<string, any>) => boolean} [when] the field is there; without it, it always is
 * @property {(text: string) => Promise<string[]>} [suggest] returns completions, such as names of queues
 */

/**
 * Asks for values, and calls done with them. The dialog stays open, and shows why, if done throws.
 * @param {object} o
 * @param {string} o.title
 * @param {import('./dom.js').Child} [o.text]
 * @param {Field[]} [o.fields]
 * @param {string | null} o.action on the button, a verb; null = there is nothing to do
 * @param {string} [o.cancel] on the other button
 * @param {boolean} [o.danger] the action destroys something
 * @param {(values: Record<string, any>) => Promise<any> | any} o.done
 * @returns {Promise<boolean>} whether it was done
 */
export function ask({title, text, fields = [], action, cancel: back = 'Cancel', danger, done}) {
  const failed = h('p', {class: 'error', role: 'alert', hidden: true});
  const inputs = fields.map((f) => f.control?.element ?? input(f));
  const blocks = fields.map((f, i) => labelled(f, inputs[i]));
  const ok = /** @type {HTMLButtonElement} */ (h('button', {type: 'submit', class: ['primary', danger && 'danger']}, action));
  const cancel = h('button', {type: 'button', onclick: () => dialog.close()}, back);
  const form = /** @type {HTMLFormElement} */ (h('form', {method: 'dialog'}, h('h2', {id: 'dialog-title'}, title), text && h('div', null, text),
    blocks, failed, h('div', {class: 'buttons'}, cancel, action && ok)));
  const dialog = /** @type {HTMLDialogElement} */ (h('dialog', {'aria-labelledby': 'dialog-title'}, form));
  const values = () => Object.fromEntries(fields.map((f, i) => [f.name, sendable(f, valueOf(f, inputs[i]))]));
  onlyWhen(form, fields, blocks, inputs);
  document.body.append(dialog);
  return new Promise((resolve) => {
    let was = false;
    form.addEventListener('submit', async (e) => {
      e.preventDefault();
      ok.disabled = true;
      try {
        await done(values());
        was = true;
        dialog.close();
      } catch (error) {
        failed.hidden = false;
        fill(failed, error instanceof Error ? error.message : String(error));
      }
      ok.disabled = false;
    });
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(was);
    });
    dialog.showModal();
  });
}

/**
 * Takes away the dialogs that are open, for a login. They keep their input.
 * @returns {{back: () => void, close: () => void}} shows them again, or ends them
 */
export function setAside() {
  const open = /** @type {HTMLDialogElement[]} */ ([...document.querySelectorAll('dialog[open]')]);
  for (const dialog of open) dialog.remove();
  return {
    back() {
      for (const dialog of open) {
        dialog.removeAttribute('open');
        document.body.append(dialog);
        dialog.showModal();
      }
    },
    close: () => open.forEach((dialog) => dialog.close()),
  };
}

/**
 * Shows only the fields that are there, given the values of the others.
 * @param {HTMLFormElement} form @param {Field[]} fields @param {HTMLElement[]} blocks @param {any[]} inputs
 */
function onlyWhen(form, fields, blocks, inputs) {
  if (!fields.some((f) => f.when)) return;
  const update = () => {
    const values = Object.fromEntries(fields.filter((f) => !f.control).map((f) => [f.name, valueOf(f, inputs[fields.indexOf(f)])]));
    fields.forEach((f, i) => {
      blocks[i].hidden = f.when?.(values) === false;
      inputs[i].disabled = blocks[i].hidden; // hidden fields are not required
    });
  };
  form.addEventListener('change', update);
  update();
}

/** Above this many messages, the name is typed. */
const MANY = 1000;

/**
 * Asks before something is destroyed. It says how many messages that concerns; above a thousand, the name has to be typed.
 * @param {object} o
 * @param {string} o.title
 * @param {import('./dom.js').Child} o.text
 * @param {string} o.action
 * @param {string} o.name of the object that is destroyed
 * @param {number} [o.messages]
 * @param {() => Promise<any>} o.done
 */
export function destroy({title, text, action, name, messages = 0, done}) {
  const typed = messages > MANY;
  return ask({
    title, action, danger: true,
    text: [h('p', null, text), messages > 0 && h('p', null, 'It concerns ', h('strong', null, exact(messages)), messages === 1 ? ' message.' : ' messages.')],
    fields: typed ? [{name: 'typed', label: `Type the name to confirm: ${name}`}] : [],
    done: ({typed: text}) => {
      if (typed && !means(text, name)) throw new Error('That is another name.');
      return done();
    },
  });
}

// Invisible characters are shown as escapes, and an input has no line breaks: the user types or copies the name as it is shown.
/** @param {string} text @param {string} name */
function means(text, name) {
  const seen = (/** @type {string} */ t) => visible(t).replace(/\s+/g, ' ').trim();
  return text === name || seen(text) !== '' && seen(text) === seen(name);
}

/** @param {Field} f */
function input(f) {
  const id = 'field-' + f.name;
  if (f.type === 'select') {
    return h('select', {id, name: f.name}, (f.options ?? []).map((o) => {
      const [value, text] = Array.isArray(o) ? o : [o, o];
      return h('option', {value, selected: value === f.value}, text);
    }));
  }
  if (f.type === 'textarea') {
    const area = /** @type {HTMLTextAreaElement} */ (h('textarea', {id, name: f.name, rows: 4, required: f.required}));
    area.value = f.value ?? '';
    return area;
  }
  return h('input', {
    id, name: f.name, type: f.type ?? 'text', required: f.required, autocomplete: f.type === 'password' ? 'new-password' : 'off',
    checked: f.type === 'checkbox' && f.value === true, value: f.type === 'checkbox' || f.type === 'file' ? null : f.value,
  });
}

/** @param {Field} f @param {HTMLElement} element */
function labelled(f, element) {
  if (f.control) return h('fieldset', {class: 'field'}, h('legend', null, f.label), element, f.hint && h('small', null, f.hint));
  const hint = f.hint && h('small', {id: element.id + '-hint'}, f.hint);
  if (hint) element.setAttribute('aria-describedby', element.id + '-hint');
  const names = f.suggest && suggestions(f.suggest, element);
  const label = h('label', {for: element.id}, f.label);
  return h('div', {class: ['field', f.type === 'checkbox' && 'check']}, f.type === 'checkbox' ? [element, label] : [label, element], names, hint);
}

/** @param {(text: string) => Promise<string[]>} suggest @param {HTMLElement} element */
function suggestions(suggest, element) {
  const names = h('datalist', {id: element.id + '-names'});
  /** @type {ReturnType<typeof setTimeout>} */
  let typing;
  const load = () => suggest(/** @type {HTMLInputElement} */ (element).value).then((all) => void fill(names, all.map((value) => h('option', {value}))), () => {}); // it works without
  element.setAttribute('list', names.id);
  element.addEventListener('focus', load, {once: true});
  element.addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(load, 200);
  });
  return names;
}

/** @param {Field} f @param {any} element */
function valueOf(f, element) {
  if (f.control) return f.control.value();
  if (f.type === 'checkbox') return element.checked;
  if (f.type === 'file') return element.files[0] ?? null;
  if (f.type === 'number') return element.value === '' ? null : Number(element.value);
  return element.value;
}

// A number input silently rounds numbers that JavaScript cannot hold.
/** @param {Field} f @param {any} value */
function sendable(f, value) {
  if (f.type === 'number' && value !== null && Math.abs(value) > Number.MAX_SAFE_INTEGER) throw new Error(`${f.label}: numbers beyond 2^53 cannot be sent exactly.`);
  return value;
}

/**
 * Shows a message for some seconds.
 * @param {import('./dom.js').Child} text
 */
export function say(text) {
  const toast = h('div', {class: 'toast', role: 'status'}, text);
  document.body.append(toast);
  setTimeout(() => toast.remove(), 5000);
}
