// Values that no calendar and no browser can hold, and names that cannot be typed: nothing breaks, nothing is changed on the way, and
// nothing is destroyed by accident.
import {readFile} from 'node:fs/promises';
import {api, go, holds, same, scenario, tab} from './lib.mjs';

const BIG = '9007199254740993'; // 2^53 + 1
const NAME = 'gpj.\u202eexe  two\u200b';
const path = 'queues/%2F/' + encodeURIComponent(NAME);

await scenario(async (browser, faults) => {
  const answer = await fetch(`${process.env.PAGE}/api/queues/%2F/exact`, {
    method: 'PUT', body: `{"durable": true, "arguments": {"x-big": ${BIG}}}`, headers: {authorization: 'Basic ' + Buffer.from('guest:guest').toString('base64'), 'content-type': 'application/json'},
  });
  holds(answer.ok, `a queue: ${answer.status}`);
  await api('PUT', path, {durable: false});
  const publish = (properties) => api('POST', 'exchanges/%2F/amq.default/publish', {routing_key: NAME, payload: 'x', payload_encoding: 'string', properties});
  await publish({message_id: 'hostile', timestamp: 9007199254740000});
  for (let i = 0; i < 1000; i += 50) await Promise.all(Array.from({length: 50}, () => publish({})));
  const page = await tab(browser, faults);

  await go(page, `#/queues/%2F/${encodeURIComponent(NAME)}?tab=messages`);
  await page.getByRole('button', {name: 'hostile'}).click();
  await page.getByText('9007199254740000 (beyond all calendars)').waitFor();

  const messages = async () => (await api('GET', path)).messages;
  await page.getByRole('button', {name: 'Purge Messages'}).dblclick();
  await page.locator('dialog strong', {hasText: '1,001'}).waitFor();
  await page.locator('dialog input').focus(); // the second click was beside the dialog
  await page.keyboard.press('Enter');
  await page.keyboard.type('another');
  await page.keyboard.press('Enter');
  await page.getByText('That is another name.').waitFor();
  same(await messages(), 1001, 'messages after Enter, and another name');
  await page.locator('dialog input').fill('gpj.\\u202eexe two\\u200b');
  await page.keyboard.press('Enter');
  await page.locator('dialog').waitFor({state: 'detached'});
  same(await messages(), 0, 'messages after the name as it is shown');

  await go(page, '#/definitions');
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', {name: 'Download broker definitions'}).click()]);
  const file = await download.path();
  holds((await readFile(file, 'utf8')).includes(BIG), 'the file of definitions has other digits');
  await api('DELETE', 'queues/%2F/exact');
  await page.locator('input[type=file]').setInputFiles(file);
  await page.getByRole('button', {name: 'Upload broker definitions'}).click();
  await page.locator('dialog button[type=submit]').click();
  await page.getByText('imported successfully').waitFor();
  const text = await (await fetch(`${process.env.PAGE}/api/queues/%2F/exact`, {headers: {authorization: 'Basic ' + Buffer.from('guest:guest').toString('base64')}})).text();
  holds(text.includes(BIG), `imported with other digits: ${text}`);

  await go(page, '#/users/guest');
  await page.getByRole('button', {name: 'Change'}).first().click();
  await page.locator('dialog input').first().fill(BIG);
  await page.keyboard.press('Enter');
  await page.getByText('cannot be sent exactly').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('button', {name: 'Clear'}).first().click();
  await page.keyboard.press('Enter'); // on the button that does nothing
  await page.locator('dialog').waitFor({state: 'detached'});
  same((await api('GET', 'users/guest/permissions')).length, 1, 'permissions of guest');
});
