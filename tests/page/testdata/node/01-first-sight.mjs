// A fresh broker: the page is there, small, and asks nobody else.
import {base, go, holds, scenario, tab} from './lib.mjs';

const VIEWS = ['', 'deadlines', 'queues', 'exchanges', 'flow', 'policies', 'events', 'connections', 'channels', 'users', 'vhosts', 'limits', 'definitions', 'node', 'story', 'lab'];

await scenario(async (browser, faults) => {
  const page = await tab(browser, faults);
  const sizes = new Map();
  page.on('response', async (r) => {
    if (new URL(r.url()).pathname.startsWith('/page/')) sizes.set(r.url(), Number(r.headers()['content-length'] ?? 0));
  });
  for (const view of VIEWS) await go(page, '#/' + view);
  const answer = await fetch(base + '/');
  holds(answer.status === 200, `/ is ${answer.status}`);
  console.log(`${VIEWS.length} views, ${sizes.size} files`);
});
