// Retry with exponential back-off: the policy of the queue in which messages wait
// that a worker has rejected. When a message's time is up, the queue dead-letters
// it back to where it is worked on.
import { config, configText, each, Message, NONE, refuse, Verdict } from "../../sdk/assemblyscript/policy";
export { policy_v1, policy_buf } from "../../sdk/assemblyscript/policy";

const YEAR: i64 = 365 * 24 * 60 * 60 * 1000;

let base: i64 = 0; // how long the first wait is
let longest: i64 = 0;
let tries: i64 = 0;
let exchange: string = ""; // where messages go that have had all of them
let key: string = "";

export function policy_configure(length: i32): i32 {
  base = config("base-ms", 1000);
  longest = config("max-ms", 60 * 60 * 1000);
  tries = config("tries", 10);
  if (base < 1 || longest < base || longest > YEAR) {
    return refuse("base-ms has to be 1 or more, and max-ms from that to 31536000000");
  }
  if (tries < 1 || tries > 1000) return refuse("tries has to be from 1 to 1000");
  const e = configText("exchange");
  const k = configText("key");
  exchange = e === null ? "" : e;
  key = k === null ? "" : k;
  if (exchange.length + key.length == 0) {
    return refuse("exchange, key or both have to say where messages go after the last try");
  }
  return 0;
}

// A try is two deaths: the worker's queue and this one dead-letter the message
// once each.
function wait(now: i64, m: Message, v: Verdict): void {
  const before = <i64>(m.deaths / 2);
  if (before >= tries) return v.deadLetter(exchange, key);
  let t = base;
  for (let i: i64 = 0; i < before && t < longest; i++) t *= 2;
  if (t > longest) t = longest;
  // The queue's TTL, if it has one, is a limit to each wait.
  if (m.queueTTL != NONE && m.queueTTL < t) t = m.queueTTL;
  v.keep(m.enqueued + t);
}

export function on_enqueue(now: i64, n: i32): i32 {
  return each(now, n, wait);
}
