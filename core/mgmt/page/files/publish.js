// Publishing a message by hand: to an exchange, or to a queue by the default exchange.

import {post} from './api.js';
import {ask, say} from './dialog.js';
import {path} from './link.js';
import {typed} from './typed.js';

/** @type {import('./typed.js').Known[]} */
const properties = [
  {name: 'message_id', type: 'String', title: 'Message id', hint: 'identifies the message; it can be searched for'},
  {name: 'content_type', type: 'String', title: 'Content type', hint: 'such as application/json'},
  {name: 'correlation_id', type: 'String', title: 'Correlation id', hint: 'of the request that this answers'},
  {name: 'reply_to', type: 'String', title: 'Reply to', hint: 'queue for answers'},
  {name: 'priority', type: 'Number', title: 'Priority', hint: '0 to 255, in queues with x-max-priority'},
  {name: 'type', type: 'String', title: 'Type', hint: 'of the message, for consumers'},
  {name: 'timestamp', type: 'Number', title: 'Timestamp', hint: 'in seconds since 1970'},
  {name: 'content_encoding', type: 'String', title: 'Content encoding', hint: 'such as gzip'},
  {name: 'user_id', type: 'String', title: 'User id', hint: 'must be the user who publishes'},
  {name: 'app_id', type: 'String', title: 'App id', hint: 'of the program that publishes'},
];

/** @type {import('./typed.js').Known[]} */
const headers = [
  {name: 'x-deliver-after', type: 'Number', title: 'Deliver after', hint: 'ms for which the message is held, up to ten years'},
  {name: 'CC', type: 'List', title: 'CC', hint: 'further routing keys, such as ["a", "b"]'},
];

/**
 * Asks for a message, and publishes it.
 * @param {object} o
 * @param {string} o.vhost
 * @param {string} o.exchange "" is the default exchange
 * @param {string} [o.queue] name of the queue, if the message is for that
 * @param {string} [o.note]
 */
export function publish({vhost, exchange, queue, note}) {
  const fixed = queue !== undefined;
  return ask({
    title: 'Publish message', action: 'Publish message',
    text: note ?? (fixed ? `It goes through the default exchange to the queue ${queue}.` : null),
    fields: [
      ...fixed ? [] : [{name: 'key', label: 'Routing key'}],
      {name: 'payload', label: 'Payload', type: 'textarea'},
      {name: 'encoding', label: 'Payload encoding', type: 'select', options: [['string', 'String'], ['base64', 'Base64']], value: 'string'},
      {name: 'expiration', label: 'Expiration', hint: 'ms after which it expires in a queue; empty: as the queue says'},
      {name: 'mode', label: 'Delivery mode', type: 'select', options: [['1', '1 - Non-persistent'], ['2', '2 - Persistent']], value: '2'},
      {name: 'headers', label: 'Headers', control: typed({noun: 'header', known: headers})},
      {name: 'properties', label: 'Properties', control: typed({noun: 'property', known: properties})},
    ],
    async done(v) {
      const {routed} = await post(path('exchanges', vhost, exchange || 'amq.default', 'publish'), {
        routing_key: fixed ? queue : v.key, payload: v.payload, payload_encoding: v.encoding,
        properties: {...v.properties, delivery_mode: Number(v.mode), ...v.expiration === '' ? {} : {expiration: v.expiration}, ...Object.keys(v.headers).length > 0 && {headers: v.headers}},
      });
      say(routed ? 'Message published.' : 'Message published, but not routed: no queue got it.');
    },
  });
}
