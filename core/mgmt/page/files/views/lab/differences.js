// Messages on which a shadow disagreed, the newest first.

import {get} from '../../api.js';
import {explained, inVHost} from '../../blocks.js';
import {fill, h, keyed} from '../../dom.js';
import {bytes, exact, exactly, plural} from '../../format.js';
import {href, path} from '../../link.js';
import {parts, short} from '../../verdict.js';

/** @param {import('../../views.js').Context} context */
export function differences(context) {
  const total = h('p', {class: 'quiet'}), rows = h('tbody'), none = h('p', {class: 'empty', hidden: true});
  const table = h('table', null, h('caption', {class: 'unseen'}, 'Messages on which the shadow disagreed'),
    h('thead', null, h('tr', null, ['Message', 'Asked', 'In force', 'Shadow', ''].map((t) => h('th', {scope: 'col'}, t)))), rows);
  const place = h('div', {class: 'table plain', role: 'region', tabindex: '0', 'aria-label': 'Differences'}, table);
  const title = h('h2', null, 'Shadow');
  const element = h('section', {class: 'card'}, h('div', {class: 'head'}, title), total, place, none);
  /** @type {any[]} */
  let known = [];
  let after = '0';
  const self = {
    element, of: '',
    /** @param {any} m the shadow */
    async load(m) {
      if (self.of !== m.name) [known, after] = [[], '0'];
      self.of = m.name;
      const answer = await get(`${path('wasm', 'policies', m.name)}/differences?after=${after}`, context.signal);
      if (Number(answer.next) < Number(after)) known = []; // of a shadow that had this name before
      known = [...answer.differences.reverse(), ...known].slice(0, answer.kept);
      after = answer.next;
      fill(title, 'Shadow ', h('a', {href: href('lab', [m.name])}, m.name), ' ', explained(h('code', null, short(m.digest)), m.digest));
      fill(total, `Runs beside ${m.shadow.strategy} without effect. Compared ${plural(answer.compared, 'message')}, `, h('strong', null, `${exact(answer.differing)} differ`),
        answer.differing > known.length ? `; the last ${known.length} that were kept, at most ${answer.kept_per_second} of a second, are listed.` : '.');
      keyed(rows, known, (d) => d.id, row);
      place.hidden = known.length === 0;
      none.hidden = known.length > 0;
      fill(none, answer.compared === 0 ? `Nothing has been compared yet: no queue with ${m.shadow.strategy} has got a message since.` : 'So far both agree.');
    },
  };
  return self;
}

/** @param {any} d */
function row(d) {
  const m = d.message, id = m.properties.message_id;
  const [active, shadow] = [parts(d.active, d.at), parts(d.shadow, d.at)];
  return h('tr', null,
    h('th', {scope: 'row'}, h('a', {href: href('queues', [d.vhost, d.queue])}, d.queue), inVHost(d.vhost), ' ', id ? h('code', null, id) : h('span', {class: 'quiet'}, 'no message id'),
      h('details', null, h('summary', null, `${bytes(m.payload_bytes)}, properties`), h('pre', null, JSON.stringify({exchange: m.exchange, routing_key: m.routing_key, ...m.properties}, null, 1)),
        d.cut.length > 0 && h('small', {class: 'quiet'}, `Some of the ${d.cut.join(', ')} were left out.`))),
    h('td', null, h('code', null, d.hook), h('br'), h('small', {class: 'quiet'}, exactly(d.at))),
    h('td', null, verdict(active, shadow), h('small', {class: 'quiet'}, d.active_digest ? short(d.active_digest) : d.strategy)),
    h('td', null, verdict(shadow, active), h('small', {class: 'quiet'}, short(d.shadow_digest))),
    h('td', null, id && h('a', {href: href('lab', [d.strategy], {vhost: d.vhost, queue: d.queue, message_id: id})}, 'simulate')));
}

/** Marks the parts that the other verdict lacks. @param {[string, string][]} mine @param {[string, string][]} other */
function verdict(mine, other) {
  return h('div', null, mine.filter(([, t]) => t).map(([what, t], i) => {
    const same = other.some(([w, o]) => w === what && o === t);
    return [i > 0 && ', ', same ? t : [h('mark', null, t), h('span', {class: 'unseen'}, ' (differs)')]];
  }));
}
