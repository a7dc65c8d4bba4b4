// Pictures of every view, in both themes, on a desk and on a telephone, in the folder that SHOTS names; and of a broker that is empty,
// has many queues, is in a storm of expiries, is short of memory, or is gone.
import {mkdir} from 'node:fs/promises';
import {FORMS, api, go, please, scenario, tab} from './lib.mjs';
import {VIEWS, fill} from './views.mjs';

const folder = process.env.SHOTS;
const ALLOWED = [/404/, /503/, /ERR_/]; // queues that are gone, checks of alarms that are raised, a broker that is gone

await scenario(async (browser, faults) => {
  const open = (form) => tab(browser, faults, {...form, allowed: ALLOWED});
  const shoot = (page, name, {theme, width}) => page.screenshot({path: `${folder}/${name}-${theme}-${width}.png`, fullPage: true});
  const all = async (prefix, names, ready = async () => {}) => {
    for (const form of FORMS) {
      const page = await open(form);
      for (const name of names) {
        await go(page, VIEWS[name]);
        await page.waitForLoadState('load');
        await page.waitForTimeout(1200); // what a live view says first, and charts
        await ready(page);
        await shoot(page, prefix + name, form);
      }
      await page.context().close();
    }
  };
  await mkdir(folder, {recursive: true});
  await all('empty-', ['now', 'deadlines', 'queues', 'flow', 'events', 'connections']);
  await api('PUT', 'queues/%2F/only', {durable: true, arguments: {'x-message-ttl': 60_000}});
  await all('one-', ['now', 'deadlines', 'queues']);
  await api('DELETE', 'queues/%2F/only');
  await fill();
  await all('', Object.keys(VIEWS));
  await please('storm');
  await all('storm-', ['now', 'deadlines', 'events']);
  const {name: node} = (await api('GET', 'nodes'))[0];
  await api('PUT', `nodes/${encodeURIComponent(node)}/memory-watermark`, {absolute: 0});
  await all('alarm-', ['now', 'queues'], (page) => page.getByText(/publishers wait/).first().waitFor());
  await api('POST', 'definitions', {queues: Array.from({length: 10_000}, (_, i) => ({name: `tenant-${i}.jobs`, vhost: '/', durable: false, auto_delete: false, arguments: {}}))});
  await all('many-', ['now', 'deadlines', 'queues', 'flow']);
  const pages = [];
  for (const form of FORMS) {
    const page = await open(form);
    await go(page, VIEWS.deadlines);
    await page.waitForTimeout(1200);
    pages.push([page, form]);
  }
  await please('kill');
  for (const [page, form] of pages) {
    await page.getByText(/does not answer/i).first().waitFor();
    await shoot(page, 'gone-deadlines', form);
  }
});
