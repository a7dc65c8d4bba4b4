// How numbers, times and durations are written: the same everywhere.

const whole = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
const compact = new Intl.NumberFormat('en', {notation: 'compact', maximumFractionDigits: 1});

/** Writes a count, to 10,000 in full. @param {number | null | undefined} n */
export function count(n) {
  if (n == null) return '–';
  return Math.abs(n) < 10_000 ? whole.format(n) : compact.format(n).toLowerCase().replace('b', 'G').replace('m', 'M');
}

/** Writes a count in full. @param {number} n */
export const exact = (n) => whole.format(n);

/** Writes a rate per second. @param {number | null | undefined} n */
export function rate(n) {
  if (n == null) return '–';
  if (n === 0) return '0/s';
  if (n > 0 && n < .05) return '< 0.1/s';
  return (Math.abs(n) < 10 ? n.toFixed(1) : count(Math.round(n))) + '/s';
}

/** Writes a size. @param {number | null | undefined} n bytes */
export function bytes(n) {
  if (n == null) return '–';
  let unit = 0;
  for (; Math.abs(n) >= 1024 && unit < 5; unit++) n /= 1024;
  return (unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)) + ' ' + ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][unit];
}

/** Writes a duration in at most two units. @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms == null) return '–';
  const a = Math.abs(ms), sign = ms < 0 ? '−' : '';
  if (a < 10) return sign + (Number.isInteger(a) ? a : a.toFixed(1)) + ' ms';
  if (a < 1000) return sign + Math.round(a) + ' ms';
  if (a < 60_000) return sign + (a < 10_000 ? (a / 1000).toFixed(1) : Math.round(a / 1000)) + ' s';
  /** @type {[number, string, number, string][]} */
  const units = [[365 * 864e5, 'y', 864e5, 'd'], [864e5, 'd', 36e5, 'h'], [36e5, 'h', 6e4, 'm'], [6e4, 'm', 1e3, 's']];
  for (const [large, name, small, rest] of units) {
    if (a < large) continue;
    const n = Math.floor(a / large), r = Math.floor((a % large) / small);
    return sign + n + ' ' + name + (r ? ' ' + r + ' ' + rest : '');
  }
  return '';
}

/** Writes how far an instant is from now: "in 3 s", "2 m ago". @param {number | null | undefined} at ms since 1970 @param {number} now */
export function relative(at, now) {
  if (at == null) return '–';
  return at >= now ? 'in ' + duration(at - now) : duration(now - at) + ' ago';
}

const clockTime = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3, hourCycle: 'h23'});
const fullTime = new Intl.DateTimeFormat(undefined, {dateStyle: 'medium', timeStyle: 'medium', hourCycle: 'h23'});

/** The last instant of a Date, in ms. A publisher may write any number into a message's timestamp. */
export const LAST = 8.64e15;

/** @param {Intl.DateTimeFormat} form @param {number} at */
const written = (form, at) => Math.abs(at) <= LAST ? form.format(at) : 'beyond all calendars';

/** Writes the time of day with milliseconds. @param {number} at ms since 1970 */
export const time = (at) => written(clockTime, at);
/** Writes date and time. @param {number} at ms since 1970 */
export const dateTime = (at) => written(fullTime, at);
/** Writes date and time with milliseconds. @param {number} at ms since 1970 */
export const exactly = (at) => `${dateTime(at)}.${String(at % 1000).padStart(3, '0')}`;
/** Writes "1 message", "2 messages". @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = one + 's') => exact(n) + ' ' + (n === 1 ? one : many);
