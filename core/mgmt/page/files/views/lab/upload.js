// Uploading a module: it is checked first, and then runs as a shadow, or is activated.

import {post, put} from '../../api.js';
import {facts, orDash} from '../../blocks.js';
import {ask, say} from '../../dialog.js';
import {h} from '../../dom.js';
import {bytes, exact} from '../../format.js';
import {href, path} from '../../link.js';

/**
 * @param {object} o
 * @param {string} o.beside strategy that is suggested for a shadow
 * @param {string[]} o.strategies
 * @param {() => Promise<void>} o.done
 */
export async function upload({beside, strategies, done}) {
  /** @type {any} */
  let module;
  /** @type {any} */
  let answer;
  const checked = await ask({
    title: 'Upload a module', action: 'Check',
    text: h('p', {class: 'quiet'}, 'The module is tried with a few messages. Nothing is loaded yet.'),
    fields: [
      {name: 'file', label: 'File', type: 'file', required: true, hint: 'a WebAssembly module, up to 8 MiB'},
      {name: 'config', label: 'Config', type: 'textarea', hint: 'a JSON object, which the policy reads; empty: none'},
      {name: 'grants', label: 'Grants', hint: 'what it may do, with commas between: headers, body, route, metrics, trace, hold'},
      {name: 'fuel', label: 'Fuel', value: 'default', hint: 'for each call: default, large (for Go), or 10000 to 1000000000'},
      {name: 'on_error', label: 'On error', type: 'select', options: [['builtin', 'builtin: the lower of expiration and TTL'], ['keep', 'keep: no deadline'], ['reject', 'reject: the publisher gets basic.nack']]},
    ],
    async done(v) {
      if (!v.file) throw new Error('Choose a file.');
      module = {
        module: await base64(v.file), config: v.config.trim() === '' ? undefined : json(v.config), fuel: v.fuel, on_error: v.on_error,
        grants: v.grants.split(/[\s,]+/).filter(Boolean), suggested: v.file.name.replace(/\.wasm$/, '').toLowerCase().replace(/[^a-z0-9_-]+/g, '-').slice(0, 64),
      };
      const {suggested, ...upload} = module;
      answer = (await post('simulations', {settings: {}, module: {...upload, name: /^[a-z0-9]/.test(suggested) ? suggested : 'policy'}})).module;
    },
  });
  if (!checked) return;
  const {suggested, ...settings} = module;
  await ask({
    title: 'The module works', action: 'Load',
    text: [(answer.warnings ?? []).map((/** @type {string} */ w) => h('p', {class: 'note'}, w)), (answer.warnings ?? []).length === 0 && h('p', null, 'There are no warnings.'),
      facts([['Digest', h('code', null, answer.digest)], ['Size', bytes(answer.size)], ['Hooks', (answer.hooks ?? []).join(', ')], ['Imports', orDash((answer.imports ?? []).join(', '))],
        ['Fuel of a call', answer.trial?.length ? answer.trial.map((/** @type {any} */ t) => `${t.hook} ${exact(t.one)}`).join(', ') : orDash('')]])],
    fields: [
      {name: 'name', label: 'Name', value: suggested, required: true, hint: '1 to 64 lower-case letters, digits, - and _'},
      {name: 'how', label: 'Load it', type: 'select', value: 'shadow', options: [['shadow', 'as a shadow first: without effect, until the broker ends'], ['activate', 'activate it at once: as the strategy wasm/NAME']]},
      {name: 'beside', label: 'Shadow of', type: 'select', value: beside, options: strategies.length ? strategies : ['deadline'], hint: 'the strategy beside which a shadow runs'},
      {name: 'recompute', label: 'New deadlines for queued messages', type: 'checkbox', hint: 'if it is activated'},
    ],
    async done({name, how, beside: strategy, recompute}) {
      const shadow = how === 'shadow';
      const loaded = await put(path('wasm', 'policies', name), {...settings, ...shadow ? {shadow: strategy} : {recompute}});
      say([shadow ? `${name} runs beside ${strategy}.` : `wasm/${name} is active.`, ...(loaded?.warnings ?? []).map((/** @type {string} */ w) => h('p', null, w))]);
      await done();
      location.hash = href('lab', [shadow ? name : 'wasm/' + name]);
    },
  });
}

/** @param {string} text */
function json(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`Config is no JSON: ${error instanceof Error ? error.message : error}`);
  }
}

/** @param {Blob} file @returns {Promise<string>} */
function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^data:[^,]*,/, ''));
    reader.onerror = () => reject(new Error(`The file cannot be read: ${reader.error?.message}`));
    reader.readAsDataURL(file);
  });
}
