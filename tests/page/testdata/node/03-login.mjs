// A wrong password is said without a pop-up; logout ends the session; other sites can do nothing with it.
import {base, holds, logIn, same, scenario, tab} from './lib.mjs';

await scenario(async (browser, faults) => {
  const page = await tab(browser, faults, {login: false});
  await page.locator('input[autocomplete="username"]').fill('guest');
  await page.locator('input[autocomplete="current-password"]').fill('wrong');
  await page.locator('button[type="submit"]').click();
  await page.getByText('Login failed').waitFor();
  await logIn(page);
  const [cookie] = await page.context().cookies();
  same([cookie.httpOnly, cookie.sameSite, cookie.path], [true, 'Strict', '/'], 'the cookie');
  holds(!(await page.evaluate(() => document.cookie)), 'scripts can read the cookie');
  same(await page.evaluate(() => JSON.stringify([...Object.entries(localStorage), ...Object.entries(sessionStorage)]).includes('guest')), false, 'credentials in storage');
  const header = {cookie: `${cookie.name}=${cookie.value}`};
  const whoami = async () => (await fetch(base + '/api/whoami', {headers: {...header, 'x-requested-with': 'curfew'}})).status;
  same(await whoami(), 200, 'whoami with the cookie');
  for (const foreign of [{origin: 'https://evil.example'}, {'sec-fetch-site': 'cross-site'}, {origin: 'null'}]) {
    const answer = await fetch(base + '/api/queues/%2F/x', {method: 'PUT', headers: {...header, ...foreign, 'content-type': 'application/json'}, body: '{}'});
    same(answer.status, 403, `a PUT with ${JSON.stringify(foreign)}`);
    const login = await fetch(base + '/api/session', {method: 'POST', headers: {...foreign, 'content-type': 'application/json'}, body: '{"user":"guest","password":"guest"}'});
    same(login.status, 403, `a login with ${JSON.stringify(foreign)}`);
  }
  const silent = await fetch(base + '/api/whoami', {headers: {'x-requested-with': 'curfew'}});
  same([silent.status, silent.headers.get('www-authenticate')], [401, null], 'without a login');
  await page.locator('[popovertarget=person]').click();
  await page.getByRole('button', {name: /log ?out/i}).click();
  await page.locator('input[autocomplete="current-password"]').waitFor();
  same(await whoami(), 401, 'whoami with the cookie of a session that has ended');
  await page.goto(base.replace('//', '//guest:guest@') + '/');
  await logIn(page);
});
