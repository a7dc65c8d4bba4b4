// The list of exchanges, and a form for a new one.

import {get, put} from '../../api.js';
import {button, explained, heading, inVHost} from '../../blocks.js';
import {until} from '../../clock.js';
import {ask, say} from '../../dialog.js';
import {h} from '../../dom.js';
import {count} from '../../format.js';
import {href, path} from '../../link.js';
import {list} from '../../table.js';
import {typed} from '../../typed.js';

/** Returns the name to show; the default exchange has none of its own. @param {string} name */
export const called = (name) => name || '(AMQP default)';

/** @type {import('../../table.js').Column[]} */
const columns = [
  {title: 'Name', sort: 'name', head: true, cell: (x) => [h('a', {href: href('exchanges', [x.vhost, x.name || 'amq.default'])}, called(x.name)), inVHost(x.vhost, 'narrow')]},
  {title: 'Virtual host', sort: 'vhost', wide: true, cell: (x) => x.vhost},
  {title: 'Type', sort: 'type', cell: (x) => x.type},
  {title: 'Features', cell: features},
  {title: 'Held', sort: 'messages_delayed', number: true, cell: (x) => x.messages_delayed == null ? h('span', {class: 'quiet'}, '–') : count(x.messages_delayed)},
  {title: 'Next release', sort: 'next_release', cell: (x) => until(x.next_release)},
];

/** Returns the features of an exchange, as RabbitMQ abbreviates them. @param {any} x */
export function features(x) {
  const others = Object.entries(x.arguments ?? {}).filter(([k]) => k !== 'alternate-exchange'), alternate = x.arguments?.['alternate-exchange'];
  const all = /** @type {[any, string, string][]} */ ([
    [x.durable, 'D', 'D: durable: it survives a restart'], [x.auto_delete, 'AD', 'AD: auto-delete: it goes with its last binding'],
    [x.internal, 'I', 'I: internal: clients cannot publish to it'], [alternate !== undefined, 'AE', `AE: alternate exchange: ${alternate}`],
    [others.length > 0, 'Args', others.map(([k, v]) => `${k}: ${JSON.stringify(v)}`).join('\n')], [x.policy, x.policy, `policy ${x.policy}`],
  ]).filter(([is]) => is);
  return all.length > 0 && explained(all.map(([, text]) => h('span', {class: 'badge'}, text)), all.map(([, , means]) => means), 'badges');
}

/** @type {import('../../views.js').View} */
export default function show(main, context) {
  const exchanges = list(context, {
    path: context.parts[0] ? path('exchanges', context.parts[0]) : 'exchanges', label: 'Exchanges', noun: 'exchange', columns, key: (x) => x.vhost + '\u0000' + x.name, empty: 'No exchange has such a name.',
  });
  main.append(heading('Exchanges', button('Add a new exchange', () => add(exchanges.load), 'primary')), exchanges.element);
}

/** @type {import('../../typed.js').Known[]} */
const known = [
  {name: 'alternate-exchange', type: 'String', title: 'Alternate exchange', hint: 'gets messages that no queue would'},
  {name: 'x-delayed-type', type: 'String', title: 'Delayed type', hint: 'how an exchange of the type x-delayed-message routes', options: ['direct', 'fanout', 'topic', 'headers']},
];

/** @param {() => any} added */
async function add(added) {
  const [overview, vhosts] = await Promise.all([get('overview?columns=exchange_types'), get('vhosts?columns=name')]);
  const done = await ask({
    title: 'Add a new exchange', action: 'Add exchange',
    fields: [
      {name: 'vhost', label: 'Virtual host', type: 'select', options: vhosts.map((/** @type {{name: string}} */ v) => v.name)}, {name: 'name', label: 'Name', required: true},
      {name: 'type', label: 'Type', type: 'select', options: overview.exchange_types.map((/** @type {{name: string}} */ t) => t.name)},
      {name: 'durable', label: 'Durable', type: 'checkbox', value: true, hint: 'it survives a restart'}, {name: 'auto_delete', label: 'Auto delete', type: 'checkbox', hint: 'it goes with its last binding'},
      {name: 'internal', label: 'Internal', type: 'checkbox', hint: 'only exchanges publish to it'}, {name: 'arguments', label: 'Arguments', control: typed({noun: 'argument', known})},
    ],
    async done({vhost, name, ...x}) {
      await put(path('exchanges', vhost, name), x);
      say(`The exchange ${name} was added.`);
    },
  });
  if (done) await added();
}
