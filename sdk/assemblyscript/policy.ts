// Expiry policies for Curfew in AssemblyScript: the contract policy_v1, in one
// file.
//
// Put it beside the policy's own file, pass on its exports, and write hooks as
// functions of one message:
//
//     import { each } from "./policy";
//     export { policy_v1, policy_buf } from "./policy";
//
//     export function on_enqueue(now: i64, n: i32): i32 {
//       return each(now, n, (now, m, v) => v.keep(m.enqueued + 30000));
//     }
//
// Times are milliseconds since 1970, durations milliseconds, and NONE stands for
// none or never. A hook's arguments are valid until it returns. If a hook sets
// no verdict, the broker decides by the message's expiration and the queue's
// message-ttl.

/** None, or never. */
export const NONE: i64 = -1;

/** How many messages the broker may hand over at once. */
export const CAPACITY: i32 = 64;

const RECORD: usize = 64;
const VERDICT: usize = 32;
const MAX_NAME: usize = 255;
const MAX_TEXT: usize = 1024;
const ABSENT: i32 = -1;

// The records of a call's messages, followed by their verdicts.
const buffer = memory.data(64 * 96, 8);
// The buffer in which names and texts for the broker are encoded, and in which
// texts from it arrive.
const first = memory.data(4 * 1024);
const second = memory.data(4 * 1024);
// Where verdicts point to for exchange and routing key: room for both, for each
// message of a call.
const routes = memory.data(64 * 512);

/** What brings a message before a hook. */
export namespace Why {
  export const ENQUEUE: u8 = 1;
  export const DEADLINE: u8 = 2;
  export const HEAD: u8 = 3;
  export const REQUEUE: u8 = 4;
}

/** Properties of a message that are text. */
export enum Property {
  Exchange = 1,
  RoutingKey,
  MessageId,
  Type,
  AppId,
  UserId,
}

/** A message, as hooks see it. */
@unmanaged
export class Message {
  enqueued: i64; // when it was enqueued in this queue
  expiration: i64; // the publisher's expiration, a duration
  queueTTL: i64; // the queue's message-ttl, a duration
  deadline: i64; // in force
  state: i64; // stored by the policy
  size: u32; // bytes of body
  deliveries: u32; // how often it was delivered and requeued
  deaths: u32; // how often it was dead-lettered
  private queue: u32;
  priority: u8;
  private flags: u8;
  why: u8; // see Why

  /** Whether it was handed out before. */
  get redelivered(): bool {
    return (this.flags & 1) != 0;
  }

  /** Whether its publisher asked for it to survive a restart. */
  get persistent(): bool {
    return (this.flags & 2) != 0;
  }

  /** Whether its queue has a dead-letter exchange. */
  get hasDLX(): bool {
    return (this.flags & 4) != 0;
  }

  // Its number in the current call.
  private get index(): u32 {
    return <u32>((changetype<usize>(this) - buffer) / RECORD);
  }

  /**
   * A header that is a number, or can be read as one; a timestamp is
   * milliseconds. Needs the grant headers, as other headers and properties do.
   */
  header(name: string, otherwise: i64): i64 {
    return host.header_i64(this.index, first, encode(name, first, MAX_NAME), otherwise);
  }

  /** A header that is text, null if there is none or it has more than 4 KiB. */
  headerText(name: string): string | null {
    const n = encode(name, first, MAX_NAME);
    return decode(host.header_str(this.index, first, n, second, 4 * 1024));
  }

  /** A property, null if there is none. */
  property(which: Property): string | null {
    return decode(host.prop_str(this.index, which, second, 4 * 1024));
  }

  /** A setting of its queue: "message-ttl" or "x-message-ttl". */
  queueSetting(name: string, otherwise: i64): i64 {
    return host.queue_arg_i64(this.queue, first, encode(name, first, MAX_NAME), otherwise);
  }

  /** A setting of its queue that is text, null if there is none. */
  queueText(name: string): string | null {
    const n = encode(name, first, MAX_NAME);
    return decode(host.queue_arg_str(this.queue, first, n, second, 4 * 1024));
  }

  /**
   * Copies the body from an offset on into the buffer, as far as it has space,
   * and returns the number of bytes copied. Needs the grant body.
   */
  body(offset: u32, into: Uint8Array): i32 {
    return host.body(this.index, offset, into.dataStart, into.length);
  }

  /** Adds an attribute to its trace. Needs the grant trace. */
  trace(key: string, value: string): void {
    const k = encode(key, first, MAX_NAME);
    host.trace_attr(this.index, first, k, second, encode(value, second, MAX_TEXT));
  }

  /**
   * Keeps it from being delivered before a time; others pass it. It counts with a
   * verdict that keeps the message, and NONE takes it back. A deadline that comes
   * first is not postponed. Needs the grant hold.
   */
  hold(until: i64): void {
    host.hold(this.index, until);
  }
}

/** What a hook says of a message. */
@unmanaged
export class Verdict {
  private action: u32;
  private flags: u32;
  private until: i64;
  private _state: i64;
  private text: usize;
  private exchangeLength: u16;
  private keyLength: u16;

  /** The message waits until then; NONE is for ever. */
  keep(until: i64): void {
    this.action = 0;
    this.until = until;
  }

  /**
   * Its time is up: it is dead-lettered if the queue is set up so, and dropped
   * otherwise.
   */
  expire(): void {
    this.action = 1;
  }

  /**
   * The message goes to an exchange of the policy's choice; with an empty key it
   * keeps its own. Needs the grant route.
   */
  deadLetter(exchange: string, key: string = ""): void {
    // The verdicts of a call lie one after the other, and there are at most 64,
    // so no two of them share a slot.
    const at = routes + ((changetype<usize>(this) - buffer) / VERDICT % 64) * 512;
    this.action = 2;
    this.until = NONE;
    this.text = at;
    this.exchangeLength = <u16>encode(exchange, at, MAX_NAME);
    this.keyLength = <u16>encode(key, at + this.exchangeLength, MAX_NAME);
  }

  /** It goes on waiting, and is asked about again at the earliest then. */
  askAgain(notBefore: i64): void {
    this.action = 3;
    this.until = notBefore;
  }

  /** It is dropped, and not dead-lettered. */
  drop(): void {
    this.action = 4;
  }

  /** Stores eight bytes of the policy's own with the message. */
  set state(state: i64) {
    this.flags |= 1;
    this._state = state;
  }

  /** Has on_head called when the message is next to be handed out. */
  askAtHead(): void {
    this.flags |= 2;
  }
}

/** What on_idle returns if it is not the time to ask again at. */
export namespace Idle {
  export const NO_OPINION: i64 = 0; // the queue's x-expires decides
  export const DELETE: i64 = -1; // delete it
  export const STAYS: i64 = -2; // it stays, and is not asked about again
}

/** Asks a function about each message of a call. */
// @ts-ignore: decorator
@inline
export function each(now: i64, n: i32, hook: (now: i64, m: Message, v: Verdict) => void): i32 {
  const verdicts = buffer + <usize>n * RECORD;
  for (let i: usize = 0; i < <usize>n; i++) {
    hook(now, changetype<Message>(buffer + i * RECORD), changetype<Verdict>(verdicts + i * VERDICT));
  }
  return 0;
}

/**
 * The result of policy_configure that refuses the configuration, or of a hook whose
 * call failed, with the reason.
 */
export function refuse(why: string): i32 {
  host.fail(first, encode(why, first, MAX_TEXT));
  return -1;
}

/** A setting of the configuration. What lies deeper has a name with dots. */
export function config(name: string, otherwise: i64): i64 {
  return host.config_i64(first, encode(name, first, MAX_NAME), otherwise);
}

/** A setting that is text, null if there is none or it has more than 4 KiB. Lists come as JSON. */
export function configText(name: string): string | null {
  const n = encode(name, first, MAX_NAME);
  return decode(host.config_str(first, n, second, 4 * 1024));
}

/** How much a line of the log matters. */
export enum Level {
  Debug,
  Info,
  Warn,
  Error,
}

/** Writes a line to the broker's log, which takes only so many of them. */
export function log(level: Level, text: string): void {
  host.log(level, first, encode(text, first, MAX_TEXT));
}

/** Whether the log takes lines of this level at all. */
export function logEnabled(level: Level): bool {
  return host.log_enabled(level) != 0;
}

/** Adds to a metric of the policy. Needs the grant metrics. */
export function count(name: string, delta: i64): void {
  host.counter_add(first, encode(name, first, MAX_NAME), delta);
}

// Writes a text as UTF-8 and returns its length. One that is longer than limit is
// a mistake that ends the instance: cut, it would be another.
function encode(text: string, at: usize, limit: usize): u32 {
  assert(<usize>String.UTF8.byteLength(text) <= limit, "a text is too long");
  return <u32>String.UTF8.encodeUnsafe(changetype<usize>(text), text.length, at);
}

// Reads the text that the broker has written, if it was there and fitted.
function decode(n: i32): string | null {
  if (n == ABSENT || n > 4 * 1024) return null;
  return String.UTF8.decodeUnsafe(second, n);
}

export function policy_v1(): i32 {
  return CAPACITY;
}

export function policy_buf(bytes: i32): usize {
  return <u32>bytes <= 64 * 96 ? buffer : 0;
}

// The broker's functions, for uses that the functions above do not cover.
export namespace host {
  // @ts-ignore: decorator
  @external("policy_v1", "log")
  export declare function log(level: i32, text: usize, length: u32): void;
  // @ts-ignore: decorator
  @external("policy_v1", "log_enabled")
  export declare function log_enabled(level: i32): i32;
  // @ts-ignore: decorator
  @external("policy_v1", "fail")
  export declare function fail(text: usize, length: u32): void;
  // @ts-ignore: decorator
  @external("policy_v1", "config_i64")
  export declare function config_i64(name: usize, length: u32, otherwise: i64): i64;
  // @ts-ignore: decorator
  @external("policy_v1", "config_str")
  export declare function config_str(name: usize, length: u32, into: usize, limit: u32): i32;
  // @ts-ignore: decorator
  @external("policy_v1", "queue_arg_i64")
  export declare function queue_arg_i64(queue: u32, name: usize, length: u32, otherwise: i64): i64;
  // @ts-ignore: decorator
  @external("policy_v1", "queue_arg_str")
  export declare function queue_arg_str(queue: u32, name: usize, length: u32, into: usize, limit: u32): i32;
  // @ts-ignore: decorator
  @external("policy_v1", "header_i64")
  export declare function header_i64(message: u32, name: usize, length: u32, otherwise: i64): i64;
  // @ts-ignore: decorator
  @external("policy_v1", "header_str")
  export declare function header_str(message: u32, name: usize, length: u32, into: usize, limit: u32): i32;
  // @ts-ignore: decorator
  @external("policy_v1", "prop_str")
  export declare function prop_str(message: u32, property: i32, into: usize, limit: u32): i32;
  // @ts-ignore: decorator
  @external("policy_v1", "body")
  export declare function body(message: u32, offset: u32, into: usize, limit: u32): i32;
  // @ts-ignore: decorator
  @external("policy_v1", "counter_add")
  export declare function counter_add(name: usize, length: u32, delta: i64): void;
  // @ts-ignore: decorator
  @external("policy_v1", "trace_attr")
  export declare function trace_attr(message: u32, key: usize, keyLength: u32, value: usize, valueLength: u32): void;
  // @ts-ignore: decorator
  @external("policy_v1", "hold")
  export declare function hold(message: u32, until: i64): void;
}
