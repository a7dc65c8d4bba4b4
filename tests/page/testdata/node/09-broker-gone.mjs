// The broker is killed: the page says so, and comes back by itself.
import {go, please, scenario, tab} from './lib.mjs';

await scenario(async (browser, faults) => {
  const page = await tab(browser, faults, {allowed: [/./]}); // requests that fail are what this is about
  await go(page, '#/');
  await please('kill');
  await page.getByText(/does not answer/i).first().waitFor();
  await please('start');
  await page.getByText(/does not answer/i).first().waitFor({state: 'hidden'});
  await page.locator('input[autocomplete="current-password"], nav[aria-label]').first().waitFor();
});
