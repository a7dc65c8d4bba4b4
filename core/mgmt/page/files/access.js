// A user who may enter no virtual host: lists are empty, as on a broker without queues, and this says why.

import {get} from './api.js';
import {h} from './dom.js';

/** Returns what is said, and look, which finds out whether it has to be. */
export function access() {
  const element = h('div', {class: 'banner warn', role: 'status', hidden: true},
    'You may enter no virtual host yet: queues, exchanges and messages are not shown. A user with the tag administrator gives you permissions, on this page under Admin, Users, or with curfew ctl set_permissions.');
  return {
    element,
    /** Asks the broker. Questions without an answer are the banners' to report. */
    async look() {
      const vhosts = await get('vhosts?columns=name').catch(() => null);
      if (vhosts) element.hidden = vhosts.length > 0;
    },
  };
}
