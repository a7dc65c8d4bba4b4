// Which expiry strategies there are, and which queues have them.

import {get} from '../../api.js';

/**
 * @typedef {object} Strategy as the API has it
 * @property {string} name @property {boolean} default @property {number} queues how many have it
 * @property {{vhost: string, name: string}[]} some of them
 */

/** Returns the name of a module in a list of strategies. @param {any} m */
export const strategyOf = (m) => m.strategy || m.name;

/** @param {AbortSignal} signal @returns {Promise<Strategy[]>} */
export const strategies = (signal) => get('expiry-strategies', signal);
