// The page's addresses: hash routes, as RabbitMQ's page has them, so that links in alerts keep working.

/**
 * Returns the address of a view. All links of the page are made here: each part is encoded, so that names may have any characters.
 * @param {string} view its first part, such as "queues"; "" is the first view
 * @param {string[]} [parts] such as a vhost and a queue
 * @param {Record<string, string | number | boolean | null | undefined>} [query] empty ones are left out
 */
export function href(view, parts = [], query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value != null && value !== '' && value !== false) search.set(name, String(value));
  const text = search.toString();
  return '#/' + [view, ...parts].map(encodeURIComponent).join('/') + (text ? '?' + text : '');
}

/**
 * Returns a path of the API below /api/, with each part encoded.
 * @param {...string} parts
 */
export function path(...parts) {
  return parts.map(encodeURIComponent).join('/');
}

/**
 * Reads an address that href made, or that somebody wrote.
 * @param {string} hash
 * @returns {{view: string, parts: string[], query: URLSearchParams}}
 */
export function readHash(hash) {
  const [before, after = ''] = split(hash.replace(/^#?\/?/, ''), '?');
  const [view, ...parts] = before.split('/').map(decode);
  return {view, parts, query: new URLSearchParams(after)};
}

/** @param {string} text @param {string} at */
function split(text, at) {
  const i = text.indexOf(at);
  return i < 0 ? [text] : [text.slice(0, i), text.slice(i + 1)];
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // somebody typed it
  }
}

/**
 * Returns the address of a trace in the user's tracing; null if either is unknown.
 * @param {string | null} template management.trace-url @param {string | null | undefined} id
 */
export function traceHref(template, id) {
  if (!template || !id || !/^https?:\/\//.test(template)) return null;
  return template.replaceAll('{trace_id}', encodeURIComponent(id));
}
