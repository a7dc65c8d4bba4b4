// The consumers of a queue.

import {orDash, setting, yes} from '../../blocks.js';
import {h} from '../../dom.js';
import {duration} from '../../format.js';
import {href} from '../../link.js';
import {table} from '../../table.js';

/** @param {HTMLElement} main @param {import('./detail.js').Tab} tab */
export default function show(main, tab) {
  const consumers = table({
    label: 'Consumers', key: (c) => c.channel_details.name + '\u0000' + c.consumer_tag,
    empty: [h('p', null, 'No consumers. Messages wait here until they expire, or a program consumes them.')],
    columns: [
      {title: 'Channel', head: true, cell: (c) => [h('a', {href: href('channels', [c.channel_details.name])}, c.channel_details.name), h('div', {class: 'quiet small'}, c.channel_details.user)]},
      {title: 'Consumer tag', cell: (c) => c.consumer_tag},
      {title: 'Ack required', wide: true, cell: (c) => yes(c.ack_required)},
      {title: 'Exclusive', wide: true, cell: (c) => yes(c.exclusive)},
      {title: 'Active', wide: true, cell: (c) => yes(c.active)},
      {title: 'Activity status', wide: true, cell: (c) => c.activity_status},
      {title: 'Prefetch count', number: true, wide: true, cell: (c) => c.prefetch_count || h('span', {class: 'quiet'}, 'no limit')},
      {title: 'Delivery lease', number: true, wide: true, cell: (c) => duration(c.delivery_lease)},
      {title: 'Arguments', wide: true, cell: (c) => Object.keys(c.arguments).length === 0 ? orDash('') : Object.entries(c.arguments).map(([k, v], i) => [i > 0 && ', ', k, ': ', setting(k.replace(/^x-/, ''), v)])},
    ],
  });
  main.append(h('h2', {class: 'unseen'}, 'Consumers'), consumers.element);
  tab.follow((q) => consumers.show(q.consumer_details ?? []));
}
