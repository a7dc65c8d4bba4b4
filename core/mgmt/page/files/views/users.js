// Users: all, and one with permissions and limits.

import {get, put, remove} from '../api.js';
import {adminMenu, back, button, facts, heading, isAdministrator, orDash, refreshed, section} from '../blocks.js';
import {ask, destroy, say} from '../dialog.js';
import {fill, h} from '../dom.js';
import {href, path} from '../link.js';
import {list, table} from '../table.js';
import {editLimits, limitText} from './limits.js';

/** The rights that each tag gives. @type {[string, string][]} */
const TAGS = [
  ['management', 'this page, for vhosts that the user may enter'], ['policymaker', 'queue policies and parameters there, too'],
  ['monitoring', 'see all connections, and what happens in all vhosts'], ['administrator', 'everything: users, vhosts, definitions, operator policies'],
];

/** @type {import('../views.js').View} */
export default function show(main, context) {
  if (!isAdministrator(context)) return void fill(main, adminMenu('users'), heading('Users'), h('p', {class: 'empty'}, 'Users are shown to users with the tag administrator.'));
  if (context.parts.length > 0) return one(main, context, context.parts[0]);
  const users = list(context, {path: 'users', label: 'Users', noun: 'user', columns, key: (u) => u.name, empty: 'There are no users.'});
  fill(main, adminMenu('users'), heading('Users', button('Add a user', async () => {
    if (await edit({name: '', tags: []}, true)) await users.load();
  }, 'primary')), users.element);
}

/** @type {import('../table.js').Column[]} */
const columns = [
  {title: 'Name', head: true, sort: 'name', cell: (u) => h('a', {href: href('users', [u.name])}, u.name)},
  {title: 'Tags', sort: 'tags', cell: (u) => tags(u)},
  {title: 'Has password', cell: (u) => u.password_hash ? 'yes' : h('span', {class: 'badge warn'}, 'no: cannot log in with one')},
];

/** @param {{tags: string[]}} u */
const tags = (u) => u.tags.length ? u.tags.map((t) => [h('span', {class: 'badge'}, t), ' ']) : orDash('');

/** @param {any} u @param {boolean} isNew */
function edit(u, isNew) {
  const boxes = TAGS.map(([tag, meaning]) => ({tag, box: /** @type {HTMLInputElement} */ (h('input', {type: 'checkbox', checked: u.tags.includes(tag)})), meaning}));
  const others = u.tags.filter((/** @type {string} */ t) => !TAGS.some(([tag]) => tag === t));
  const control = {
    element: h('div', {class: 'choices-list'}, boxes.map((b) => h('label', {class: 'check'}, b.box, h('span', null, b.tag, h('small', {class: 'quiet'}, ' ' + b.meaning))))),
    value: () => [...boxes.filter((b) => b.box.checked).map((b) => b.tag), ...others],
  };
  return ask({
    title: isNew ? 'Add a user' : `Change ${u.name}`, action: isNew ? 'Add user' : 'Update user',
    fields: [
      ...isNew ? [{name: 'name', label: 'Username', required: true}] : [],
      {name: 'password', label: 'Password', type: /** @type {const} */ ('password'), hint: isNew ? 'Empty: the user cannot log in with a password.' : 'Empty: it stays as it is.'},
      {name: 'again', label: 'Password again', type: /** @type {const} */ ('password')}, {name: 'tags', label: 'Tags', control},
    ],
    async done(v) {
      if (v.password !== v.again) throw new Error('The passwords differ.');
      const kept = isNew ? {password_hash: ''} : {password_hash: u.password_hash, hashing_algorithm: u.hashing_algorithm};
      await put(path('users', isNew ? v.name : u.name), {tags: v.tags, ...v.password ? {password: v.password} : kept});
      say(isNew ? ['User ', h('a', {href: href('users', [v.name])}, v.name), ' was added. Which virtual hosts the user may enter is set there.'] : `User ${u.name} was changed.`);
    },
  });
}

/** @param {HTMLElement} main @param {import('../views.js').Context} context @param {string} name */
function one(main, context, name) {
  const place = h('div', {class: 'view'});
  const permissions = permissionTable(name, true, () => load()), topics = topicTable(name, () => load());
  const overview = section('Overview');
  fill(main, adminMenu('users'), back('users', 'Users'), heading(name,
    button('Update user', async () => {
      const u = await get(path('users', name), context.signal);
      if (await edit(u, false)) await load();
    }), button('Delete', () => drop(name), 'danger')), place);
  const load = refreshed(context, place, async () => {
    const [u, p, t, l] = await Promise.all(['', 'permissions', 'topic-permissions'].map((part) => get(path('users', name, ...part ? [part] : []), context.signal)).concat(get(path('user-limits', name), context.signal)));
    const limits = l[0]?.value ?? {};
    fill(overview, h('h2', null, 'Overview'), facts([
      ['Tags', tags(u)], ['Has password', u.password_hash ? `yes, kept with ${u.hashing_algorithm}` : 'no'],
      ['Limits', [limitText(limits), ' ', button('Change', async () => { if (await editLimits('user', name, limits)) await load(); }, 'plain')]],
    ]));
    if (!permissions.element.isConnected) fill(place, overview, permissions.head, permissions.element, topics.head, topics.element);
    permissions.show(p);
    topics.show(t);
  }, 'There is no such user.');
}

/** @param {string} name */
async function drop(name) {
  const done = await destroy({title: `Delete the user ${name}?`, text: 'Its connections are closed, and its permissions are gone.', action: 'Delete', name, done: () => remove(path('users', name))});
  if (done) location.hash = href('users');
}

const REGEX = 'A regular expression that names must match: .* allows all, nothing allows none, ^app- those that begin with app-.';

/**
 * Returns the permissions of a user by vhost, or in a vhost by user, that can be set and cleared.
 * @param {string} name of the user or the vhost
 * @param {boolean} ofUser
 * @param {() => any} changed
 */
export function permissionTable(name, ofUser, changed) {
  const other = ofUser ? 'vhost' : 'user';
  const at = (/** @type {any} */ p) => path('permissions', p.vhost, p.user);
  const set = async (/** @type {any} */ p) => {
    if (await ask({
      title: 'Set permission', action: 'Set permission', text: REGEX,
      fields: [{name: other, label: ofUser ? 'Virtual host' : 'User', value: p[other] ?? (ofUser ? '/' : ''), required: true},
        {name: 'configure', label: 'Configure', value: p.configure ?? '.*', hint: 'declare, delete, set'}, {name: 'write', label: 'Write', value: p.write ?? '.*', hint: 'publish, bind to'}, {name: 'read', label: 'Read', value: p.read ?? '.*', hint: 'consume, get, look into, purge'}],
      done: ({[other]: it, ...rest}) => put(path('permissions', ofUser ? it : name, ofUser ? name : it), rest),
    })) await changed();
  };
  const t = table({
    label: 'Permissions', key: (p) => p[other], empty: ofUser ? 'The user may enter no virtual host.' : 'No user may enter this virtual host.',
    columns: [
      {title: ofUser ? 'Virtual host' : 'User', head: true, cell: (p) => h('a', {href: href(ofUser ? 'vhosts' : 'users', [p[other]])}, p[other])},
      ...['configure', 'write', 'read'].map((k) => ({title: k[0].toUpperCase() + k.slice(1) + ' regexp', cell: (/** @type {any} */ p) => h('span', {class: 'mono'}, orDash(p[k]))})),
      {title: '', actions: true, cell: (p) => [button('Change', () => set(p), 'plain'), button('Clear', () => clear(`permissions of ${p.user} in the virtual host ${p.vhost}`, at(p), changed), 'plain')]},
    ],
  });
  return {...t, head: h('div', {class: 'head'}, h('h2', null, 'Permissions'), button('Set permission', () => set({})))};
}

/** Asks before permissions are taken away: programs stop working by that. @param {string} what @param {string} address @param {() => any} changed */
async function clear(what, address, changed) {
  if (await destroy({title: 'Clear permissions?', text: `The ${what} are taken away.`, action: 'Clear', name: what, done: () => remove(address)})) await changed();
}

/** @param {string} user @param {() => any} changed */
function topicTable(user, changed) {
  const set = async (/** @type {any} */ p) => {
    if (await ask({
      title: 'Set topic permission', action: 'Set topic permission', text: REGEX,
      fields: [{name: 'vhost', label: 'Virtual host', value: p.vhost ?? '/', required: true}, {name: 'exchange', label: 'Exchange', value: p.exchange ?? 'amq.topic', required: true},
        {name: 'write', label: 'Write', value: p.write ?? '.*', hint: 'routing keys to publish with'}, {name: 'read', label: 'Read', value: p.read ?? '.*', hint: 'routing keys to bind with'}],
      done: ({vhost, ...rest}) => put(path('topic-permissions', vhost, user), rest),
    })) await changed();
  };
  const t = table({
    label: 'Topic permissions', key: (p) => p.vhost + ' ' + p.exchange, empty: 'None: all routing keys are allowed.',
    columns: [
      {title: 'Virtual host', head: true, cell: (p) => p.vhost}, {title: 'Exchange', cell: (p) => p.exchange || '(AMQP default)'},
      {title: 'Write regexp', cell: (p) => h('span', {class: 'mono'}, orDash(p.write))}, {title: 'Read regexp', cell: (p) => h('span', {class: 'mono'}, orDash(p.read))},
      {title: '', actions: true, cell: (p) => [button('Change', () => set(p), 'plain'), button('Clear', () => clear(`topic permissions of ${user} for ${p.exchange || 'the default exchange'} in the virtual host ${p.vhost}`, path('topic-permissions', p.vhost, user, p.exchange || 'amq.default'), changed), 'plain')]},
    ],
  });
  return {...t, head: h('div', {class: 'head'}, h('h2', null, 'Topic permissions'), button('Set topic permission', () => set({})))};
}
