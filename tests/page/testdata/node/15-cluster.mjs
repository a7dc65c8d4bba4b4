// Any node of a cluster shows all of it, and says what is missing while others are gone.
import {mkdir} from 'node:fs/promises';
import {check} from './axe.mjs';
import {FORMS, api, go, holds, please, same, scenario, tab} from './lib.mjs';
import {VIEWS} from './views.mjs';

/** The rows of a table, as text. */
const rows = (page, label) => page.locator(`table[aria-label="${label}"] tbody tr, [aria-label="${label}"] table tbody tr`).allInnerTexts();

/** Waits until the rows of a table are right: they come after the title. */
async function listed(page, label, right) {
  for (let left = 200; ; left--) {
    const all = await rows(page, label);
    if (right(all)) return;
    holds(left > 0, `${label}: ${JSON.stringify(all)}`);
    await page.waitForTimeout(50);
  }
}

const ALLOWED = [/503/, /404/]; // checks of alarms that are raised, a queue that is not there

/** Looks at what a cluster shows, in both themes, on a desk and on a telephone, and makes pictures of it in the folder that SHOTS names. */
async function look(browser, faults, state) {
  const folder = process.env.SHOTS;
  if (!folder && state !== 'one-away') return; // which has all there is to see
  if (folder) await mkdir(folder, {recursive: true});
  for (const form of FORMS) {
    const page = await tab(browser, faults, {...form, allowed: ALLOWED});
    for (const name of ['now', 'queues', 'vhosts', 'node']) {
      await go(page, VIEWS[name]);
      await page.waitForTimeout(folder ? 1200 : 150); // what follows the title
      await check(page, `${name}, ${state}, ${form.theme}, ${form.width} px`, faults);
      if (folder) await page.screenshot({path: `${folder}/cluster-${state}-${name}-${form.theme}-${form.width}.png`, fullPage: true});
    }
    await page.context().close();
  }
}

await scenario(async (browser, faults) => {
  for (const name of ['a', 'b', 'c']) {
    await api('PUT', `vhosts/${name}`, {});
    await api('PUT', `queues/${name}/q-${name}`, {durable: true});
  }
  const nodes = (await api('GET', 'nodes')).map((n) => n.name);
  same(nodes.length, 3, 'nodes');
  const page = await tab(browser, faults, {allowed: ALLOWED});
  await go(page, '#/queues');
  for (const name of ['a', 'b', 'c']) await page.getByText(`q-${name}`, {exact: true}).waitFor(); // whoever owns the vhosts
  await go(page, '#/node');
  for (const name of nodes) await page.getByRole('link', {name, exact: true}).waitFor();
  await listed(page, 'Nodes', (all) => all.filter((r) => r.includes('running')).length === 3);
  await page.getByRole('link', {name: nodes[2], exact: true}).click();
  await page.getByRole('heading', {name: nodes[2], exact: true}).waitFor(); // of another node
  await go(page, '#/vhosts');
  await listed(page, 'Virtual hosts', (all) => all.length === 4 && all.every((r) => nodes.some((n) => r.includes(n))));
  await look(browser, faults, 'whole');
  for (const [i, name] of nodes.entries()) await api('POST', 'cluster/transfer', {shard: i + 1, to: name});
  await please('kill one');
  await go(page, '#/node');
  await page.getByText(/No answer from curfew@/).waitFor();
  await page.getByText('no answer', {exact: true}).waitFor();
  await page.getByText('not known', {exact: true}).waitFor(); // what it lacks: it has told the next owner of its shard nothing
  await look(browser, faults, 'one-away');
  await please('kill another');
  await page.getByText(/No node serves the virtual hosts .*a, b, c/).waitFor();
  await go(page, '#/vhosts');
  await page.getByText('no owner').first().waitFor();
  for (const route of Object.values(VIEWS)) await go(page, route); // each can be shown
  await look(browser, faults, 'nobody-serves');
});
