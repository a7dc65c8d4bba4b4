// The form of a simulation.

import {get, post} from '../../api.js';
import {fill, h} from '../../dom.js';
import {path} from '../../link.js';
import {typed} from '../../typed.js';
import {queueArguments} from '../queues/arguments.js';
import {timeline} from './timeline.js';

const headers = [
  {name: 'x-deliver-after', type: /** @type {const} */ ('Number'), title: 'Deliver after', hint: 'ms for which the message is held, up to ten years'},
];
let forms = 0;

/**
 * @param {import('../../views.js').Context} context
 * @param {object} o
 * @param {[string, string][]} o.strategies values and texts to choose from; "" is the queue's own, and "module:NAME" a module
 * @param {string} o.strategy that is chosen at first
 */
export function simulator(context, {strategies, strategy}) {
  const q = context.query, id = 'sim-' + ++forms;
  const field = (/** @type {string} */ label, /** @type {HTMLElement} */ input, /** @type {string} */ hint = '') => {
    input.id = id + label.replace(/\W/g, '');
    if (hint) input.setAttribute('aria-describedby', input.id + '-hint');
    return h('div', {class: 'field'}, h('label', {for: input.id}, label), input, hint && h('small', {id: input.id + '-hint'}, hint));
  };
  const text = (/** @type {Record<string, any>} */ p = {}) => /** @type {HTMLInputElement} */ (h('input', {autocomplete: 'off', ...p}));
  const queues = h('datalist', {id: id + '-queues'});
  const vhost = text({value: q.get('vhost') ?? '/'}), queue = text({value: q.get('queue') ?? '', list: id + '-queues', placeholder: 'name of a queue'});
  const real = /** @type {HTMLInputElement} */ (h('input', {type: 'radio', name: id + 'of', id: id + 'real', checked: true}));
  const imagined = /** @type {HTMLInputElement} */ (h('input', {type: 'radio', name: id + 'of', id: id + 'imagined'}));
  const chosen = /** @type {HTMLSelectElement} */ (h('select', null, strategies.map(([v, t]) => h('option', {value: v, selected: v === strategy}, t))));
  const exchange = text({placeholder: 'default exchange'}), key = text({placeholder: 'the queue\'s name'});
  const expiration = text({inputmode: 'numeric'}), priority = text({inputmode: 'numeric'}), size = text({inputmode: 'numeric', placeholder: '0'});
  const at = text({type: 'datetime-local', step: '1'}), steps = text({placeholder: '100 deliver, 250 fail'});
  const head = h('div'), args = typed({noun: 'argument', known: queueArguments});
  /** @type {Record<string, any>} */
  let others = {};
  let edited = typed({noun: 'header', known: headers});
  fill(head, edited.element);
  const settings = h('fieldset', {class: 'field', hidden: true}, h('legend', null, 'Arguments of the queue'), args.element);
  const named = field('Queue', queue);
  for (const r of [real, imagined]) {
    r.addEventListener('change', () => {
      settings.hidden = real.checked;
      named.hidden = imagined.checked;
    });
  }
  const failed = h('p', {class: 'error', role: 'alert', hidden: true}), result = h('div');
  const run = /** @type {HTMLButtonElement} */ (h('button', {type: 'submit', class: 'primary'}, 'Simulate'));
  const number = (/** @type {HTMLInputElement} */ input, /** @type {string} */ what) => {
    const n = Number(input.value);
    if (input.value.trim() === '') return undefined;
    if (!Number.isSafeInteger(n) || n < 0) throw new Error(`${what} is "${input.value}": a whole number from 0 is expected.`);
    return n;
  };
  const request = () => {
    const own = edited.value(), expires = expiration.value.trim();
    const [, module] = chosen.value.match(/^module:(.*)$/) ?? [];
    return {
      ...real.checked ? {queue: {vhost: vhost.value, name: queue.value}} : {settings: {vhost: vhost.value, arguments: args.value()}},
      ...module !== undefined ? {module: {name: module}} : chosen.value ? {strategy: chosen.value} : {},
      message: {
        exchange: exchange.value, routing_key: key.value === '' ? undefined : key.value, payload_bytes: number(size, 'The payload size'),
        properties: {...others, priority: number(priority, 'The priority'), expiration: expires === '' ? undefined : expires, headers: {...others.headers, ...own}},
      },
      at: at.value ? new Date(at.value).getTime() : undefined, steps: readSteps(steps.value),
    };
  };
  const form = /** @type {HTMLFormElement} */ (h('form', {class: 'lab-form'}, h('div', {class: 'choices'}, h('span', {class: 'pick'}, real, h('label', {for: real.id}, 'A queue that there is')),
    h('span', {class: 'pick'}, imagined, h('label', {for: imagined.id}, 'Settings of a queue'))), queues,
  h('div', {class: 'fields'}, field('Virtual host', vhost), named, field('Strategy', chosen), field('Exchange', exchange), field('Routing key', key),
    field('Expiration', expiration, 'ms; empty: none'), field('Priority', priority, '0 to 255'), field('Payload size', size, 'bytes'), field('At', at, 'empty: now'),
    field('Consumer', steps, 'ms after it enters, and deliver, ack, reject, requeue or fail')),
  settings, h('fieldset', {class: 'field'}, h('legend', null, 'Headers'), head), failed, h('div', {class: 'buttons'}, run)));
  form.addEventListener('submit', async (e) => {
    e.preventDefault();
    run.disabled = true;
    try {
      fill(result, timeline(await post('simulations', request())));
      failed.hidden = true;
    } catch (error) {
      failed.hidden = false;
      fill(failed, error instanceof Error ? error.message : String(error));
      fill(result);
    }
    run.disabled = false;
  });
  const load = async () => {
    const page = await get('queues?page=1&page_size=200&columns=name,vhost', context.signal).catch(() => ({items: []}));
    fill(queues, page.items.map((/** @type {any} */ it) => h('option', {value: it.name}, it.vhost)));
    if (!queue.value && page.items[0]) [queue.value, vhost.value] = [page.items[0].name, page.items[0].vhost];
    const m = await theMessage(context);
    if (!m) return;
    const {headers: own = {}, expiration: expires = '', priority: p = '', ...rest} = Array.isArray(m.properties) ? {} : m.properties;
    [exchange.value, key.value, size.value, expiration.value, priority.value] = [m.exchange, m.routing_key, m.payload_bytes, expires, p];
    others = {...rest, headers: Object.fromEntries(Object.entries(own).filter(([, v]) => v === null || typeof v === 'object' && !Array.isArray(v)))};
    edited = typed({noun: 'header', known: headers, values: own});
    fill(head, edited.element);
    form.requestSubmit();
  };
  load();
  return h('section', {class: 'card'}, h('h2', null, 'Simulate a message'),
    h('p', {class: 'quiet'}, 'Plays what the queue\'s plugins and policies would decide. Nothing is published, counted or changed.'), form, result);
}

/**
 * Returns the message that the address names: by its id in the queue, or by its property message_id.
 * @param {import('../../views.js').Context} context
 */
async function theMessage(context) {
  const vhost = context.query.get('vhost'), queue = context.query.get('queue'), id = context.query.get('message'), named = context.query.get('message_id');
  if (!vhost || !queue || !id && !named) return null;
  const by = new URLSearchParams({count: '1', truncate: '0', ...named ? {message_id: named} : /^[1-9]\d*$/.test(id ?? '') ? {after: String(BigInt(id ?? '1') - 1n)} : {}});
  const page = await get(`${path('queues', vhost, queue, 'messages')}?${by}`, context.signal).catch(() => ({messages: []}));
  const m = page.messages[0];
  return m && (named || m.id === id) ? m : null;
}

/** @param {string} text such as "100 deliver, 250 fail" */
function readSteps(text) {
  if (text.trim() === '') return undefined;
  return text.split(',').map((part) => {
    const [, ms, act] = part.trim().match(/^(\d+)\s*(?:ms)?\s+(\w+)$/) ?? [];
    if (!act) throw new Error(`Consumer: "${part.trim()}" cannot be read; write it as "100 deliver".`);
    return {after_ms: Number(ms), do: act};
  });
}
