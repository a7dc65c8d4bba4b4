// Verdicts of plugins and policies in words.

import {duration} from './format.js';

/**
 * @typedef {object} Verdict as the API has it
 * @property {'keep' | 'drop' | 'route' | 'refuse'} action
 * @property {number | null} deadline @property {number | null} hold @property {string | null} reason
 * @property {boolean} final @property {boolean} nack @property {string | null} exchange @property {string | null} routing_key
 * @property {boolean} ask_at_head @property {boolean} ask_again
 */

/** Writes an instant as the time after another one. @param {number} at @param {number} since */
export const after = (at, since) => at === since ? 'now' : at > since ? '+' + duration(at - since) : duration(since - at) + ' before';

/** Names an exchange. @param {string | null} name */
export const exchangeName = (name) => name ? `exchange ${name}` : 'the default exchange';

/**
 * Returns the parts of a verdict in words, each with its name.
 * @param {Verdict} v @param {number} since instant from which times count
 * @returns {[string, string][]}
 */
export function parts(v, since) {
  if (v.action === 'refuse') return [['action', 'refuse: the publisher gets basic.nack']];
  if (v.action === 'drop') return [['action', `drop (${v.reason})`], ['final', v.final ? 'not to be dead-lettered' : '']];
  if (v.action === 'route') {
    return [['action', `dead-letter (${v.reason})`], ['to', `to ${exchangeName(v.exchange)}, ` + (v.routing_key === null ? 'with its own key' : `key ${v.routing_key}`)]];
  }
  const until = v.deadline === null ? 'no deadline' : `${v.ask_again ? 'ask again' : 'until'} ${after(v.deadline, since)}`;
  return [['action', 'keep'], ['deadline', until], ['hold', v.hold === null ? '' : `held until ${after(v.hold, since)}`], ['head', v.ask_at_head ? 'ask again at the head' : '']];
}

/** Writes a digest short. @param {string | null | undefined} d */
export const short = (d) => d ? d.slice(0, 8) : '–';
