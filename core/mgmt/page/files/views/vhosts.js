// Virtual hosts: all, and one with permissions and limits.

import {get, put, remove} from '../api.js';
import {adminMenu, back, button, facts, heading, orDash, refreshed, section} from '../blocks.js';
import {ask, destroy, say} from '../dialog.js';
import {fill, h} from '../dom.js';
import {count, plural} from '../format.js';
import {href, path} from '../link.js';
import {list} from '../table.js';
import {editLimits, limitText} from './limits.js';
import {permissionTable} from './users.js';

/** @type {import('../views.js').View} */
export default function show(main, context) {
  const administrator = context.user.tags.includes('administrator');
  if (context.parts.length > 0 && !administrator) return void fill(main, adminMenu('vhosts'), back('vhosts', 'Virtual hosts'), heading(context.parts[0]), h('p', {class: 'empty'}, 'A virtual host and its permissions are shown to users with the tag administrator.'));
  if (context.parts.length > 0) return one(main, context, context.parts[0]);
  const vhosts = list(context, {path: 'vhosts', label: 'Virtual hosts', noun: 'virtual host', columns, key: (v) => v.name, empty: 'There are no virtual hosts that you may enter.'});
  const add = button('Add a new virtual host', async () => { if (await edit({}, true)) await vhosts.load(); }, 'primary');
  fill(main, adminMenu('vhosts'), heading('Virtual hosts', administrator && add), vhosts.element);
}

/** @type {import('../table.js').Column[]} */
const columns = [
  {title: 'Name', head: true, sort: 'name', cell: (v) => h('a', {href: href('vhosts', [v.name])}, v.name)},
  {title: 'Description', cell: (v) => orDash(v.description), wide: true},
  {title: 'Tags', cell: (v) => v.tags?.length ? v.tags.map((/** @type {string} */ t) => [h('span', {class: 'badge'}, t), ' ']) : orDash(''), wide: true},
  {title: 'Default queue type', cell: (v) => orDash(v.default_queue_type === 'undefined' ? '' : v.default_queue_type), wide: true},
  {title: 'Node', wide: true, cell: (v) => Object.entries(v.cluster_state).map(([node, state]) => state === 'running' ? node : h('span', {class: 'badge bad'}, 'no owner'))},
  {title: 'Ready', sort: 'messages_ready', number: true, cell: (v) => count(v.messages_ready)},
  {title: 'Unacked', sort: 'messages_unacknowledged', number: true, cell: (v) => count(v.messages_unacknowledged)},
  {title: 'Total', sort: 'messages', number: true, cell: (v) => count(v.messages)},
];

/** @param {any} v @param {boolean} isNew */
function edit(v, isNew) {
  return ask({
    title: isNew ? 'Add a new virtual host' : `Change ${v.name}`, action: isNew ? 'Add virtual host' : 'Update virtual host',
    fields: [
      ...isNew ? [{name: 'name', label: 'Name', required: true}] : [],
      {name: 'description', label: 'Description', value: v.description}, {name: 'tags', label: 'Tags', value: (v.tags ?? []).join(', '), hint: 'names with commas between them'},
      {name: 'default_queue_type', label: 'Default queue type', type: 'select', value: v.default_queue_type, options: [['', 'Not set'], 'classic', 'quorum']},
    ],
    async done({name = v.name, default_queue_type: type, tags, description}) {
      const names = tags.split(',').map((/** @type {string} */ t) => t.trim()).filter(Boolean);
      await put(path('vhosts', name), {description, tags: names.join(','), ...type ? {default_queue_type: type} : {}});
      say(isNew ? `The virtual host ${name} was added. Users need permissions to enter it.` : 'The virtual host was changed.');
    },
  });
}

/** @param {HTMLElement} main @param {import('../views.js').Context} context @param {string} name */
function one(main, context, name) {
  const place = h('div', {class: 'view'}), overview = section('Overview');
  const permissions = permissionTable(name, false, () => load());
  fill(main, adminMenu('vhosts'), back('vhosts', 'Virtual hosts'), heading(name,
    button('Update', async () => { if (await edit(await get(path('vhosts', name), context.signal), false)) await load(); }), button('Delete', () => drop(name), 'danger')), place);
  const load = refreshed(context, place, async () => {
    const [v, p, l] = await Promise.all([get(path('vhosts', name), context.signal), get(path('vhosts', name, 'permissions'), context.signal), get(path('vhost-limits', name), context.signal)]);
    const limits = l[0]?.value ?? {};
    fill(overview, h('h2', null, 'Overview'), facts([
      ['Description', orDash(v.description)], ['Tags', orDash((v.tags ?? []).join(', '))], ['Ready', count(v.messages_ready)], ['Unacked', count(v.messages_unacknowledged)], ['Total', count(v.messages)],
      ['Limits', [limitText(limits), ' ', button('Change', async () => { if (await editLimits('vhost', name, limits)) await load(); }, 'plain')]],
    ]));
    if (!permissions.element.isConnected) fill(place, overview, permissions.head, permissions.element);
    permissions.show(p);
  }, 'There is no such virtual host.');
}

/** @param {string} name */
async function drop(name) {
  const [v, queues] = await Promise.all([get(path('vhosts', name)), get(path('queues', name) + '?page=1&page_size=1&disable_stats=true')]);
  const done = await destroy({
    title: `Delete the virtual host ${name}?`, action: 'Delete', name, messages: v.messages ?? 0,
    text: `${plural(queues.total_count, 'queue')}, all exchanges, bindings, policies and permissions in it are deleted, and its connections closed.`, done: () => remove(path('vhosts', name)),
  });
  if (done) location.hash = href('vhosts');
}
