// What changes is shown as it changes, and nothing that somebody is doing is lost by it: the place of the keyboard, the latest question.
import {api, go, holds, same, scenario, tab} from './lib.mjs';

const publish = (queue) => api('POST', 'exchanges/%2F/amq.default/publish', {routing_key: queue, payload: 'x', payload_encoding: 'string', properties: {}});
const focused = (page) => page.evaluate(() => document.activeElement.textContent);

await scenario(async (browser, faults) => {
  const queues = Array.from({length: 250}, (_, i) => ({name: `many-${String(i).padStart(3, '0')}`, vhost: '/', durable: false, auto_delete: false, arguments: {}}));
  await api('POST', 'definitions', {queues: [...queues, {name: 'one', vhost: '/', durable: false, auto_delete: false, arguments: {}}]});
  const page = await tab(browser, faults, {allowed: [/404 .*\/api\/live/]});
  const asked = [];
  page.on('request', (r) => { if (/\/api\/(queues|live)/.test(r.url())) asked.push(r.url()); });

  // A list: pages, rows that change, and an order that the live view does not have.
  await go(page, '#/queues');
  await page.getByText('page 1 of 3').waitFor();
  await page.getByRole('button', {name: 'Next', exact: true}).focus();
  await page.keyboard.press('Enter');
  await page.getByText('page 2 of 3').waitFor();
  await publish('many-150');
  await page.locator('tr', {hasText: 'many-150'}).locator('td.number', {hasText: /^1$/}).first().waitFor();
  same(await focused(page), 'Next', 'what has the keyboard, on the second page');
  await page.keyboard.press('Enter');
  await page.getByText('page 3 of 3').waitFor();
  holds(asked.every((u) => u.includes('/api/live')), `the list asked ${asked}`);
  await page.getByRole('button', {name: 'State', exact: true}).focus();
  await page.keyboard.press('Enter');
  await page.locator('th[aria-sort="ascending"]', {hasText: 'State'}).waitFor();
  same(await focused(page), 'State', 'what has the keyboard after sorting');
  holds(asked.some((u) => /\/api\/queues\?.*sort=state.*unknown_rates=true/.test(u)), 'the API was not asked for an order that the live view does not have, with rates only as far as they are known');

  // A queue: links stay, and it says when it has gone.
  await go(page, '#/queues/%2F/one');
  await page.locator('.stat', {hasText: 'Ready'}).locator('dd', {hasText: /^0$/}).first().waitFor();
  await page.getByRole('link', {name: 'virtual host /'}).focus();
  await publish('one');
  await page.locator('.stat', {hasText: 'Ready'}).locator('dd', {hasText: /^1$/}).first().waitFor();
  same(await focused(page), 'virtual host /', 'what has the keyboard in a queue that changes');
  await api('DELETE', 'queues/%2F/one');
  await page.getByText('There is no queue one in the virtual host / any more.').waitFor();
  await go(page, '#/queues/%2F/never-was');
  await page.getByText('There is no queue never-was in the virtual host /.').waitFor();

  // A slow answer does not replace what was asked for after it.
  await api('PUT', 'users/overtaken', {password: 'x', tags: []});
  await go(page, '#/users');
  await page.getByRole('link', {name: 'overtaken'}).waitFor();
  let answered = () => {};
  const slow = new Promise((done) => { answered = done; });
  await page.route(/\/api\/users\?.*name=over/, async (route) => {
    await page.waitForTimeout(1500);
    await route.continue();
    answered();
  });
  await page.locator('input[type=search]').fill('over');
  await page.waitForRequest(/name=over/);
  await page.locator('input[type=search]').fill('guest');
  await page.getByText('1 of 2 users').waitFor();
  await slow;
  await page.waitForTimeout(300);
  same(await page.locator('main tbody th').allTextContents(), ['guest'], 'users after a slow answer to another search');

  // A button of a row that looks the same is about what is so now.
  await api('PUT', 'permissions/%2F/overtaken', {configure: 'a', write: 'w', read: 'r'});
  await go(page, '#/users/overtaken');
  await page.getByRole('cell', {name: 'a', exact: true}).waitFor();
  await api('PUT', 'permissions/%2F/overtaken', {configure: 'b', write: 'w', read: 'r'});
  await page.getByRole('cell', {name: 'b', exact: true}).waitFor();
  await page.locator('tr', {hasText: 'b'}).getByRole('button', {name: 'Change'}).click();
  same(await page.locator('dialog input[name=configure]').inputValue(), 'b', 'the permission that is changed');
});
