// A new module runs beside the one in force: what it would decide otherwise is listed. Activated, it decides about the next message.
import {createHash} from 'node:crypto';
import {readFile} from 'node:fs/promises';
import {api, event, go, same, scenario, tab} from './lib.mjs';

const examples = new URL('../../../../wasm-examples/', import.meta.url);
const old = await readFile(new URL('header-deadline/header.wasm', examples)), next = await readFile(new URL('size-ttl/size.wasm', examples));
const digest = createHash('sha256').update(next).digest('hex').slice(0, 16);
const publish = (id) => api('POST', 'exchanges/%2F/amq.default/publish', {routing_key: 'uploads', payload: 'x', payload_encoding: 'string', properties: {message_id: id}});

await scenario(async (browser, faults) => {
  await api('PUT', 'wasm/policies/tempo', {module: old.toString('base64'), grants: ['headers']});
  await api('PUT', 'queues/%2F/uploads', {durable: true, arguments: {'x-expiry-strategy': 'wasm/tempo'}});
  const page = await tab(browser, faults), dialog = page.locator('dialog[open]');
  await go(page, '#/lab/wasm%2Ftempo');
  await page.getByRole('button', {name: 'Upload .wasm'}).click();
  await dialog.getByLabel('File').setInputFiles({name: 'tempo-next.wasm', mimeType: 'application/wasm', buffer: next});
  await dialog.getByLabel('Config').fill('{"base-ms": 700, "per-kib-ms": 0, "least-ms": 0}');
  await dialog.getByRole('button', {name: 'Check'}).click();
  await dialog.getByRole('heading', {name: 'The module works'}).waitFor();
  await dialog.getByText(digest.slice(0, 8)).first().waitFor();
  await dialog.getByRole('button', {name: 'Load'}).click();
  await page.getByRole('heading', {name: 'tempo-next', level: 1}).waitFor();

  await page.getByText('Nothing has been compared yet').waitFor();
  await publish('before');
  const row = page.locator('tbody tr', {hasText: 'before'});
  await row.getByText('(differs)').first().waitFor({state: 'attached'});

  await page.getByRole('button', {name: 'Activate'}).click();
  await dialog.getByRole('button', {name: 'Activate'}).click();
  await dialog.waitFor({state: 'detached'});
  await publish('after');
  same((await event('message_id=after&kind=message_expired')).policy_digest, digest, 'the policy that decided about the next message');
});
