// One exchange: its properties, the messages that it holds, its bindings.

import {get, remove} from '../../api.js';
import {back, button, facts, heading, refreshed, section, tree, yes} from '../../blocks.js';
import {bindings} from '../../bindings.js';
import {until} from '../../clock.js';
import {destroy} from '../../dialog.js';
import {fill, h} from '../../dom.js';
import {count} from '../../format.js';
import {held} from '../../held.js';
import {href, path} from '../../link.js';
import {publish} from '../../publish.js';
import {called, features} from './list.js';

/** @type {import('../../views.js').View} */
export default function show(main, context) {
  const [vhost, inPath] = context.parts, name = inPath === 'amq.default' ? '' : inPath;
  const at = (/** @type {string[]} */ ...parts) => path('exchanges', vhost, inPath, ...parts);
  const place = h('div', {class: 'view'}), overview = section('Overview');
  const from = bindings({vhost, label: 'Bindings from this exchange', address: at('bindings', 'source'), from: true, end: {exchange: name}, signal: context.signal});
  const to = bindings({vhost, label: 'Bindings to this exchange', address: at('bindings', 'destination'), from: false, end: {exchange: name}, signal: context.signal});
  fill(main, back('exchanges', 'Exchanges'), heading(called(name), button('Publish message', () => publish({vhost, exchange: name}), 'primary'),
    name !== '' && !name.startsWith('amq.') && button('Delete', () => drop(vhost, name), 'danger')), place);
  refreshed(context, place, async () => {
    const x = await get(at(), context.signal);
    fill(overview, h('h2', null, 'Overview'), facts([
      ['Virtual host', vhost], ['Type', x.type], ['Features', features(x)], ['Durable', yes(x.durable)], ['Auto delete', yes(x.auto_delete)], ['Internal', yes(x.internal)],
      ['Arguments', tree(x.arguments)], ['Policy', x.policy ?? h('span', {class: 'quiet'}, 'none')],
      x.messages_delayed != null && ['Held', [count(x.messages_delayed), x.next_release != null && [', the next is released ', until(x.next_release)]]],
    ]));
    if (!overview.isConnected) {
      fill(place, overview, x.messages_delayed != null && [h('h2', null, 'Scheduled messages'), held(context, at('scheduled'), name, true)],
        from.head, from.element, name !== '' && [to.head, to.element]);
    }
    await Promise.all([name !== '' && from.load(), name !== '' && to.load()]);
    if (name === '') fill(from.element, h('p', {class: 'empty'}, 'Each queue is bound to the default exchange with its name. That cannot be changed.'));
  }, 'There is no such exchange.');
}

/** @param {string} vhost @param {string} name */
async function drop(vhost, name) {
  const x = await get(path('exchanges', vhost, name));
  const done = await destroy({
    title: `Delete the exchange ${name}?`, action: 'Delete', name, messages: x.messages_delayed ?? 0, text: 'Its bindings are gone with it, and messages that it holds are dropped. Publishers to it get an error.',
    done: () => remove(path('exchanges', vhost, name)),
  });
  if (done) location.hash = href('exchanges');
}
