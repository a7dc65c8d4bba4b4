// The broker hangs: its connections stay open, but the page says that it does not answer, and goes on when it does.
import {go, please, scenario, tab} from './lib.mjs';

await scenario(async (browser, faults) => {
  const page = await tab(browser, faults, {allowed: [/./]}); // requests that fail are what this is about
  await go(page, '#/');
  await please('hang');
  await page.getByText(/does not answer/i).first().waitFor();
  await please('go on');
  await page.getByText(/does not answer/i).first().waitFor({state: 'hidden'});
  await page.locator('nav[aria-label]').first().waitFor(); // nobody has to log in again
});
