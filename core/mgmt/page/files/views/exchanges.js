// Exchanges: all of them, or one.
import detail from './exchanges/detail.js';
import list from './exchanges/list.js';

/** @type {import('../views.js').View} */
export default function show(main, context) {
  return context.parts.length < 2 ? list(main, context) : detail(main, context);
}
