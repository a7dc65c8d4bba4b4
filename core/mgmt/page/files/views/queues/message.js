// One message with all that is known of it.

import {facts, orDash, tree} from '../../blocks.js';
import {until} from '../../clock.js';
import {h} from '../../dom.js';
import {dateTime, plural} from '../../format.js';
import {href} from '../../link.js';
import {payload} from './payload.js';

/**
 * @param {any} m a message, as peeking or getting shows it
 * @param {{vhost: string, whole: (() => Promise<any>) | null}} o
 */
export function message(m, {vhost, whole}) {
  const {headers = {}, ...properties} = Array.isArray(m.properties) ? {} : m.properties;
  const {'x-death': deaths, ...others} = headers;
  return h('div', {class: 'message'},
    h('div', {class: 'view'},
      h('section', null, h('h3', null, 'Message'), facts([
        ['Exchange', m.exchange === '' ? h('span', {class: 'quiet'}, '(AMQP default)') : h('a', {href: href('exchanges', [vhost, m.exchange])}, m.exchange)],
        ['Routing Key', orDash(m.routing_key)],
        m.id != null && properties.message_id == null && ['Id', [m.id, h('span', {class: 'quiet'}, ', the broker\'s own: it has no message_id')]],
        m.consumer != null && ['With', [m.consumer.consumer_tag ?? 'basic.get', ' of ', h('a', {href: href('channels', [m.consumer.channel])}, m.consumer.channel)]],
        ['Redelivered', m.redelivered ? 'yes' : 'no'],
        m.since != null && ['In this queue since', dateTime(m.since)],
        m.deadline != null && ['Deadline', [dateTime(m.deadline), ' (', until(m.deadline), ')']],
        m.hold != null && ['Held until', [dateTime(m.hold), ' (', until(m.hold), ')']],
        m.policy_digest != null && ['Deadline set by', ['module ', h('code', null, m.policy_digest)]],
        m.message_count != null && ['Messages behind it', String(m.message_count)],
        ...Object.entries(properties).map(([name, value]) => /** @type {[string, any]} */ ([name, written(name, value)])),
      ])),
      Array.isArray(deaths) && deaths.length > 0 && h('section', null, h('h3', null, 'Deaths (x-death)'), h('ol', {class: 'deaths'}, deaths.map((d) => h('li', null, death(vhost, d))))),
      Object.keys(others).length > 0 && h('section', null, h('h3', null, 'Headers'), tree(others))),
    payload(m, whole));
}

/** @param {string} name @param {any} value */
function written(name, value) {
  if (name === 'timestamp') return `${value} (${dateTime(value * 1000)})`;
  if (name === 'delivery_mode') return value === 2 ? '2 - Persistent' : value === 1 ? '1 - Non-persistent' : String(value);
  return name === 'expiration' ? value + ' ms' : String(value);
}

/**
 * Describes a death of a message. The facts come from a header, which any publisher can write.
 * @param {string} vhost @param {any} d
 */
function death(vhost, d) {
  if (!d || typeof d !== 'object') return String(d);
  const keys = Array.isArray(d['routing-keys']) ? d['routing-keys'].join(', ') : d['routing-keys'];
  return [
    h('strong', null, String(d.reason ?? 'died')), ' in ', h('a', {href: href('queues', [vhost, String(d.queue)])}, String(d.queue)),
    d.count > 1 && `, ${plural(d.count, 'time')}`, Number.isFinite(d.time) && ', ' + dateTime(d.time * 1000),
    h('div', {class: 'quiet small'}, 'it came from ', d.exchange ? `the exchange ${d.exchange}` : 'the default exchange', keys != null && keys !== '' && ` with the routing key ${keys}`,
      d['original-expiration'] != null && `, expiration ${d['original-expiration']} ms`),
  ];
}
