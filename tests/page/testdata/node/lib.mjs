// What scenarios share: a browser that notices everything that must not happen, and words for what they do.

import {createInterface} from 'node:readline';
import {createRequire} from 'node:module';

/** Finds packages of npm, in the folder that PAGE_TOOLS names. */
export const packages = createRequire(process.env.PAGE_TOOLS + '/package.json');
const {chromium} = packages('playwright-core');

export const base = process.env.PAGE;
const lines = createInterface({input: process.stdin})[Symbol.asyncIterator]();

/** Asks the test that started this to do something, and waits until that is done. */
export async function please(what) {
  console.log('do ' + what);
  await lines.next();
}

const BASIC = 'Basic ' + Buffer.from('guest:guest').toString('base64');

/** Sends a request to the API, as a script would. */
export async function api(method, path, body) {
  const answer = await fetch(`${base}/api/${path}`, {
    method, body: body === undefined ? undefined : JSON.stringify(body),
    headers: {authorization: BASIC, 'content-type': 'application/json'},
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : null;
}

/** Waits for an event that has happened or will, which a query selects, and returns it. */
export async function event(query) {
  const answer = await fetch(`${base}/api/events?format=ndjson&history=1000&${query}`, {headers: {authorization: BASIC}, signal: AbortSignal.timeout(60_000)});
  let text = '';
  for await (const part of answer.body.pipeThrough(new TextDecoderStream())) {
    text += part;
    const [first, ...rest] = text.split('\n').filter(Boolean);
    if (rest.length > 0 || text.endsWith('\n') && first) return JSON.parse(first);
  }
  throw new Error(`no event has ${query}: ${answer.status} ${text}`);
}

/** Fails unless two values are equal. */
export function same(got, want, what) {
  if (JSON.stringify(got) !== JSON.stringify(want)) throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
}

/** Fails unless something is true. */
export function holds(is, what) {
  if (!is) throw new Error(what);
}

/**
 * Runs a scenario in a browser. Whatever the page must never do fails it: a dialog of the browser's, a script error, a violation of the
 * page's own content security policy, a request to another host.
 */
export async function scenario(run) {
  const browser = await launch();
  const faults = [];
  try {
    await run(browser, faults);
  } catch (error) {
    faults.push(error.stack ?? String(error));
  }
  await browser.close();
  for (const fault of new Set(faults)) console.error(fault);
  process.exit(faults.length ? 1 : 0);
}

async function launch() {
  for (let attempt = 1; ; attempt++) {
    try {
      return await chromium.launch({executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-dev-shm-usage'], timeout: 60_000});
    } catch (error) {
      if (attempt === 3) throw error;
    }
  }
}

// A browser reports each answer that is an error; the page asks who is logged in before anybody is.
const EXPECTED = [/401 .*\/api\/session/];

/** Opens a tab that watches. Errors that a scenario provokes are in "allowed", a list of expressions for what the console says. */
export async function tab(browser, faults, {width = 1280, theme = 'light', allowed = [], login = true, ...options} = {}) {
  const context = await browser.newContext({viewport: {width, height: 900}, colorScheme: theme, reducedMotion: 'reduce', ...options});
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.on('dialog', (d) => { faults.push(`a dialog of the browser's: ${d.message()}`); void d.dismiss(); });
  page.on('pageerror', (e) => faults.push('a script failed: ' + e.stack));
  page.on('console', (m) => {
    const text = `${m.text()} (${m.location().url})`;
    if (m.type() === 'error' && !EXPECTED.concat(allowed).some((a) => a.test(text))) faults.push('the console says: ' + text);
  });
  page.on('request', (r) => { if (new URL(r.url()).origin !== base && !/^(blob|data):/.test(r.url())) faults.push('a request leaves the origin: ' + r.url()); });
  await page.goto(base + '/');
  if (login) await logIn(page);
  return page;
}

/** Both themes, on a desk and on a telephone: options of [tab]. */
export const FORMS = ['light', 'dark'].flatMap((theme) => [1280, 360].map((width) => ({theme, width})));

/** Fills in the form. */
export async function logIn(page, user = 'guest', password = 'guest') {
  await page.locator('input[autocomplete="username"]').fill(user);
  await page.locator('input[autocomplete="current-password"]').fill(password);
  await page.locator('button[type="submit"]').click();
  await page.locator('nav[aria-label]').first().waitFor();
}

/** Goes to a view, and waits until its title is there. */
export async function go(page, route) {
  await page.goto(base + '/' + route);
  await page.locator('main h1').first().waitFor();
}
