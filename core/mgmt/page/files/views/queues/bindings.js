// The bindings of a queue: from where messages come.

import {bindings} from '../../bindings.js';
import {fill, h} from '../../dom.js';
import {path} from '../../link.js';

/** @param {HTMLElement} main @param {import('./detail.js').Tab} tab */
export default function show(main, {context, vhost, name}) {
  const all = bindings({vhost, label: 'Bindings', address: path('queues', vhost, name, 'bindings'), from: false, end: {queue: name}, signal: context.signal});
  const failed = h('p', {class: 'error', role: 'alert'});
  main.append(all.head, failed, all.element);
  context.every(5000, () => all.load().then(() => void fill(failed), (error) => {
    if (!context.signal.aborted) fill(failed, error.message);
  }));
}
