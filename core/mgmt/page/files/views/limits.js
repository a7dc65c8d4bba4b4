// Limits of users and virtual hosts.

import {get, put, remove} from '../api.js';
import {adminMenu, button, heading, isAdministrator, refreshed} from '../blocks.js';
import {ask} from '../dialog.js';
import {fill, h} from '../dom.js';
import {href, path} from '../link.js';
import {table} from '../table.js';

/** @type {Record<string, [string, string][]>} */
const KINDS = {
  user: [['max-connections', 'Connections that the user may have'], ['max-channels', 'Channels that the user may have']],
  vhost: [['max-connections', 'Connections to the virtual host'], ['max-queues', 'Queues in the virtual host']],
};

/** @type {import('../views.js').View} */
export default function show(main, context) {
  const place = h('div', {class: 'view'});
  const one = (/** @type {'user' | 'vhost'} */ kind, /** @type {string} */ label, /** @type {string} */ empty) => {
    const t = table({label, empty, key: (l) => l[kind], columns: [
      {title: kind === 'user' ? 'User' : 'Virtual host', head: true, cell: (l) => h('a', {href: href(kind + 's', [l[kind]])}, l[kind])},
      {title: 'Limits', cell: (l) => limitText(l.value)}, {title: '', actions: true, cell: (l) => isAdministrator(context) && button('Change', async () => { if (await editLimits(kind, l[kind], l.value)) await load(); }, 'plain')},
    ]});
    return {...t, head: h('div', {class: 'head'}, h('h2', null, label))};
  };
  const vhosts = one('vhost', 'Virtual host limits', 'No virtual host has a limit. Limits are set where the virtual host is shown.');
  const users = one('user', 'User limits', 'No user has a limit. Limits are set where the user is shown.');
  fill(main, adminMenu('limits'), heading('Limits'), place);
  const load = refreshed(context, place, async () => {
    const [v, u] = await Promise.all([get('vhost-limits', context.signal), get('user-limits', context.signal)]);
    if (!vhosts.element.isConnected) fill(place, vhosts.head, vhosts.element, users.head, users.element);
    vhosts.show(v);
    users.show(u);
  });
}

/**
 * Asks for the limits of a user or a virtual host.
 * @param {'user' | 'vhost'} kind @param {string} name @param {Record<string, number>} now
 */
export function editLimits(kind, name, now) {
  return ask({
    title: `Limits of ${name}`, action: 'Set limits',
    fields: KINDS[kind].map(([limit, hint]) => ({name: limit, label: limit, type: 'number', value: now[limit], hint: hint + '; empty: no limit.'})),
    async done(values) {
      for (const [limit, value] of Object.entries(values)) {
        if (value !== null) await put(path(kind + '-limits', name, limit), {value});
        else if (limit in now) await remove(path(kind + '-limits', name, limit));
      }
    },
  });
}

/** Returns limits in words. @param {Record<string, number>} limits */
export function limitText(limits) {
  const all = Object.entries(limits);
  return all.length ? all.map(([k, n]) => `${k} ${n < 0 ? 'unlimited' : n}`).join(', ') : h('span', {class: 'quiet'}, 'none');
}
