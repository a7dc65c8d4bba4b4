// Which file shows which address.

/**
 * The logged-in user and the broker, as GET /api/session shows them.
 * @typedef {object} User
 * @property {string} name
 * @property {string[]} tags
 * @property {number} [expires_at]
 * @property {string | null} trace_url where a trace can be looked at, with {trace_id} in it
 * @property {string} node
 * @property {string} cluster_name
 * @property {string} version
 */

/**
 * The parameter of a view: everything that it may use of the shell.
 * @typedef {object} Context
 * @property {string[]} parts of the address behind the view's name, such as a vhost and a queue
 * @property {URLSearchParams} query of the address
 * @property {User} user the logged-in user
 * @property {AbortSignal} signal aborted when the view is left: requests and listeners that take it end with it
 * @property {(view: string, query: Record<string, string>, show: (state: any) => void, refused?: (why: import('./api.js').Failure) => void) => () => void} live calls show with the state of a live view, now and after each change, or refused with the broker's reason; the function that it returns ends this
 * @property {(ms: number, load: () => Promise<void> | void) => void} every calls load now, and again so long after it has ended; not while the tab is hidden
 * @property {(query: Record<string, string | number | null>) => void} replace changes parts of the address's query, without a new view
 */

/**
 * A view fills the element, and returns nothing, or a promise that is kept when the first content is there.
 * @typedef {(main: HTMLElement, context: Context) => void | Promise<void>} View
 */

/**
 * By the first part of the address. Views in the menu have a key; others are "of" one of these.
 * @type {Record<string, {menu?: string, key?: string, of?: string, load: () => Promise<{default: View}>}>}
 */
export const views = {
  '': {menu: 'Now', key: 'n', load: () => import('./views/now.js')},
  deadlines: {menu: 'Deadlines', key: 'd', load: () => import('./views/deadlines.js')},
  queues: {menu: 'Queues', key: 'q', load: () => import('./views/queues.js')},
  exchanges: {menu: 'Exchanges', key: 'x', load: () => import('./views/exchanges.js')},
  flow: {menu: 'Flow', key: 'f', load: () => import('./views/flow.js')},
  policies: {menu: 'Policies', key: 'p', load: () => import('./views/policies.js')},
  events: {menu: 'Events', key: 'e', load: () => import('./views/events.js')},
  connections: {menu: 'Connections', key: 'c', load: () => import('./views/connections.js')},
  admin: {menu: 'Admin', key: 'a', load: () => import('./views/users.js')},
  channels: {of: 'connections', load: () => import('./views/channels.js')},
  users: {of: 'admin', load: () => import('./views/users.js')},
  vhosts: {of: 'admin', load: () => import('./views/vhosts.js')},
  limits: {of: 'admin', load: () => import('./views/limits.js')},
  definitions: {of: 'admin', load: () => import('./views/definitions.js')},
  node: {of: 'admin', load: () => import('./views/node.js')},
  nodes: {of: 'admin', load: () => import('./views/node.js')}, // the name on RabbitMQ's page, as the next
  operator_policies: {of: 'policies', load: () => import('./views/policies.js')},
  story: {of: 'events', load: () => import('./views/story.js')},
  lab: {of: 'policies', load: () => import('./views/lab.js')},
};
