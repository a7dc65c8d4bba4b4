// Queues: all of them, or one.
import list from './queues/list.js';
import detail from './queues/detail.js';

/** @type {import('../views.js').View} */
export default function show(main, context) {
  return context.parts.length < 2 ? list(main, context) : detail(main, context);
}
