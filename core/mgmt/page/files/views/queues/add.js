// The form for a new queue.

import {get, put} from '../../api.js';
import {ask, say} from '../../dialog.js';
import {h} from '../../dom.js';
import {href, path} from '../../link.js';
import {typed} from '../../typed.js';
import {queueArguments} from './arguments.js';

/** @param {string} chosen vhost that is chosen first @param {() => void} done */
export async function addQueue(chosen, done) {
  const vhosts = await names();
  return ask({
    title: 'Add a new queue', action: 'Add queue',
    fields: [
      {name: 'vhost', label: 'Virtual host', type: 'select', options: vhosts, value: chosen || '/'},
      {name: 'type', label: 'Type', type: 'select', options: [['classic', 'Classic'], ['quorum', 'Quorum']], value: 'classic'},
      {name: 'name', label: 'Name', required: true, hint: 'up to 255 bytes, not beginning with amq.'},
      {name: 'durable', label: 'Durability', type: 'select', options: [['true', 'Durable'], ['false', 'Transient']], value: 'true'},
      {name: 'auto_delete', label: 'Auto delete', type: 'select', options: [['false', 'No'], ['true', 'Yes']], value: 'false', hint: 'Yes: it is deleted after its last consumer has left'},
      {name: 'arguments', label: 'Arguments', control: typed({noun: 'argument', known: queueArguments})},
    ],
    async done(v) {
      const args = v.type === 'classic' ? v.arguments : {...v.arguments, 'x-queue-type': v.type};
      await put(path('queues', v.vhost, v.name), {durable: v.durable === 'true', auto_delete: v.auto_delete === 'true', arguments: args});
      say(['Queue ', h('a', {href: href('queues', [v.vhost, v.name])}, v.name), ' added.']);
      done();
    },
  });
}

/** Returns the names of the vhosts that the user may enter. @returns {Promise<string[]>} */
export async function names() {
  const all = await get('vhosts?columns=name');
  return all.map((/** @type {{name: string}} */ v) => v.name);
}
