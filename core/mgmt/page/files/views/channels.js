// Channels: all, and one with its consumers.

import {get} from '../api.js';
import {back, explained, facts, heading, refreshed, section, yes} from '../blocks.js';
import {fill, h} from '../dom.js';
import {count, duration, rate} from '../format.js';
import {href, path} from '../link.js';
import {list, table} from '../table.js';

/** @type {import('../views.js').View} */
export default function show(main, context) {
  if (context.parts.length > 0) return one(main, context, context.parts[0]);
  const channels = list(context, {path: 'channels', query: UNKNOWN, label: 'Channels', noun: 'channel', columns: channelColumns, key: (c) => c.name, empty: 'There are no channels: nobody is connected.'});
  fill(main, back('connections', 'Connections'), heading('Channels'), channels.element);
}

/** The parameters of lists that show rates: rates are null until they are known. */
export const UNKNOWN = {unknown_rates: 'true'};

/** The columns of tables of channels. @type {import('../table.js').Column[]} */
export const channelColumns = [
  {title: 'Channel', head: true, sort: 'name', cell: (c) => h('a', {href: href('channels', [c.name])}, c.name)},
  {title: 'User name', sort: 'user', cell: (c) => c.user, wide: true},
  {title: 'Mode', cell: (c) => mode(c)},
  {title: 'Consumers', sort: 'consumer_count', number: true, cell: (c) => count(c.consumer_count)},
  {title: 'Unacked', sort: 'messages_unacknowledged', number: true, cell: (c) => count(c.messages_unacknowledged)},
  {title: 'Unconfirmed', sort: 'messages_unconfirmed', number: true, wide: true, cell: (c) => count(c.messages_unconfirmed)},
  {title: 'Prefetch', sort: 'prefetch_count', number: true, cell: (c) => c.prefetch_count || c.global_prefetch_count || h('span', {class: 'quiet'}, 'no limit')},
  {title: 'publish', sort: 'message_stats.publish_details.rate', number: true, cell: (c) => rate(c.message_stats?.publish_details?.rate)},
  {title: 'deliver / get', sort: 'message_stats.deliver_get_details.rate', number: true, cell: (c) => rate(c.message_stats?.deliver_get_details?.rate)},
  {title: 'ack', sort: 'message_stats.ack_details.rate', number: true, cell: (c) => rate(c.message_stats?.ack_details?.rate)},
];

/** @param {any} c */
function mode(c) {
  if (c.transactional) return explained(h('span', {class: 'badge'}, 'transactional'), 'It uses transactions');
  return c.confirm ? explained(h('span', {class: 'badge'}, 'confirms'), 'Its messages are confirmed') : h('span', {class: 'quiet'}, '–');
}

/** @type {import('../table.js').Column[]} */
const consumerColumns = [
  {title: 'Consumer tag', head: true, cell: (c) => c.consumer_tag},
  {title: 'Queue', cell: (c) => h('a', {href: href('queues', [c.queue.vhost, c.queue.name])}, c.queue.name)},
  {title: 'Ack required', cell: (c) => yes(c.ack_required)},
  {title: 'Exclusive', cell: (c) => yes(c.exclusive), wide: true},
  {title: 'Prefetch', number: true, cell: (c) => c.prefetch_count || h('span', {class: 'quiet'}, 'no limit')},
  {title: 'Delivery lease', number: true, wide: true, cell: (c) => duration(c.delivery_lease)},
];

/** @param {HTMLElement} main @param {import('../views.js').Context} context @param {string} name */
function one(main, context, name) {
  const place = h('div', {class: 'view'}), overview = section('Overview');
  const consumers = table({label: 'Consumers', columns: consumerColumns, key: (c) => c.queue.name + ' ' + c.consumer_tag, empty: 'It has no consumers.'});
  fill(main, back('channels', 'Channels'), heading(name), place);
  refreshed(context, place, async () => {
    const c = await get(`${path('channels', name)}?${new URLSearchParams(UNKNOWN)}`, context.signal);
    if (!consumers.element.isConnected) fill(place, overview, h('h2', null, 'Consumers'), consumers.element);
    fill(overview, h('h2', null, 'Overview'), facts([
      ['Connection', h('a', {href: href('connections', [c.connection_details.name])}, c.connection_details.name)], ['User name', c.user], ['Virtual host', c.vhost],
      ['Confirms', yes(c.confirm)], ['Transactional', yes(c.transactional)], ['Prefetch', c.prefetch_count || 'no limit'], ['Global prefetch', c.global_prefetch_count || 'no limit'],
      ['Unacked', count(c.messages_unacknowledged)], ['Unconfirmed', count(c.messages_unconfirmed)],
      ['publish', rate(c.message_stats?.publish_details?.rate)], ['deliver / get', rate(c.message_stats?.deliver_get_details?.rate)], ['ack', rate(c.message_stats?.ack_details?.rate)],
    ]));
    consumers.show(c.consumer_details ?? []);
  }, 'The channel is closed.');
}
