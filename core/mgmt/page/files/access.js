// Lists are empty, as on a broker without queues, or have less than the totals if a user may not enter all virtual hosts. This banner says
// why.

import {get} from './api.js';
import {fill, h} from './dom.js';
import {plural} from './format.js';

/** Returns the banner, and look, which finds out whether it is needed. */
export function access() {
  const element = h('div', {class: 'banner warn', role: 'status', hidden: true});
  const give = ' A user with the tag administrator gives you permissions, on this page under Admin, Users, or with curfew ctl set_permissions.';
  return {
    element,
    /** Asks the broker. Questions without an answer are the banners' to report. @param {import('./views.js').User} user */
    async look(user) {
      const monitors = user.tags.includes('monitoring') && !user.tags.includes('administrator');
      const [vhosts, all, seen] = await Promise.all(['vhosts?columns=name', ...monitors ? ['overview?columns=object_totals.queues', 'queues?page=1&page_size=1&columns=name'] : []].map((path) => get(path))).catch(() => []);
      if (!vhosts) return;
      const hidden = monitors ? all.object_totals.queues - seen.total_count : 0; // totals are of all, for the tag monitoring
      element.hidden = vhosts.length > 0 && hidden <= 0;
      fill(element, hidden > 0 ? `${plural(hidden, 'queue')} in virtual hosts that you may not enter ${hidden === 1 ? 'is' : 'are'} not listed; totals count what is in them.` : 'You may enter no virtual host yet: queues, exchanges and messages are not shown.', give);
    },
  };
}
