// Connections: a list, and one connection with its channels.

import {call, get} from '../api.js';
import {back, button, facts, heading, orDash, refreshed, section, tree, yes} from '../blocks.js';
import {ask, say} from '../dialog.js';
import {fill, h} from '../dom.js';
import {bytes, count, dateTime} from '../format.js';
import {href, path} from '../link.js';
import {list, table} from '../table.js';
import {channelColumns, UNKNOWN} from './channels.js';

/** @type {import('../views.js').View} */
export default function show(main, context) {
  if (context.parts.length > 0) return one(main, context, context.parts[0]);
  const connections = list(context, {
    path: 'connections', query: UNKNOWN, label: 'Connections', noun: 'connection', columns, key: (c) => c.name,
    empty: [h('p', null, 'Nobody is connected.'), h('p', null, 'Clients connect with AMQP 0-9-1, as to RabbitMQ.')],
  });
  fill(main, heading('Connections', h('a', {class: 'button', href: href('channels')}, 'Channels')), connections.element);
}

/** @type {import('../table.js').Column[]} */
const columns = [
  {title: 'Name', head: true, sort: 'name', cell: (c) => [h('a', {href: href('connections', [c.name])}, c.user_provided_name || c.name), c.user_provided_name && h('div', {class: 'quiet small'}, c.name)]},
  {title: 'User name', sort: 'user', cell: (c) => c.user},
  {title: 'Virtual host', sort: 'vhost', cell: (c) => c.vhost, wide: true},
  {title: 'State', sort: 'state', cell: (c) => state(c.state)},
  {title: 'SSL / TLS', sort: 'ssl', cell: (c) => yes(c.ssl), wide: true},
  {title: 'Client', cell: (c) => client(c.client_properties), wide: true},
  {title: 'Channels', sort: 'channels', number: true, cell: (c) => count(c.channels)},
  {title: 'From client', sort: 'recv_oct_details.rate', number: true, cell: (c) => traffic(c.recv_oct_details)},
  {title: 'To client', sort: 'send_oct_details.rate', number: true, cell: (c) => traffic(c.send_oct_details)},
];

/** @param {string} text */
const state = (text) => h('span', {class: ['badge', text === 'running' ? 'good' : /block|flow/.test(text) ? 'warn' : '']}, text);
/** @param {{rate: number | null} | undefined} details */
const traffic = (details) => details?.rate == null ? '–' : bytes(Math.round(details.rate)) + '/s';

/** @param {any} properties */
function client(properties) {
  const {product, version, platform} = properties ?? {};
  return [orDash([product, version].filter((v) => typeof v === 'string').join(' ')), typeof platform === 'string' && h('div', {class: 'quiet small'}, platform)];
}

/** @param {HTMLElement} main @param {import('../views.js').Context} context @param {string} name */
function one(main, context, name) {
  const place = h('div', {class: 'view'});
  const channels = table({label: 'Channels', columns: channelColumns, key: (c) => c.name, empty: 'It has no channels.'});
  const overview = section('Overview'), properties = section('Client properties');
  fill(main, back('connections', 'Connections'), heading(name, button('Force Close', () => close(name), 'danger')), place);
  refreshed(context, place, async () => {
    const [c, all] = await Promise.all([path('connections', name), path('connections', name, 'channels')].map((p) => get(`${p}?${new URLSearchParams(UNKNOWN)}`, context.signal)));
    if (!channels.element.isConnected) fill(place, overview, h('h2', null, 'Channels'), channels.element, properties);
    fill(overview, h('h2', null, 'Overview'), facts(described(c)));
    fill(properties, h('h2', null, 'Client properties'), tree(c.client_properties));
    channels.show(all);
  }, 'The connection is closed.');
}

/** @param {any} c @returns {([string, import('../dom.js').Child] | false)[]} */
function described(c) {
  return [
    ['State', state(c.state)], ['User name', c.user], ['Virtual host', c.vhost], ['Connected at', dateTime(c.connected_at)],
    ['Client', `${c.peer_host}:${c.peer_port}`], ['Authentication', c.auth_mechanism], ['Protocol', c.protocol], ['Heartbeat', c.timeout ? c.timeout + ' s' : 'off'],
    ['Frame max', bytes(c.frame_max)], ['Channel limit', count(c.channel_max)],
    ['SSL / TLS', c.ssl ? [c.ssl_protocol, c.ssl_cipher].filter(Boolean).join(', ') || 'yes' : 'no'],
    ['From client', `${bytes(c.recv_oct)}, ${traffic(c.recv_oct_details)}`], ['To client', `${bytes(c.send_oct)}, ${traffic(c.send_oct_details)}`],
  ];
}

/** @param {string} name */
async function close(name) {
  const done = await ask({
    title: 'Close this connection?', action: 'Force Close', danger: true, text: 'Its unacknowledged messages go back to their queues, and its exclusive queues are deleted. The client sees the reason, and may connect again.',
    fields: [{name: 'reason', label: 'Reason', value: 'Closed via management page'}],
    // Headers are bytes, which browsers and the broker would read differently.
    async done({reason}) {
      if (/[^ -~]/.test(reason)) throw new Error('The reason can have letters, digits and signs of ASCII only.');
      await call('DELETE', path('connections', name), undefined, undefined, {'X-Reason': reason});
    },
  });
  if (!done) return;
  say('The connection was closed.');
  location.hash = href('connections');
}

