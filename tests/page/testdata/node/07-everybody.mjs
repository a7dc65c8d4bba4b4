// axe finds nothing in any view, in both themes, on a desk and on a telephone; and a dead-letter queue is redriven without a mouse.
import {check} from './axe.mjs';
import {FORMS, api, go, holds, scenario, tab} from './lib.mjs';
import {VIEWS, fill} from './views.mjs';

/** Presses Tab until what has the focus is what is looked for. */
async function tabTo(page, is, what) {
  for (let i = 0; i < 120; i++) {
    await page.keyboard.press('Tab');
    if (await page.evaluate(is)) return;
  }
  throw new Error(`${what} is not reached with the keyboard`);
}

await scenario(async (browser, faults) => {
  await fill();
  let checked = 0;
  for (const form of FORMS) {
    const page = await tab(browser, faults, {...form, allowed: [/404/]});
    for (const [name, route] of Object.entries(VIEWS)) {
      await go(page, route);
      await page.waitForTimeout(150); // what follows the title
      await check(page, `${name}, ${form.theme}, ${form.width} px`, faults);
      checked++;
    }
    await page.context().close();
  }
  console.log(`axe has looked at ${checked} views`);
  const page = await tab(browser, faults);
  await go(page, VIEWS['dead-letters']);
  await page.getByRole('button', {name: /redrive/i}).first().waitFor();
  await tabTo(page, () => /redrive/i.test(document.activeElement.textContent) && document.activeElement.tagName === 'BUTTON', 'the button that redrives');
  await page.keyboard.press('Enter');
  await page.locator('dialog[open]').waitFor();
  await check(page, 'the dialog that redrives', faults);
  const before = (await api('GET', 'queues/%2F/dead')).messages;
  holds(before > 0, 'there are no dead letters');
  for (let i = 0; i < 4 && (await api('GET', 'queues/%2F/dead')).messages === before; i++) { // first what would be done, then it is done
    await tabTo(page, () => document.activeElement.type === 'submit', 'the button of the dialog');
    await page.keyboard.press('Enter');
    await page.waitForTimeout(1000);
  }
  holds((await api('GET', 'queues/%2F/dead')).messages < before, 'nothing was redriven');
});
