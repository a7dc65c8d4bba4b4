// The arguments of queues that the broker knows, for forms and for lists of effective settings.

const YEARS = 'up to ten years';

/** @type {import('../../typed.js').Known[]} */
export const queueArguments = [
  {name: 'x-message-ttl', type: 'Number', title: 'Message TTL', hint: `ms that a message may stay, ${YEARS}; then it expires`},
  {name: 'x-expires', type: 'Number', title: 'Auto expire', hint: 'ms, at least 1, that the queue may stay unused; then it is deleted'},
  {name: 'x-expiry-strategy', type: 'String', title: 'Expiry strategy', hint: 'deadline, rabbitmq, lavinmq, ottermq or wasm/NAME: sets deadlines, and says where they are acted on'},
  {name: 'x-dead-letter-exchange', type: 'String', title: 'Dead letter exchange', hint: 'gets messages that expire, are rejected or are too many; empty: the default exchange'},
  {name: 'x-dead-letter-routing-key', type: 'String', title: 'Dead letter routing key', hint: 'in place of the message\'s own'},
  {name: 'x-dead-letter-strategy', type: 'String', title: 'Dead letter strategy', hint: 'at-least-once: a dead letter stays until its targets have it', options: ['at-most-once', 'at-least-once']},
  {name: 'x-max-length', type: 'Number', title: 'Max length', hint: 'ready messages, from 0'},
  {name: 'x-max-length-bytes', type: 'Number', title: 'Max length bytes', hint: 'bytes of ready messages\' bodies, from 0'},
  {name: 'x-overflow', type: 'String', title: 'Overflow behaviour', hint: 'what happens beyond the limit', options: ['drop-head', 'reject-publish', 'reject-publish-dlx']},
  {name: 'x-single-active-consumer', type: 'Boolean', title: 'Single active consumer', hint: 'one consumer at a time gets messages'},
  {name: 'x-max-priority', type: 'Number', title: 'Maximum priority', hint: '1 to 255; classic queues'},
  {name: 'x-delivery-limit', type: 'Number', title: 'Delivery limit', hint: 'failed deliveries after which a message is dead-lettered; quorum queues'},
  {name: 'x-delivery-lease', type: 'Number', title: 'Delivery lease', hint: 'ms within which a delivery must be settled, or its message comes back'},
  {name: 'x-delivery-delay', type: 'Number', title: 'Delivery delay', hint: `ms for which what enters is held, ${YEARS}`},
  {name: 'x-delayed-retry-type', type: 'String', title: 'Delayed retry', hint: 'which messages wait before they are delivered again; needs x-delayed-retry-min', options: ['all', 'failed', 'returned', 'disabled']},
  {name: 'x-delayed-retry-min', type: 'Number', title: 'Retry minimum', hint: 'ms before a message is delivered again'},
  {name: 'x-delayed-retry-max', type: 'Number', title: 'Retry maximum', hint: 'ms, not below the minimum'},
  {name: 'x-delayed-retry-multiplier', type: 'Number', title: 'Retry multiplier', hint: '1 to 1000, of each further wait'},
  {name: 'x-message-deduplication', type: 'Boolean', title: 'Deduplication', hint: 'drops messages whose x-deduplication-header is in the queue already'},
];
