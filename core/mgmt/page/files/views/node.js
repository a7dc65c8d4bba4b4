// The node: its machine, its limits, its listeners.

import {get, put} from '../api.js';
import {adminMenu, button, explained, facts, heading, isAdministrator, orDash, refreshed, section} from '../blocks.js';
import {ask} from '../dialog.js';
import {fill, h} from '../dom.js';
import {bytes, count, duration} from '../format.js';
import {href, path} from '../link.js';
import {table} from '../table.js';

/** @type {import('../views.js').View} */
export default function show(main, context) {
  const change = (/** @type {() => any} */ what) => isAdministrator(context) && [' ', button('Change', what, 'plain')];
  const place = h('div', {class: 'view'}), overview = section('Overview'), limits = section('Limits'), files = section('Files');
  const listeners = table({label: 'Listening ports', key: (l) => l.protocol + l.ip_address + l.port, empty: 'It listens nowhere.', columns: [
    {title: 'Protocol', head: true, cell: (l) => l.protocol}, {title: 'Bound to', cell: (l) => l.ip_address}, {title: 'Port', number: true, cell: (l) => String(l.port)},
  ]});
  const nodes = table({label: 'Nodes', key: (n) => n.name, empty: '', columns: [
    {title: 'Node', head: true, cell: (n) => h('a', {href: href('nodes', [n.name])}, n.name)},
    {title: 'State', cell: (n) => n.running ? 'running' : h('span', {class: 'badge bad'}, 'no answer')},
    {title: 'Owner of', cell: (n) => orDash(n.owns.join(', '))},
    {title: 'Entries behind', number: true, cell: (n) => n.lag >= 0 ? count(n.lag) : 'not known'},
  ]});
  fill(main, adminMenu('node'), heading('Node'), nodes.element, place);
  if (!context.user.tags.some((t) => t === 'monitoring' || t === 'administrator')) return void fill(place, h('p', {class: 'empty'}, 'The node is shown to users with the tag monitoring or administrator.'));
  const load = refreshed(context, place, async () => {
    const [o, all] = await Promise.all([get('overview', context.signal), get('cluster', context.signal)]);
    const name = context.parts[0] ?? o.node;
    nodes.element.hidden = !all.clustered;
    nodes.show(all.nodes.map((/** @type {any} */ n) => ({
      ...n, owns: all.shards.filter((/** @type {any} */ s) => s.owner === n.name).flatMap((/** @type {any} */ s) => s.registry ? ['the registry'] : s.vhosts),
      lag: Math.max(0, ...all.shards.map((/** @type {any} */ s) => s.replicas.find((/** @type {any} */ r) => r.node === n.name)?.lag ?? NaN)),
    })));
    const n = await get(path('nodes', name), context.signal);
    fill(overview, h('h2', null, name), facts([
      ['Broker', `${o.product_name} ${o.product_version}`], ['API of', `RabbitMQ ${o.rabbitmq_version}`],
      ['Cluster name', [o.cluster_name, change(() => rename(o.cluster_name, load))]], ['Up for', duration(n.uptime)],
      ['Memory', bytes(n.mem_used)], ['Free disk space', bytes(n.disk_free)], ['File descriptors', `${count(n.fd_used)} of ${count(n.fd_total)}`],
      ['Connections', count(n.sockets_used)], ['Processors', count(n.processors)], ['Process', n.os_pid],
      ['Exchange types', n.exchange_types.map((/** @type {{name: string, description: string}} */ t) => [explained(h('span', {class: 'badge'}, t.name), t.description), ' '])],
    ]));
    fill(limits, h('h2', null, 'Limits'), h('p', {class: 'quiet'}, 'Beyond them publishers wait. What is set here holds until the broker ends; the configuration holds for ever.'), facts([
      ['Memory', [alarm(n.mem_alarm, n.mem_limit ? `up to ${bytes(n.mem_limit)}` : 'no limit'), change(() => watermark(name, load))]],
      ['Free disk space', [alarm(n.disk_free_alarm, `at least ${bytes(n.disk_free_limit)}`), change(() => reserve(name, load))]],
    ]));
    fill(files, h('h2', null, 'Files'), facts([['Data folder', n.db_dir], ['Configuration', n.config_files.join(', ') || 'none: the defaults'], ['Logs', n.log_files.join(', ') || 'standard error']]));
    if (!overview.isConnected) fill(place, h('div', {class: 'halves'}, overview, h('div', {class: 'view'}, limits, files)), h('h2', null, 'Listening ports'), listeners.element);
    listeners.show((o.listeners ?? []).filter((/** @type {any} */ l) => l.node === name));
  });
}

/** @param {boolean} raised @param {string} text */
const alarm = (raised, text) => raised ? [text, ' ', h('span', {class: 'badge bad'}, 'alarm')] : text;

/** @param {string} name @param {() => any} done */
async function rename(name, done) {
  if (await ask({title: 'Cluster name', action: 'Change name', fields: [{name: 'name', label: 'Name', value: name, required: true}], done: (v) => put('cluster-name', v)})) await done();
}

/** @param {string} node @param {() => any} done */
async function watermark(node, done) {
  const fields = [{name: 'limit', label: 'Memory limit', hint: 'a share of the machine\'s memory from 0 to 1, such as 0.4, or a size, such as 2 GiB', required: true}];
  if (await ask({title: 'Memory limit', action: 'Set limit', fields, done: ({limit}) => put(path('nodes', node, 'memory-watermark'), amount(limit))})) await done();
}

/** @param {string} node @param {() => any} done */
async function reserve(node, done) {
  const fields = [{name: 'limit', label: 'Free disk space', hint: 'a size, such as 1 GiB, or so many times the machine\'s memory, such as 0.5', required: true}];
  if (await ask({title: 'Free disk space', action: 'Set limit', fields, done: ({limit}) => put(path('nodes', node, 'disk-free-limit'), amount(limit))})) await done();
}

/**
 * Reads a size with its unit, or a multiple of the machine's memory.
 * @param {string} text
 */
function amount(text) {
  const [, number, unit] = /^\s*([\d.]+)\s*([kmgt]i?b?|b)?\s*$/i.exec(text) ?? [];
  if (number === undefined || !Number.isFinite(Number(number))) throw new Error(`"${text}" is neither a size, such as 2 GiB, nor a multiple, such as 0.4.`);
  if (!unit) return {relative: Number(number)};
  const base = /i/i.test(unit) || unit.length === 1 ? 1024 : 1000;
  return {absolute: Math.round(Number(number) * base ** ' kmgt'.indexOf(unit[0].toLowerCase() === 'b' ? ' ' : unit[0].toLowerCase()))};
}
