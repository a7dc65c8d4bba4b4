// axe finds nothing in any view, in both themes, on a desk and on a telephone; and a dead-letter queue is redriven without a mouse.
import {readFile} from 'node:fs/promises';
import {api, go, holds, packages, scenario, tab} from './lib.mjs';
import {VIEWS, fill} from './views.mjs';

const axe = await readFile(packages.resolve('axe-core/axe.min.js'), 'utf8');
const RULES = {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']};

/** Asks axe, in a world of its own that the page's policy does not reach. */
async function check(page, what, faults) {
  const world = await page.context().newCDPSession(page);
  const {executionContextId: contextId} = await world.send('Page.createIsolatedWorld', {frameId: (await world.send('Page.getFrameTree')).frameTree.frame.id});
  await world.send('Runtime.evaluate', {contextId, expression: axe});
  const {result} = await world.send('Runtime.evaluate', {contextId, awaitPromise: true, returnByValue: true, expression: `axe.run(document, ${JSON.stringify(RULES)}).then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.target.join(' ') + ' ' + n.html.slice(0, 160)).slice(0, 3).join(' | ')))`});
  for (const v of result.value ?? ['axe did not answer']) faults.push(`${what}: ${v}`);
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wider > 0) faults.push(`${what}: ${wider} px wider than the window`);
}

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
  for (const theme of ['light', 'dark']) {
    for (const width of [1280, 360]) {
      const page = await tab(browser, faults, {theme, width, allowed: [/404/]});
      for (const [name, route] of Object.entries(VIEWS)) {
        await go(page, route);
        await page.waitForTimeout(150); // what follows the title
        await check(page, `${name}, ${theme}, ${width} px`, faults);
        checked++;
      }
      await page.context().close();
    }
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
