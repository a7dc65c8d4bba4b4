// Which queues have a strategy, in words.

import {inVHost} from '../../blocks.js';
import {h} from '../../dom.js';
import {exact} from '../../format.js';
import {href} from '../../link.js';

/** @param {import('./strategies.js').Strategy | undefined} s @param {string} name */
export function usedBy(s, name) {
  if (!s || s.queues === 0) return `No queue uses ${name || 'it'}.`;
  return [`${exact(s.queues)} ${s.queues === 1 ? 'queue uses' : 'queues use'} ${s.name}: `, some(s, 10), '.'];
}

/** Names some of the queues, with links. @param {import('./strategies.js').Strategy} s @param {number} most */
export function some(s, most) {
  const named = s.some.slice(0, most);
  return [named.map((q, i) => [i > 0 && ', ', h('a', {href: href('queues', [q.vhost, q.name])}, q.name), inVHost(q.vhost)]), s.queues > named.length && ` and ${exact(s.queues - named.length)} more`];
}
