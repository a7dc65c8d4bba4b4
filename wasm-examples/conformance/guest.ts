// The guest of the conformance kit, in AssemblyScript.
import { config, configText, count, each, Idle, Level, log, logEnabled, Message, NONE, Property, refuse, Verdict } from "../../sdk/assemblyscript/policy";
export { policy_v1, policy_buf } from "../../sdk/assemblyscript/policy";

let exchange: string = "";
let key: string = "";

export function policy_configure(length: i32): i32 {
  if (config("refuse", 0) != 0) return refuse("as asked");
  const e = configText("exchange");
  const k = configText("key");
  if (e === null || k === null) return refuse("exchange and key have to be set");
  exchange = e;
  key = k;
  return 0;
}

// Says a number.
function number(v: Verdict, n: i64): void {
  v.keep(NONE);
  v.state = n;
}

// Says a text, if there is one.
function text(m: Message, v: Verdict, key: string, said: string | null): void {
  if (said === null) return number(v, -1);
  m.trace(key, said);
  number(v, String.UTF8.byteLength(said));
}

const names: StaticArray<string> = ["exchange", "routing-key", "message-id", "type", "app-id", "user-id"];

function properties(m: Message, v: Verdict): void {
  let present: i64 = 0;
  for (let p = Property.Exchange; p <= Property.UserId; p++) {
    const said = m.property(p);
    if (said !== null) present++;
    text(m, v, names[p - 1], said);
  }
  number(v, present);
}

function allLevels(v: Verdict): void {
  let enabled: i64 = 0;
  for (let level = Level.Debug; level <= Level.Error; level++) {
    log(level, "hello");
    enabled |= (<i64>logEnabled(level)) << level;
  }
  number(v, enabled);
}

function body(m: Message, v: Verdict): void {
  const into = new Uint8Array(8);
  const n = m.body(4, into);
  text(m, v, "body", String.UTF8.decodeUnsafe(into.dataStart, n));
}

function record(now: i64, m: Message): i64 {
  let n = m.expiration;
  n = n * 1000 + m.queueTTL;
  n = n * 1000 + m.deadline - now;
  n = n * 1000 + m.state;
  n = n * 1000 + m.size;
  return n * 1000 + m.deliveries;
}

function rest(now: i64, m: Message): i64 {
  let n = now - m.enqueued;
  n = n * 1000 + m.deaths;
  n = n * 1000 + m.priority;
  n = n * 1000 + (<i64>m.redelivered) + 2 * (<i64>m.persistent) + 4 * (<i64>m.hasDLX);
  return n * 1000 + m.why;
}

function enter(now: i64, m: Message, v: Verdict): void {
  switch (m.priority) {
    case 1: return v.keep(m.enqueued + 1000);
    case 2: return v.keep(NONE);
    case 3: return v.expire();
    case 4: return v.drop();
    case 5: return v.askAgain(now + 5000);
    case 6: return v.deadLetter(exchange, key);
    case 7: return v.deadLetter(exchange);
    case 8: return number(v, m.header("number", -7));
    case 9: return text(m, v, "text", m.headerText("text"));
    case 10: return properties(m, v);
    case 11: return body(m, v);
    case 12: return number(v, config("deep.number", -7));
    case 13: return text(m, v, "text", configText("deep.text"));
    case 14: return number(v, m.queueSetting("x-max-length", -7));
    case 15: return text(m, v, "text", m.queueText("overflow"));
    case 16: return allLevels(v);
    case 17: return count("asked", m.size);
    case 18: return number(v, record(now, m));
    case 19: return number(v, rest(now, m));
    case 20: {
      v.keep(NONE);
      v.askAtHead();
      return;
    }
    case 21: {
      v.keep(NONE);
      return m.hold(now + 2000);
    }
    case 22: return m.hold(now + 2000);
    case 23: {
      m.hold(now + 2000);
      m.hold(NONE);
    }
  }
}

export function on_enqueue(now: i64, n: i32): i32 {
  return each(now, n, enter);
}

function due(now: i64, m: Message, v: Verdict): void {
  switch (m.priority) {
    case 0: return v.expire();
    case 1: {
      v.keep(now + 1000);
      v.state = m.state + 1;
      return;
    }
    case 2: return v.deadLetter(exchange, key);
    case 3: return v.askAgain(now + 5000);
    case 4: return v.drop();
  }
}

export function on_deadline(now: i64, n: i32): i32 {
  return each(now, n, due);
}

export function on_head(now: i64, n: i32): i32 {
  return each(now, n, (now: i64, m: Message, v: Verdict) => {
    if (m.priority == 0) v.keep(now + 10);
    if (m.priority == 2) m.hold(now + 10);
  });
}

export function on_requeue(now: i64, n: i32): i32 {
  return each(now, n, (now: i64, m: Message, v: Verdict) => {
    if (m.priority == 2) m.hold(m.deadline);
    if (m.priority != 0) return;
    v.keep(m.deadline + 1000);
    v.state = m.deliveries;
  });
}

export function on_idle(now: i64, idle: i64, ready: u32, unacked: u32, consumers: u32): i64 {
  switch (ready) {
    case 0: return now + idle + <i64>unacked * 1000 + consumers;
    case 1: return Idle.NO_OPINION;
    case 2: return Idle.DELETE;
  }
  return Idle.STAYS;
}
