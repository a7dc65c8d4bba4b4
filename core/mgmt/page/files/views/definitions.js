// Definitions: export to a file, and import from one.

import {call, get, send} from '../api.js';
import {adminMenu, button, heading, section} from '../blocks.js';
import {ask, say} from '../dialog.js';
import {fill, h} from '../dom.js';
import {plural} from '../format.js';
import {path} from '../link.js';
import {indent} from './queues/payload.js';

/** @type {import('../views.js').View} */
export default async function show(main, context) {
  fill(main, adminMenu('definitions'), heading('Definitions'));
  if (!context.user.tags.includes('administrator')) return void main.append(h('p', {class: 'empty'}, 'Definitions are for users with the tag administrator.'));
  const names = (await get('vhosts?columns=name', context.signal)).map((/** @type {{name: string}} */ v) => v.name);
  const options = () => [h('option', {value: ''}, 'All'), names.map((/** @type {string} */ n) => h('option', {value: n}, n))];
  const from = /** @type {HTMLSelectElement} */ (h('select', {id: 'export-vhost'}, options()));
  const to = /** @type {HTMLSelectElement} */ (h('select', {id: 'import-vhost'}, options()));
  const file = /** @type {HTMLInputElement} */ (h('input', {type: 'file', id: 'import-file', accept: '.json,application/json'}));
  const failed = h('p', {class: 'error', role: 'alert'});
  main.append(h('div', {class: 'halves'},
    section('Export', h('p', {class: 'quiet'}, 'Users, virtual hosts, permissions, queues, exchanges, bindings and policies as a file of JSON. Messages are not part of it.'),
      h('div', {class: 'field'}, h('label', {for: 'export-vhost'}, 'Virtual host'), from), h('div', {class: 'buttons'}, button('Download broker definitions', () => download(from.value), 'primary'))),
    section('Import', h('p', {class: 'quiet'}, 'What the file names is made or changed; everything else stays. All of it is done, or nothing.'),
      h('div', {class: 'field'}, h('label', {for: 'import-vhost'}, 'Virtual host'), to), h('div', {class: 'field'}, h('label', {for: 'import-file'}, 'Definitions file'), file), failed,
      h('div', {class: 'buttons'}, button('Upload broker definitions', () => upload(file.files?.[0], to.value, failed), 'primary')))));
}

/** @param {string} vhost */
const address = (vhost) => vhost ? path('definitions', vhost) : 'definitions';

/** @param {string} vhost */
async function download(vhost) {
  const answer = await send('GET', address(vhost), undefined);
  if (!answer.ok) return say(`${answer.status} ${answer.statusText}`);
  const link = URL.createObjectURL(new Blob([indent(await answer.text())], {type: 'application/json'})); // numbers keep all digits
  h('a', {href: link, download: `curfew-definitions-${new Date().toISOString().slice(0, 10)}.json`}).click();
  setTimeout(() => URL.revokeObjectURL(link), 1000);
}

/** @param {File | undefined} file @param {string} vhost @param {HTMLElement} failed */
async function upload(file, vhost, failed) {
  fill(failed, '');
  if (!file) return void fill(failed, 'Choose a file first.');
  let all;
  try {
    all = JSON.parse(await file.text());
  } catch (error) {
    return void fill(failed, `${file.name} is not JSON: ${error instanceof Error ? error.message : error}`);
  }
  if (!all || typeof all !== 'object' || Array.isArray(all)) return void fill(failed, `${file.name} holds no definitions, but ${Array.isArray(all) ? 'a list' : 'a value'}.`);
  const parts = Object.entries(all).filter(([, v]) => Array.isArray(v) && v.length > 0);
  await ask({
    title: 'Import these definitions?', action: 'Upload broker definitions',
    text: [h('p', null, file.name, ' has:'), h('ul', null, parts.map(([k, v]) => h('li', null, plural(/** @type {any[]} */ (v).length, k.replace(/_/g, ' ').replace(/ies$/, 'y').replace(/s$/, ''), k.replace(/_/g, ' ')))))],
    async done() {
      await call('POST', address(vhost), file); // as it is: numbers keep all digits
      say('Your definitions were imported successfully.');
    },
  });
}
