// Names of all scripts and in several virtual hosts are told apart; many bindings come in pages; settings are in words.
import {api, go, holds, same, scenario, tab} from './lib.mjs';

await scenario(async (browser, faults) => {
  await api('PUT', 'vhosts/other');
  await api('PUT', `queues/%2F/${encodeURIComponent('\u05e9\u05dc\u05d5\u05dd 123')}`, {durable: true});
  const bindings = Array.from({length: 250}, (_, i) => ({source: 'amq.direct', vhost: '/', destination: '\u05e9\u05dc\u05d5\u05dd 123', destination_type: 'queue', routing_key: `key-${String(i).padStart(3, '0')}`, arguments: {}}));
  await api('POST', 'definitions', {bindings});
  await api('PUT', 'policies/%2F/day', {pattern: '.*', definition: {'message-ttl': 86_400_000}, 'apply-to': 'queues'});
  const page = await tab(browser, faults, {width: 390});

  await go(page, '#/exchanges');
  await page.locator('tbody th', {hasText: 'AMQP default'}).nth(1).waitFor();
  const names = await page.locator('tbody th', {hasText: 'AMQP default'}).evaluateAll((all) => all.map((e) => e.innerText.trim().replace(/\s+/g, ' ')));
  same(names, ['(AMQP default)', '(AMQP default) in other'], 'default exchanges at 390 px');

  await go(page, '#/queues/%2F/' + encodeURIComponent('\u05e9\u05dc\u05d5\u05dd 123'));
  const rightToLeft = async (place) => { // the first word of a name, of four letters, stands to the right of the second
    const [word, number] = await place.evaluate((e) => [[0, 4], [5, 8]].map(([from, to]) => {
      const text = document.createTreeWalker(e, NodeFilter.SHOW_TEXT);
      let at = text.nextNode();
      while (at && !at.data.startsWith('\u05e9')) at = text.nextNode();
      const range = document.createRange();
      range.setStart(at, from);
      range.setEnd(at, to);
      return range.getBoundingClientRect().left;
    }));
    holds(number < word, `a name that begins with Hebrew is written from left to right: ${await place.innerText()}`);
  };
  await rightToLeft(page.locator('h1'));
  // Wherever names stand: in a cell, on a badge, in a sentence.
  const mixed = '\u05e9\u05dc\u05d5\u05dd abc';
  await api('PUT', 'vhosts/' + encodeURIComponent(mixed));
  await api('PUT', `permissions/${encodeURIComponent(mixed)}/guest`, {configure: '.*', write: '.*', read: '.*'});
  await api('PUT', `policies/${encodeURIComponent(mixed)}/${encodeURIComponent(mixed)}`, {pattern: '.*', definition: {'message-ttl': 1}});
  await api('PUT', `queues/${encodeURIComponent(mixed)}/q`, {durable: true, arguments: {'x-dead-letter-exchange': mixed, 'x-dead-letter-routing-key': '1'}});
  await api('POST', `exchanges/${encodeURIComponent(mixed)}/amq.default/publish`, {routing_key: 'q', payload: 'x', payload_encoding: 'string', properties: {}});
  const wide = await tab(browser, faults);
  for (const [route, place] of [['#/queues?name=q', 'tbody td'], ['#/queues?name=q', 'tbody a.badge'], ['#/policies', 'tbody td'], ['#/events', 'ol.events bdi']]) {
    await go(wide, route);
    await rightToLeft(wide.locator(place, {hasText: mixed}).first());
  }
  await wide.context().close();

  await go(page, '#/policies');
  await page.locator('section', {hasText: 'What queues end up with'}).getByText('86400000 ms (1 d)').first().waitFor();

  // What differs by its virtual host alone is told apart everywhere; and what is in effect is in words, whatever it is beside.
  await api('PUT', 'permissions/other/guest', {configure: '.*', write: '.*', read: '.*'});
  for (const vhost of ['%2F', 'other']) await api('PUT', `queues/${vhost}/twin`, {durable: true, arguments: {'x-message-ttl': 50, 'x-dead-letter-exchange': 'gone'}});
  for (const vhost of ['%2F', 'other']) await api('POST', `exchanges/${vhost}/amq.default/publish`, {routing_key: 'twin', payload: 'x', payload_encoding: 'string', properties: {}});
  const told = async (route, selector) => {
    await go(page, route);
    await page.locator(selector, {hasText: 'twin'}).nth(1).waitFor();
    return (await page.locator(selector, {hasText: 'twin'}).allTextContents()).sort();
  };
  same(await told('#/events', 'ol.events .where'), ['twin', 'twin in other'], 'where it happened');
  same(await told('#/flow', 'main tbody th'), ['twin', 'twin in other'], 'from where dead letters come');
  same(await told('#/flow', 'main .card h2'), ['twin', 'twin in other'], 'the titles of pictures');

  await go(page, '#/policies');
  await page.locator('section', {hasText: 'What queues end up with'}).getByText('the queue\'s argument is 50 ms, so 50 ms holds').first().waitFor();

  // A tab that there is not, whatever it is called, is the first one.
  await go(page, '#/queues/%2F/twin?tab=constructor');
  await page.locator('.tabs [aria-current]', {hasText: 'Deadlines'}).waitFor();

  let bytes = 0;
  page.on('response', async (r) => { if (/bindings\/source/.test(r.url())) bytes = Math.max(bytes, (await r.text()).length); });
  await go(page, '#/exchanges/%2F/amq.direct');
  const rows = page.locator('[aria-label="Bindings from this exchange"] tbody tr');
  await page.getByText('page 1 of 3').waitFor();
  same(await rows.count(), 100, 'bindings on the first page');
  await page.getByRole('button', {name: 'Last'}).click();
  await page.getByText('page 3 of 3').waitFor();
  await page.waitForFunction(() => document.querySelectorAll('[aria-label="Bindings from this exchange"] tbody tr').length === 50);
  holds(bytes < 50_000, `an answer had ${bytes} bytes`);

  // A search counts what it has found, on all pages together.
  await api('PUT', 'exchanges/%2F/later', {type: 'x-delayed-message', durable: true, arguments: {'x-delayed-type': 'fanout'}});
  await api('POST', 'bindings/%2F/e/later/q/' + encodeURIComponent('\u05e9\u05dc\u05d5\u05dd 123'), {routing_key: ''});
  for (let i = 0; i < 130; i++) await api('POST', 'exchanges/%2F/later/publish', {routing_key: '', payload: 'x', payload_encoding: 'string', properties: {message_id: i % 13 ? 'same' : 'other', headers: {'x-delay': 900_000}}});
  await go(page, '#/exchanges/%2F/later');
  await page.getByLabel('Search by').selectOption('message_id');
  await page.getByLabel('Identity of the message').fill('same');
  await page.getByLabel('Identity of the message').press('Enter');
  await page.getByText('100+ of 130 messages held').waitFor();
  const held = page.locator('.list', {has: page.getByLabel('Identity of the message')});
  await held.getByRole('button', {name: 'Next'}).click();
  await page.getByText('120 of 130 messages held').waitFor();
});
