// Requests to the broker's HTTP API. The cookie of the session is the login.

/** An answer that is an error. */
export class Failure extends Error {
  /** @param {number} status 0 = the broker did not answer @param {string} reason @param {number} [retry] seconds until it may be tried again */
  constructor(status, reason, retry = 0) {
    super(reason);
    this.status = status;
    this.retry = retry;
  }
}

/** Tells the page that the login has ended, and that the broker does not answer, or does again. */
export const connection = new EventTarget();

/**
 * Sends a request and returns the answer's JSON; null without a body. It throws a Failure.
 * @param {string} method
 * @param {string} path below /api/, as path() makes it, with a query if need be
 * @param {any} [body] is sent as JSON; a file, as it is
 * @param {AbortSignal} [signal]
 * @param {Record<string, string>} [headers]
 * @returns {Promise<any>}
 */
export async function call(method, path, body, signal, headers) {
  const response = await send(method, path, body, signal, headers);
  const text = await response.text();
  if (response.ok) return text ? JSON.parse(text) : null;
  if (response.status === 401 && path !== 'session') await checkSession();
  throw new Failure(response.status, reasonOf(text) ?? `${response.status} ${response.statusText}`, Number(response.headers.get('Retry-After')));
}

/**
 * Sends a request and returns the answer, also a refusal. It throws a Failure if the broker does not answer, or is being started.
 * @param {string} method @param {string} path @param {any} body @param {AbortSignal} [signal] @param {Record<string, string>} [more] headers
 * @returns {Promise<Response>}
 */
export async function send(method, path, body, signal, more) {
  const headers = {...more, 'X-Requested-With': 'curfew', ...(body === undefined ? {} : {'Content-Type': 'application/json'})};
  /** @type {Response} */
  let response;
  const address = location.origin + '/api/' + undotted(path); // browsers fetch nothing relative to an address with a user and password
  try {
    response = await fetch(address, {method, headers, signal, body: body === undefined || body instanceof Blob ? body : JSON.stringify(body)});
  } catch (error) {
    if (signal?.aborted) throw error;
    throw gone('The broker does not answer.');
  }
  if (response.status === 503 && (await response.clone().text()).includes('"error":"starting"')) throw gone('The broker is being started.');
  connection.dispatchEvent(new Event('up'));
  return response;
}

/**
 * Returns a path without segments that browsers would resolve: a queue may be called "..", and its name leave the path.
 * @param {string} path
 */
function undotted(path) {
  const [names, ...query] = path.split('?');
  if (!names.split('/').some((name) => name === '.' || name === '..')) return path;
  return 'path?' + [new URLSearchParams({of: names}), ...query].join('&');
}

/** @param {string} why */
function gone(why) {
  connection.dispatchEvent(new Event('down'));
  return new Failure(0, why);
}

// A 401 says that a permission is missing as well as that the login has ended.
async function checkSession() {
  const response = await send('GET', 'session', undefined);
  if (response.status === 401) connection.dispatchEvent(new Event('logout'));
}

/** @param {string} text @returns {string | null} */
function reasonOf(text) {
  try {
    const {reason, error} = JSON.parse(text);
    return typeof reason === 'string' ? reason : reason ? JSON.stringify(reason) : error ?? null;
  } catch {
    return text || null;
  }
}

/** @param {string} path @param {AbortSignal} [signal] */
export const get = (path, signal) => call('GET', path, undefined, signal);
/** @param {string} path @param {any} body */
export const put = (path, body) => call('PUT', path, body);
/** @param {string} path @param {any} [body] */
export const post = (path, body) => call('POST', path, body ?? {});
/** @param {string} path @param {any} body */
export const patch = (path, body) => call('PATCH', path, body);
/** @param {string} path */
export const remove = (path) => call('DELETE', path);
