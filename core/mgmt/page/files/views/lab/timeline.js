// The answer of a simulation: decisions and their times, beside a shadow's.

import {h} from '../../dom.js';
import {duration, exactly} from '../../format.js';
import {href} from '../../link.js';
import {exchangeName, parts, short} from '../../verdict.js';

/** @type {Record<string, [string, string]>} the ends of a message, and their colours */
const ENDS = {
  ready: ['It stays in the queue, ready, until a consumer takes it.', 'good'], held: ['It is held.', 'accent'],
  unacked: ['A consumer has it.', 'accent'], acked: ['It was acknowledged.', 'good'], expired: ['It expired, and is gone.', 'warn'],
  dropped: ['It was dropped.', 'warn'], dead_lettered: ['It was dead-lettered.', 'warn'], refused: ['The queue refused it: the publisher gets basic.nack.', 'bad'],
  channel_closed: ['It was not published: the broker closes the publisher\'s channel.', 'bad'],
};

/** @param {any} answer of POST /api/simulations */
export function timeline(answer) {
  const shadowed = answer.timeline.some((/** @type {any} */ e) => e.shadow);
  const [end, style] = ENDS[answer.end.state] ?? [answer.end.state, ''];
  return h('div', {class: 'sim'},
    h('p', {class: 'quiet small'}, `Queue ${answer.queue.name}, strategy ${answer.queue.expiry_strategy || '–'}; the message enters ${exactly(answer.at)}.`),
    h('ol', {class: ['timeline', shadowed && 'two']},
      shadowed && h('li', {class: 'titles', 'aria-hidden': 'true'}, h('span'), h('span', null, 'In force'), h('span', null, 'Shadow')),
      answer.timeline.map((/** @type {any} */ e) => event(e, answer, shadowed))),
    h('p', {role: 'status'}, h('span', {class: ['badge', style]}, answer.end.state.replace('_', ' ')), ' ', end, answer.end.reason && ` Reason: ${answer.end.reason}.`,
      answer.end.to && [' ', destination(answer.end.to, answer.queue.vhost)],
      !answer.complete && h('strong', null, ' The simulation ended before the message did: it reached one of its limits.')));
}

/** @param {any} v a verdict @param {any} answer */
const words = (v, answer) => parts(v, answer.at).map(([, text]) => text).filter(Boolean).join(', ');

/** @param {any} e @param {any} answer @param {boolean} shadowed */
function event(e, answer, shadowed) {
  const vhost = answer.queue.vhost;
  return h('li', {class: e.shadow?.differs && 'differs'},
    h('span', {class: 'when'}, e.after_ms === 0 ? '+0' : '+' + duration(e.after_ms)),
    h('span', {class: 'what'}, e.hook && [h('code', null, e.hook), ' '], e.verdict ? words(e.verdict, answer) : e.text, e.to && [' ', destination(e.to, vhost)],
      e.by?.length > 0 && h('small', {class: 'quiet'}, ` by ${e.by.join(', ')}`),
      (e.notes ?? []).map((/** @type {string} */ n) => h('small', {class: 'note'}, n))),
    shadowed && h('span', {class: 'other'}, e.shadow && [h('span', {class: 'unseen'}, 'Shadow: '), words(e.shadow.verdict, answer), ' ',
      e.shadow.differs ? h('strong', {class: 'badge warn'}, '◀ differs') : h('small', {class: 'quiet'}, 'the same'),
      h('small', {class: 'quiet'}, ` by ${e.shadow.policy} ${short(e.shadow.digest)}`)]));
}

/** @param {any} to @param {string} vhost */
function destination(to, vhost) {
  if (to.problem === 'no_exchange') return h('strong', {class: 'badge bad'}, `there is no exchange ${to.exchange}: it would be lost`);
  if (to.problem) return h('strong', {class: 'badge bad'}, `${exchangeName(to.exchange)} with the key ${to.routing_key} leads to no queue: it would be lost`);
  return ['→ ', to.queues.map((/** @type {string} */ q, /** @type {number} */ i) => [i > 0 && ', ', h('a', {href: href('queues', [vhost, q])}, q)])];
}
