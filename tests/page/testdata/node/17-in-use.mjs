// Whoever uses the page with the keyboard, or is typing, is left alone by what happens meanwhile; and numbers are the same everywhere.
import {api, base, go, holds, logIn, same, scenario, tab} from './lib.mjs';

const publish = (routing_key, properties = {}, exchange = 'amq.default') => api('POST', `exchanges/%2F/${exchange}/publish`, {routing_key, payload: 'x', payload_encoding: 'string', properties});
/** Ends the login, then submits the dialog. The page's next poll may notice first and put the dialog away: then there is nothing to submit. */
const submitAfterLogout = (page) => page.evaluate(async () => {
  await fetch('/api/session', {method: 'DELETE', headers: {'X-Requested-With': 'test'}});
  document.querySelector('dialog button[type=submit]')?.click();
});
const focused = (page) => page.evaluate(() => document.activeElement.textContent);
const until = (page, first) => page.waitForFunction((name) => document.querySelector('[aria-label="Queues by their next deadline"] tbody th')?.textContent === name, first);

await scenario(async (browser, faults) => {
  for (const name of ['first', 'second', 'third']) await api('PUT', `queues/%2F/${name}`, {durable: true});
  await api('PUT', 'exchanges/%2F/later', {type: 'x-delayed-message', durable: true, arguments: {'x-delayed-type': 'fanout'}});
  await api('POST', 'bindings/%2F/e/later/q/third', {routing_key: ''});
  const page = await tab(browser, faults, {allowed: [/401 .*/]});

  // Deadlines: rows before and after that of the keyboard come, go, and change places.
  await publish('second', {expiration: '600000'});
  await publish('third', {expiration: '900000'});
  await publish('first', {expiration: '300000'});
  await go(page, '#/deadlines');
  await until(page, 'first');
  await page.getByRole('link', {name: 'second', exact: true}).focus();
  await api('DELETE', 'queues/%2F/first/contents');
  await until(page, 'second');
  same(await focused(page), 'second', 'what has the keyboard after a row before it has left');
  await publish('third', {expiration: '400000'});
  await until(page, 'third');
  same(await focused(page), 'second', 'what has the keyboard after a row has passed it');
  await publish('second', {expiration: '200000'});
  await until(page, 'second');
  same(await focused(page), 'second', 'what has the keyboard after its row has moved');
  await api('DELETE', 'queues/%2F/second/contents');
  await until(page, 'third');
  same(await focused(page), 'third', 'what has the keyboard after its row has left');

  // What a term means is said to those who press it, and goes on being said while the number changes.
  const means = page.getByText('How late the broker let messages expire, in the last minute');
  same(await means.isVisible(), false, 'what a term means, before somebody asks');
  await page.getByRole('button', {name: 'Lateness p99'}).focus();
  await page.keyboard.press('Enter');
  await means.waitFor();
  await page.waitForTimeout(2500); // two states
  same(await means.isVisible() && await focused(page), 'Lateness p99', 'what a term means, two seconds later');

  // So is what badges, settings and figures mean: in one button a row, by keyboard and by touch, and it stays while the row is drawn anew.
  await api('PUT', 'queues/%2F/explained', {durable: true, arguments: {'x-message-ttl': 90_000, 'x-max-length': 3}});
  await go(page, '#/queues?name=explained');
  const note = page.locator('#note'), features = page.getByRole('button', {name: /^D\s*TTL\s*Lim$/});
  await features.focus();
  await page.keyboard.press('Enter');
  await note.filter({hasText: 'Message TTL (x-message-ttl): 1 m 30 s'}).filter({hasText: 'D: durable: true'}).waitFor();
  await page.waitForTimeout(2500);
  same(await note.isVisible() && await features.evaluate((e) => e === document.activeElement), true, 'what badges mean is there after two seconds, and the keyboard on them');
  await page.keyboard.press('Escape');
  await note.waitFor({state: 'hidden'});
  await go(page, '#/queues/%2F/explained?tab=settings');
  for (const [name, means] of [['message-ttl', /\S/], ['Ready', /^0 messages$/]]) {
    await page.getByRole('button', {name, exact: true}).press('Enter');
    await note.filter({hasText: means}).waitFor();
    await page.keyboard.press('Escape');
    await note.waitFor({state: 'hidden'});
  }
  await go(page, '#/exchanges/%2F/later');
  const drawn = page.getByRole('button', {name: /^D\s*Args/});
  await drawn.press('Enter');
  await page.waitForFunction((e) => !e.isConnected, await drawn.elementHandle(), {timeout: 60_000}); // it is drawn anew
  const [noteAt, buttonAt] = [await note.boundingBox(), await drawn.boundingBox()];
  holds(noteAt && Math.abs(noteAt.y - buttonAt.y - buttonAt.height) < 20 && Math.abs(noteAt.x - buttonAt.x) < 20, `what a badge means stands at ${JSON.stringify(noteAt)}, the badge at ${JSON.stringify(buttonAt)}`);
  const phone = await tab(browser, faults, {width: 390, hasTouch: true});
  await go(phone, '#/exchanges/%2F/later');
  await phone.getByRole('button', {name: /^D\s*Args/}).tap();
  await phone.locator('#note', {hasText: 'it survives a restart'}).waitFor();

  // When something is: a finger on the time says it, and "t" has all times say it.
  const DATE = /\d{4}, \d\d:\d\d:\d\d/;
  await publish('explained', {expiration: '60000'});
  await publish('first', {expiration: '1'});
  await go(phone, '#/queues?name=explained');
  await phone.locator('tbody time').first().tap();
  await phone.locator('#note', {hasText: DATE}).waitFor();
  await phone.context().close();
  await go(page, '#/queues?name=explained');
  const due = page.locator('tbody time').first();
  await due.filter({hasText: /^in /}).waitFor();
  await page.keyboard.press('t');
  await due.filter({hasText: DATE}).waitFor();
  await page.waitForTimeout(2500);
  same(DATE.test(await due.textContent()), true, 'a time is a date two seconds later');
  await go(page, '#/events');
  const happened = page.locator('ol.events time').first();
  await happened.filter({hasText: /\d{4}, \d\d:\d\d:\d\d\.\d{3}$/}).waitFor();
  await page.keyboard.press('t');
  await happened.filter({hasText: /^\d\d:\d\d:\d\d\.\d{3}$/}).waitFor();

  // What can be added to a dialog's table says what it is for to the keyboard.
  await go(page, '#/queues');
  await page.getByRole('button', {name: 'Add a new queue'}).first().click();
  await page.locator('dialog').getByRole('button', {name: 'Message TTL'}).focus();
  await page.locator('dialog').getByText(/^x-message-ttl: /).waitFor();
  await page.keyboard.press('Escape');

  // Events: rows wait while somebody is in the list.
  await publish('first', {expiration: '1'});
  await go(page, '#/events');
  const links = page.locator('ol.events li .where a');
  await links.first().focus();
  for (let i = 0; i < 5; i++) await publish('third', {expiration: '1'});
  await page.getByText(/events since somebody is in the list/).waitFor();
  same(await focused(page), 'first', 'what has the keyboard after more events');
  const shown = await links.count();
  await page.getByRole('button', {name: 'Pause'}).focus();
  await page.waitForFunction((n) => document.querySelectorAll('ol.events li').length > n, shown);

  // As many are held on each view: in queues and by exchanges.
  await publish('third', {headers: {'x-deliver-after': 600_000}});
  for (let i = 0; i < 2; i++) await publish('', {headers: {'x-delay': 900_000}}, 'later');
  for (const view of ['#/deadlines', '#/']) {
    await go(page, view);
    await page.locator('.stat', {has: page.getByRole('button', {name: 'Held', exact: true})}).locator('dd', {hasText: /^3$/}).waitFor();
  }

  // The total has all of these; it had only those in queues.
  await page.waitForFunction(() => {
    const n = (name) => Number([...document.querySelectorAll('.stat')].find((s) => s.querySelector('button')?.textContent === name)?.querySelector('dd').textContent);
    return n('Held') === 3 && n('Total') === n('Ready') + n('Unacked') + n('Held');
  });
  await go(page, '#/deadlines'); // so that the view is opened anew

  // A rate that is not known is not zero.
  await page.route(base + '/api/live?view=now', (route) => route.request().resourceType() === 'eventsource' ? route.fulfill({status: 204}) : route.fulfill({json: {at: Date.now(), totals: {}, counts: {}, alarms: []}}));
  await go(page, '#/');
  await page.locator('.stat', {hasText: 'Published'}).locator('dd', {hasText: '–'}).waitFor();
  await page.unroute(base + '/api/live?view=now');
  const rates = {message_stats: {publish_details: {rate: null}, deliver_get_details: {rate: null}, ack_details: {rate: 2}}, recv_oct_details: {rate: null}, send_oct_details: {rate: 2048}};
  const listed = {name: 'c', user: 'guest', vhost: '/', state: 'running', ssl: false, channels: 1, client_properties: {}, consumer_count: 0, ...rates};
  await page.route(/\/api\/(connections|channels)\?.*unknown_rates=true/, (route) => route.fulfill({json: {items: [listed], page: 1, page_count: 1, total_count: 1, filtered_count: 1}}));
  for (const [view, figures] of [['connections', ['–', '2.0 KiB/s']], ['channels', ['–', '–', '2.0/s']]]) {
    await go(page, '#/' + view);
    await page.getByRole('rowheader', {name: 'c', exact: true}).waitFor();
    same((await page.locator('main tbody td.number').allTextContents()).slice(-figures.length), figures, 'rates of ' + view);
  }

  // A login that ends takes nothing that was typed.
  await go(page, '#/queues');
  await page.getByRole('button', {name: 'Add a new queue'}).first().click();
  await page.locator('dialog input[name=name]').fill('half-typed');
  await submitAfterLogout(page);
  await page.getByText('Your login has ended.').waitFor();
  same(await page.locator('dialog').count(), 0, 'dialogs beside the login');
  await logIn(page);
  same(await page.locator('dialog[open] input[name=name]').inputValue(), 'half-typed', 'what was typed before the login ended');
  await page.locator('dialog button[type=submit]').click();
  await page.locator('dialog').waitFor({state: 'detached'});
  same((await api('GET', 'queues/%2F/half-typed')).name, 'half-typed', 'the queue');

  // Somebody else does not see it.
  await api('PUT', 'users/other', {password: 'x', tags: 'administrator'});
  await page.getByRole('button', {name: 'Add a new queue'}).first().click();
  await page.locator('dialog input[name=name]').fill('of guest');
  await submitAfterLogout(page);
  await page.getByText('Your login has ended.').waitFor();
  await logIn(page, 'other', 'x');
  await page.locator('main h1').first().waitFor();
  await page.waitForTimeout(500);
  holds(await page.locator('dialog').count() === 0, 'another user sees the dialog');
});
