// NAME is an expiry policy: messages wait for ttl-ms milliseconds, or less if
// their publisher or their queue says so.
import { NONE, config, each, refuse } from "./policy";
export { policy_v1, policy_buf } from "./policy";

let ttl: i64 = 0; // milliseconds

export function policy_configure(length: i32): i32 {
  ttl = config("ttl-ms", 60000);
  if (ttl < 1 || ttl > 1000000000000) return refuse("ttl-ms has to be from 1 to 1000000000000");
  return 0;
}

// The lower of two durations, of which NONE is the longest.
function lower(a: i64, b: i64): i64 {
  return a == NONE || (b != NONE && b < a) ? b : a;
}

export function on_enqueue(now: i64, n: i32): i32 {
  return each(now, n, (now, m, v) => v.keep(m.enqueued + lower(ttl, lower(m.expiration, m.queueTTL))));
}
