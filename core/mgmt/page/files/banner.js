// Problems of the whole broker, above each view: it does not answer, or publishers have to wait.

import {connection, Failure, get, send} from './api.js';
import {fill, h} from './dom.js';
import {bytes, duration} from './format.js';

const POLL = 10_000; // ms between questions for alarms
const PROBE = 2000; // and for a broker that is gone
const PATIENCE = 5000; // until a broker that says nothing counts as gone: one that hangs keeps its connections open

/**
 * Watches the broker.
 * @param {object} o
 * @param {(user: import('./views.js').User) => void} o.back it was gone, and answers again
 * @param {() => void} o.lost it answers again, and knows the login no more
 */
export function watch({back, lost}) {
  const since = h('span', {'aria-hidden': 'true'}), why = h('span');
  const gone = h('div', {class: 'banner bad', hidden: true}, why, since);
  const alarms = h('div', {hidden: true});
  const element = h('div', {class: 'banners', role: 'alert'}, gone, alarms);
  let left = 0; // when the broker was found to be gone; 0 = it is there
  let watching = false, asking = false;
  /** @type {ReturnType<typeof setTimeout>} */
  let timer;

  const look = async () => {
    if (!watching || asking || document.hidden) return;
    clearTimeout(timer);
    asking = true;
    const late = AbortSignal.timeout(PATIENCE);
    try {
      if (left) returned(await get('session', late));
      const checked = await send('GET', 'health/checks/alarms', undefined, late);
      if (checked.status === 401) connection.dispatchEvent(new Event('logout'));
      else await showAlarms(alarms, checked);
    } catch (error) {
      missing(late.aborted ? new Failure(0, 'The broker does not answer.') : error);
    }
    asking = false;
    if (watching) timer = setTimeout(look, left ? PROBE : POLL);
  };
  const returned = (/** @type {import('./views.js').User} */ user) => {
    left = 0;
    gone.hidden = true;
    back(user);
  };
  const missing = (/** @type {unknown} */ error) => {
    if (!watching || !(error instanceof Failure)) return;
    if (error.status === 401) return lost();
    if (error.status !== 0) return;
    if (!left) left = Date.now();
    gone.hidden = false;
    fill(why, error.message);
    tick();
  };
  const tick = () => {
    if (!left || !watching) return;
    const ms = Date.now() - left;
    fill(since, ms < 1000 ? '' : ` What you see is ${duration(ms)} old; it goes on by itself.`);
  };
  setInterval(tick, 1000);
  connection.addEventListener('down', look);
  document.addEventListener('visibilitychange', look);
  return {
    element,
    /** Whether the broker was gone when it was asked last. */
    isDown: () => left > 0,
    start() {
      watching = true;
      void look();
    },
    stop() {
      watching = false;
      left = 0;
      gone.hidden = alarms.hidden = true;
      clearTimeout(timer);
    },
  };
}

/** @param {HTMLElement} place @param {Response} answer */
async function showAlarms(place, answer) {
  const {alarms = []} = await answer.json(), nodes = answer.headers.get('Curfew-Unreachable'), vhosts = answer.headers.get('Curfew-Missing-Vhosts');
  const texts = alarms.map(describe);
  if (nodes) texts.push(`No answer from ${nodes}: lists leave out the queues, connections and channels of these nodes.`);
  if (vhosts) texts.push(`No node serves the virtual hosts ${decodeURIComponent(vhosts)} now: lists leave out their queues and exchanges.`);
  place.hidden = texts.length === 0;
  if (place.getAttribute('data-shown') === texts.join()) return; // the same alarms are announced once
  place.setAttribute('data-shown', texts.join());
  fill(place, texts.map((/** @type {string} */ text) => h('div', {class: 'banner warn'}, h('strong', null, 'Alarm '), text)));
}

/** @param {{node: string, text: string, path?: string, free_bytes?: number, needed_bytes?: number, out_of_files?: boolean}} alarm */
function describe({node, text, path, free_bytes: free, needed_bytes: needed, out_of_files: files}) {
  return node + ': ' + (needed && !files ? `The disk of ${path ?? 'the data'} has ${bytes(free)} free and needs ${bytes(needed)}: publishers wait until there is more.` : text);
}
