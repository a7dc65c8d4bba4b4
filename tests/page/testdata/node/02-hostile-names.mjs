// Names that are markup, and names that cannot be seen, are text in every view.
import {api, go, holds, please, scenario, tab} from './lib.mjs';

const BAD = '<img src=x onerror=alert(1)>"\'&', HIDDEN = 'a\u202egnp.exe';
const e = encodeURIComponent;
const message = (headers) => ({routing_key: BAD, payload: BAD, payload_encoding: 'string', properties: {message_id: BAD, correlation_id: BAD, headers: {[BAD]: BAD, ...headers}}});

async function fillBroker() {
  await api('PUT', `vhosts/${e(BAD)}`, {description: BAD, tags: BAD});
  await api('PUT', `users/${e(BAD)}`, {password: 'p', tags: 'management,' + BAD});
  await api('PUT', `permissions/${e(BAD)}/guest`, {configure: '.*', write: '.*', read: '.*'});
  for (const vhost of ['/', BAD]) {
    await api('PUT', `permissions/${e(vhost)}/${e(BAD)}`, {configure: BAD, write: BAD, read: BAD});
    await api('PUT', `exchanges/${e(vhost)}/${e(BAD)}`, {type: 'x-delayed-message', durable: true, arguments: {'x-delayed-type': 'topic', [BAD]: BAD}});
    for (const name of [BAD, HIDDEN]) {
      await api('PUT', `queues/${e(vhost)}/${e(name)}`, {durable: true, arguments: {'x-dead-letter-exchange': BAD, 'x-dead-letter-routing-key': BAD, 'x-message-ttl': 3_600_000}});
      await api('POST', `bindings/${e(vhost)}/e/${e(BAD)}/q/${e(name)}`, {routing_key: BAD, arguments: {[BAD]: BAD}});
      await api('POST', `exchanges/${e(vhost)}/amq.default/publish`, {...message({}), routing_key: name});
    }
    await api('POST', `exchanges/${e(vhost)}/${e(BAD)}/publish`, message({'x-delay': 3_600_000, 'x-schedule-id': BAD}));
    await api('PUT', `policies/${e(vhost)}/${e(BAD)}`, {pattern: '^nothing', definition: {'max-length': 5}, 'apply-to': 'queues'});
  }
  await api('PUT', `vhost-limits/${e(BAD)}/max-queues`, {value: 100});
  await api('POST', `exchanges/${e('/')}/amq.default/publish`, {...message({}), routing_key: BAD, properties: {message_id: BAD, expiration: '1'}});
}

await scenario(async (browser, faults) => {
  await fillBroker();
  const page = await tab(browser, faults);
  await page.evaluate(() => document.addEventListener('securitypolicyviolation', (v) => console.error('a violation of the CSP: ' + v.violatedDirective)));
  await please('consume hostilely');
  const q = (tabName) => `#/queues/${e(BAD)}/${e(BAD)}?tab=${tabName}`;
  const routes = [
    '#/deadlines', '#/queues', '#/exchanges', '#/flow', '#/policies', '#/events?history=100', '#/users', '#/vhosts', '#/limits', '#/connections', `#/users/${e(BAD)}`, `#/vhosts/${e(BAD)}`,
    `#/exchanges/${e(BAD)}/${e(BAD)}`, ...['deadlines', 'messages', 'dead-letters', 'consumers', 'settings'].map(q), `#/story?vhost=${e(BAD)}&queue=${e(BAD)}&message_id=${e(BAD)}`,
  ];
  for (const route of routes) {
    await go(page, route);
    await page.waitForFunction((bad) => document.body.innerText.includes(bad), BAD).catch(() => faults.push(`${route}: the name is not shown literally`));
    const images = await page.locator('img').count();
    holds(images === 0, `${route}: there are ${images} images`);
  }
  await go(page, '#/queues');
  await page.waitForFunction(() => document.body.innerText.includes('a\\u202egnp.exe'));
  holds(!(await page.locator('body').innerText()).includes('\u202e'), 'a character that changes the direction of text is shown as it is');
  await go(page, `#/${e(BAD)}`); // an address that somebody made up
});
