// A user without permissions is told why everything is empty; each view is reached by its menu, and old links lead where they did.
import {api, go, holds, logIn, same, scenario, tab} from './lib.mjs';

await scenario(async (browser, faults) => {
  await api('PUT', 'users/anna', {password: 'secret', tags: 'management'});
  const page = await tab(browser, faults, {login: false, allowed: [/401 .*\/api\/(wasm\/policies|nodes|users)/]});
  await logIn(page, 'anna', 'secret');
  const told = page.getByText('You may enter no virtual host yet');
  await told.waitFor();
  for (const [route, text] of [['#/users', 'Users are shown to users with the tag administrator.'], ['#/vhosts/%2F', 'A virtual host and its permissions are shown to users with the tag administrator.'], ['#/node', 'The node is shown to users with the tag monitoring or administrator.']]) {
    await go(page, route);
    await page.getByText(text).waitFor();
    same(await page.locator('main').getByRole('button').count(), 0, `buttons of ${route} that the broker would refuse`);
  }
  await api('PUT', 'permissions/%2F/anna', {configure: '', write: '', read: '.*'});
  await go(page, '#/queues');
  await told.waitFor({state: 'hidden'});

  await go(page, '#/policies');
  await page.getByRole('link', {name: /^Lab/}).click();
  await page.getByRole('heading', {name: 'Lab', exact: true}).waitFor();
  await go(page, '#/events');
  await page.getByRole('link', {name: 'Story of a message'}).click();
  await page.getByText('one without has no story').waitFor();
  await api('PUT', 'queues/%2F/hello', {durable: true});
  await api('POST', 'exchanges/%2F/amq.default/publish', {routing_key: 'hello', payload: 'hello yourself', payload_encoding: 'string', properties: {}});
  await go(page, '#/queues/%2F/hello?tab=messages');
  await page.getByText('Messages without the property message_id have no story').waitFor();
  for (const [route, menu] of [['#/lab', 'Policies'], ['#/story', 'Events'], ['#/nodes/curfew%40here', 'Admin'], ['#/operator_policies', 'Policies']]) {
    await go(page, route);
    same(await page.locator('.frame nav [aria-current]').allTextContents(), [menu], `the menu at ${route}`);
  }
  await api('PUT', 'users/watcher', {password: 'secret', tags: 'monitoring'});
  const watching = await tab(browser, faults, {login: false});
  await logIn(watching, 'watcher', 'secret');
  const filtered = watching.getByText('1 queue in virtual hosts that you may not enter is not listed; totals count what is in them.');
  await filtered.waitFor();
  await watching.locator('.stat', {hasText: 'Ready'}).locator('dd', {hasText: /^1$/}).waitFor();
  await api('PUT', 'permissions/%2F/watcher', {configure: '', write: '', read: '.*'});
  await go(watching, '#/deadlines');
  await filtered.waitFor({state: 'hidden'});

  await page.keyboard.press('g'); // what the keyboard moves, it does not frame
  await page.keyboard.press('d');
  await page.getByRole('heading', {name: 'Deadlines'}).waitFor();
  await page.waitForFunction(() => document.activeElement?.id === 'main');
  holds(await page.evaluate(() => document.activeElement.matches(':focus-visible') && getComputedStyle(document.activeElement).outlineStyle === 'none'), 'the view has a frame');
});
