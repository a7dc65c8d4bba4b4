// Whether everybody can use a view.
import {readFile} from 'node:fs/promises';
import {packages} from './lib.mjs';

const axe = await readFile(packages.resolve('axe-core/axe.min.js'), 'utf8');
const RULES = {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']};

/** Asks axe about a view, in a world of its own that the page's policy does not reach, and whether the view is as wide as the window. */
export async function check(page, what, faults) {
  const world = await page.context().newCDPSession(page);
  const {executionContextId: contextId} = await world.send('Page.createIsolatedWorld', {frameId: (await world.send('Page.getFrameTree')).frameTree.frame.id});
  await world.send('Runtime.evaluate', {contextId, expression: axe});
  const {result} = await world.send('Runtime.evaluate', {contextId, awaitPromise: true, returnByValue: true, expression: `axe.run(document, ${JSON.stringify(RULES)}).then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.target.join(' ') + ' ' + n.html.slice(0, 160)).slice(0, 3).join(' | ')))`});
  for (const v of result.value ?? ['axe did not answer']) faults.push(`${what}: ${v}`);
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wider > 0) faults.push(`${what}: ${wider} px wider than the window`);
}
