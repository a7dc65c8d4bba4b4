//! Expiry policies for Curfew in Zig: the contract policy_v1, in one file.
//!
//! Put it beside the policy's own file and write hooks as functions of one
//! message:
//!
//!     const policy = @import("policy.zig");
//!     pub const panic = policy.panic;
//!
//!     fn halfAMinute(_: i64, m: *const policy.Message) policy.Verdict {
//!         return policy.keep(m.enqueued_ms + 30_000);
//!     }
//!
//!     comptime {
//!         policy.register(.{ .on_enqueue = halfAMinute });
//!     }
//!
//! Times are milliseconds since 1970, durations milliseconds, and `none` stands
//! for none or never. A hook's arguments are valid until it returns.
//!
//! In `zig test` there is no broker: settings and headers are those of `doubles`.

const std = @import("std");
const builtin = @import("builtin");

/// None, or never.
pub const none: i64 = -1;

/// The most messages of a call.
pub const capacity = 64;

/// The longest exchange or routing key, in bytes.
pub const max_name = 255;

/// The occasion on which a hook is called about a message. Other values may be added.
pub const Why = enum(u8) { enqueue = 1, deadline = 2, head = 3, requeue = 4, _ };

/// Properties of a message for `Message.property`.
pub const Property = enum(u32) { exchange = 1, routing_key, message_id, type, app_id, user_id };

/// A message, as hooks see it.
pub const Message = extern struct {
    enqueued_ms: i64 = 0, // when it entered this queue
    expiration_ms: i64 = none, // the publisher's expiration, a duration
    queue_ttl_ms: i64 = none, // the queue's message-ttl, a duration
    deadline_ms: i64 = none, // in force
    state: i64 = 0, // stored by the policy
    size: u32 = 0, // bytes of body
    deliveries: u32 = 0, // how often it was delivered and requeued
    deaths: u32 = 0, // how often it was dead-lettered
    queue_number: u32 = 0,
    priority: u8 = 0,
    flags: u8 = 0, // see redelivered and so on
    why: Why = .enqueue,
    reserved: [5]u8 = std.mem.zeroes([5]u8),

    /// Whether it was delivered before.
    pub fn redelivered(m: *const Message) bool {
        return m.flags & 1 != 0;
    }

    /// Whether its publisher asked for it to survive a restart.
    pub fn persistent(m: *const Message) bool {
        return m.flags & 2 != 0;
    }

    /// Whether its queue has a dead-letter exchange.
    pub fn hasDlx(m: *const Message) bool {
        return m.flags & 4 != 0;
    }

    /// Its number in the current call.
    fn index(m: *const Message) u32 {
        if (builtin.is_test) return 0;
        return @intCast((@intFromPtr(m) - @intFromPtr(&buffer)) / @sizeOf(Message));
    }

    /// A header that is a number, or can be read as one; a timestamp is milliseconds. Needs the grant headers, as the
    /// other headers and properties do.
    pub fn header(m: *const Message, name: []const u8, otherwise: i64) i64 {
        return host.header_i64(m.index(), name.ptr, name.len, otherwise);
    }

    /// A header that is text, if it fits into the room. It may have any bytes, and need not be UTF-8.
    pub fn headerText(m: *const Message, name: []const u8, room: []u8) ?[]const u8 {
        return fitting(room, host.header_str(m.index(), name.ptr, name.len, room.ptr, room.len));
    }

    /// A property, if it fits into the room.
    pub fn property(m: *const Message, which: Property, room: []u8) ?[]const u8 {
        return fitting(room, host.prop_str(m.index(), @intFromEnum(which), room.ptr, room.len));
    }

    /// A setting of its queue: message-ttl, or x-message-ttl.
    pub fn queue(m: *const Message, name: []const u8, otherwise: i64) i64 {
        return host.queue_arg_i64(m.queue_number, name.ptr, name.len, otherwise);
    }

    /// A setting of its queue that is text, if it fits into the room.
    pub fn queueText(m: *const Message, name: []const u8, room: []u8) ?[]const u8 {
        return fitting(room, host.queue_arg_str(m.queue_number, name.ptr, name.len, room.ptr, room.len));
    }

    /// The body from an offset on, as much as there is room for. Needs the grant body.
    pub fn body(m: *const Message, offset: u32, room: []u8) []const u8 {
        const n = host.body(m.index(), offset, room.ptr, room.len);
        return room[0..@intCast(n)];
    }

    /// Adds an attribute to its trace. Needs the grant trace.
    pub fn trace(m: *const Message, key: []const u8, value: []const u8) void {
        host.trace_attr(m.index(), key.ptr, key.len, value.ptr, value.len);
    }

    /// Keeps it from being delivered before a time; others pass it. It counts with a verdict that keeps the message,
    /// and `none` takes it back. A deadline that comes first is not postponed. Needs the grant hold.
    pub fn hold(m: *const Message, until_ms: i64) void {
        host.hold(m.index(), until_ms);
    }
};

/// A hook's decision about a message. Functions make one: `keep`, `expire` and so on.
pub const Verdict = extern struct {
    action: u32,
    flags: u32 = 0,
    until_ms: i64 = none,
    state: i64 = 0,
    text: ?[*]const u8 = null, // the exchange, and the routing key right behind it
    exchange_length: u16 = 0,
    key_length: u16 = 0,

    /// Stores eight bytes of the policy's own with the message.
    pub fn withState(v: Verdict, state: i64) Verdict {
        var with = v;
        with.flags |= 1;
        with.state = state;
        return with;
    }

    /// Asks for a call of on_head when the message is delivered next.
    pub fn andAskAtHead(v: Verdict) Verdict {
        var with = v;
        with.flags |= 2;
        return with;
    }
};

/// Keeps the message until a time; `none` means for ever.
pub fn keep(until_ms: i64) Verdict {
    return .{ .action = 0, .until_ms = until_ms };
}

/// Expires the message: it is dead-lettered if the queue is configured for it, and dropped otherwise.
pub fn expire() Verdict {
    return .{ .action = 1 };
}

/// Dead-letters the message to an exchange of the policy's choice. Needs the grant route. The broker reads the
/// route after the hook: make it a global variable.
pub fn deadLetter(to: *const Route) Verdict {
    return .{ .action = 2, .text = &to.text, .exchange_length = to.exchange_length, .key_length = to.key_length };
}

/// Keeps the message, and calls the policy about it again, not before that time.
pub fn askAgain(not_before_ms: i64) Verdict {
    return .{ .action = 3, .until_ms = not_before_ms };
}

/// Drops the message without dead-lettering it.
pub fn discard() Verdict {
    return .{ .action = 4 };
}

/// The broker decides as without a policy, by the message's expiration and the queue's message-ttl.
pub fn noOpinion() Verdict {
    return .{ .action = 255 };
}

/// An exchange and a routing key, for `deadLetter`.
pub const Route = struct {
    text: [2 * max_name]u8 = std.mem.zeroes([2 * max_name]u8),
    exchange_length: u16 = 0,
    key_length: u16 = 0, // 0 = messages keep their own

    /// Reads the route from two settings. The second may be absent; reports whether the first is there and both are
    /// short enough.
    pub fn fromConfig(r: *Route, exchange: []const u8, key: []const u8) bool {
        const found = configText(exchange, r.text[0..max_name]) orelse return false;
        const rest = r.text[found.len..][0..max_name];
        const n = host.config_str(key.ptr, key.len, rest.ptr, rest.len);
        r.exchange_length = @intCast(found.len);
        r.key_length = if (n < 0 or n > max_name) 0 else @intCast(n);
        return n <= max_name;
    }
};

/// A decision of on_idle about a queue without consumers.
pub const Idle = union(enum) {
    no_opinion, // the queue's x-expires decides
    delete,
    stays, // and is not asked about again
    ask_at: i64, // it stays until then at least
};

/// A setting of the configuration. Nested settings have names with dots.
pub fn config(name: []const u8, otherwise: i64) i64 {
    return host.config_i64(name.ptr, name.len, otherwise);
}

/// A setting that is text, if it fits into the room.
pub fn configText(name: []const u8, room: []u8) ?[]const u8 {
    return fitting(room, host.config_str(name.ptr, name.len, room.ptr, room.len));
}

/// The level of a log line.
pub const Level = enum(i32) { debug, info, warn, err };

/// Writes a line to the broker's log, whose rate is limited.
pub fn log(level: Level, text: []const u8) void {
    host.log(@intFromEnum(level), text.ptr, text.len);
}

/// Whether the log takes lines of this level at all.
pub fn logEnabled(level: Level) bool {
    return host.log_enabled(@intFromEnum(level)) != 0;
}

/// Adds to a metric of the policy. Needs the grant metrics.
pub fn count(name: []const u8, delta: i64) void {
    host.counter_add(name.ptr, name.len, delta);
}

/// The text that was written, if it exists and fits.
fn fitting(room: []u8, n: i32) ?[]const u8 {
    if (n < 0 or n > room.len) return null;
    return room[0..@intCast(n)];
}

/// A hook of one message.
pub const Hook = fn (now: i64, m: *const Message) Verdict;

/// The functions that a policy has.
pub const Hooks = struct {
    /// Reads the configuration. A text refuses it and is shown to the operator.
    configure: ?fn () ?[]const u8 = null,
    on_enqueue: ?Hook = null,
    on_deadline: ?Hook = null,
    on_head: ?Hook = null,
    on_requeue: ?Hook = null,
    on_idle: ?fn (now: i64, idle_ms: i64, ready: u32, unacked: u32, consumers: u32) Idle = null,
};

/// Exports a policy's functions to the broker. Call it once, in a comptime block.
pub fn register(comptime hooks: Hooks) void {
    if (builtin.is_test) return;
    _ = struct {
        export fn policy_v1() i32 {
            return capacity;
        }
        export fn policy_buf(bytes: usize) ?*anyopaque {
            return if (bytes <= @sizeOf(@TypeOf(buffer))) &buffer else null;
        }
    };
    if (hooks.configure) |configure| _ = struct {
        export fn policy_configure(_: u32) i32 {
            const why = configure() orelse return 0;
            host.fail(why.ptr, why.len);
            return -1;
        }
    };
    if (hooks.on_enqueue) |hook| _ = struct {
        export fn on_enqueue(now: i64, n: u32) i32 {
            return each(now, n, hook);
        }
    };
    if (hooks.on_deadline) |hook| _ = struct {
        export fn on_deadline(now: i64, n: u32) i32 {
            return each(now, n, hook);
        }
    };
    if (hooks.on_head) |hook| _ = struct {
        export fn on_head(now: i64, n: u32) i32 {
            return each(now, n, hook);
        }
    };
    if (hooks.on_requeue) |hook| _ = struct {
        export fn on_requeue(now: i64, n: u32) i32 {
            return each(now, n, hook);
        }
    };
    if (hooks.on_idle) |hook| _ = struct {
        export fn on_idle(now: i64, idle_ms: i64, ready: u32, unacked: u32, consumers: u32) i64 {
            return switch (hook(now, idle_ms, ready, unacked, consumers)) {
                .no_opinion => 0,
                .delete => -1,
                .stays => -2,
                .ask_at => |t| t,
            };
        }
    };
}

/// The records of a call's messages, followed by their verdicts.
var buffer: [capacity * (64 + 32)]u8 align(8) = undefined;

/// Asks a hook about each message of a call.
fn each(now: i64, n: u32, comptime hook: Hook) i32 {
    const messages: [*]const Message = @ptrCast(&buffer);
    const verdicts: [*]Verdict = @ptrCast(@alignCast(&buffer[n * @sizeOf(Message)]));
    var i: u32 = 0;
    while (i < n) : (i += 1) verdicts[i] = hook(now, &messages[i]);
    return 0;
}

comptime {
    if (@sizeOf(Message) != 64) @compileError("a record of policy_v1 has 64 bytes");
    if (@sizeOf(usize) == 4 and @sizeOf(Verdict) != 32) @compileError("a verdict of policy_v1 has 32 bytes");
}

/// For `pub const panic` in a policy's own file: a panic ends the instance, and the broker's log has its text.
/// Zig calls it as a function up to version 0.13, and by way of a namespace since.
pub const panic = if (@hasDecl(std.debug, "FullPanic")) std.debug.FullPanic(panicText) else panicTraced;

fn panicText(why: []const u8, _: ?usize) noreturn {
    host.fail(why.ptr, why.len);
    @trap();
}

fn panicTraced(why: []const u8, _: ?*std.builtin.StackTrace, at: ?usize) noreturn {
    panicText(why, at);
}

/// The broker's functions, for uses that the functions above do not cover.
pub const host = if (builtin.is_test) doubles else imports;

const imports = struct {
    pub extern "policy_v1" fn log(level: i32, text: [*]const u8, length: usize) void;
    pub extern "policy_v1" fn log_enabled(level: i32) i32;
    pub extern "policy_v1" fn fail(text: [*]const u8, length: usize) void;
    pub extern "policy_v1" fn config_i64(name: [*]const u8, length: usize, otherwise: i64) i64;
    pub extern "policy_v1" fn config_str(name: [*]const u8, length: usize, room: [*]u8, limit: usize) i32;
    pub extern "policy_v1" fn queue_arg_i64(queue: u32, name: [*]const u8, length: usize, otherwise: i64) i64;
    pub extern "policy_v1" fn queue_arg_str(queue: u32, name: [*]const u8, length: usize, room: [*]u8, limit: usize) i32;
    pub extern "policy_v1" fn header_i64(message: u32, name: [*]const u8, length: usize, otherwise: i64) i64;
    pub extern "policy_v1" fn header_str(message: u32, name: [*]const u8, length: usize, room: [*]u8, limit: usize) i32;
    pub extern "policy_v1" fn prop_str(message: u32, property: u32, room: [*]u8, limit: usize) i32;
    pub extern "policy_v1" fn body(message: u32, offset: u32, room: [*]u8, limit: usize) i32;
    pub extern "policy_v1" fn counter_add(name: [*]const u8, length: usize, delta: i64) void;
    pub extern "policy_v1" fn trace_attr(message: u32, key: [*]const u8, key_length: usize, value: [*]const u8, value_length: usize) void;
    pub extern "policy_v1" fn hold(message: u32, until_ms: i64) void;
};

/// The broker's functions in `zig test`: a test fills in settings, headers, properties and the body, for all of its
/// messages. Names that are not listed are absent. Logs, counts and traces go nowhere but `counted`, and holds to `held`.
pub const doubles = struct {
    pub const Number = struct { name: []const u8, value: i64 };
    pub const Text = struct { name: []const u8, value: []const u8 };

    pub var config_numbers: []const Number = &.{};
    pub var config_texts: []const Text = &.{};
    pub var queue_numbers: []const Number = &.{};
    pub var queue_texts: []const Text = &.{};
    pub var header_numbers: []const Number = &.{};
    pub var header_texts: []const Text = &.{};
    pub var properties: [7]?[]const u8 = std.mem.zeroes([7]?[]const u8); // by @intFromEnum
    pub var message_body: []const u8 = "";
    pub var counted: i64 = 0; // under any name
    pub var held: i64 = none; // until when, by the last call

    /// Empties them: tests share them.
    pub fn reset() void {
        config_numbers = &.{};
        config_texts = &.{};
        queue_numbers = &.{};
        queue_texts = &.{};
        header_numbers = &.{};
        header_texts = &.{};
        properties = std.mem.zeroes([7]?[]const u8);
        message_body = "";
        counted = 0;
        held = none;
    }

    fn number(all: []const Number, name: []const u8, otherwise: i64) i64 {
        if (name.len > max_name) @panic("a name of more than 255 bytes");
        for (all) |one| {
            if (std.mem.eql(u8, one.name, name)) return one.value;
        }
        return otherwise;
    }

    fn text(all: []const Text, name: []const u8, room: [*]u8, limit: usize) i32 {
        if (name.len > max_name) @panic("a name of more than 255 bytes");
        for (all) |one| {
            if (std.mem.eql(u8, one.name, name)) return put(one.value, room, limit);
        }
        return -1;
    }

    fn put(value: []const u8, room: [*]u8, limit: usize) i32 {
        if (value.len <= limit) {
            for (value, 0..) |byte, i| room[i] = byte;
        }
        return @intCast(value.len);
    }

    pub fn log(_: i32, _: [*]const u8, _: usize) void {}

    pub fn log_enabled(_: i32) i32 {
        return 1;
    }

    pub fn fail(_: [*]const u8, _: usize) void {}

    pub fn config_i64(name: [*]const u8, length: usize, otherwise: i64) i64 {
        return number(config_numbers, name[0..length], otherwise);
    }

    pub fn config_str(name: [*]const u8, length: usize, room: [*]u8, limit: usize) i32 {
        return text(config_texts, name[0..length], room, limit);
    }

    pub fn queue_arg_i64(_: u32, name: [*]const u8, length: usize, otherwise: i64) i64 {
        return number(queue_numbers, name[0..length], otherwise);
    }

    pub fn queue_arg_str(_: u32, name: [*]const u8, length: usize, room: [*]u8, limit: usize) i32 {
        return text(queue_texts, name[0..length], room, limit);
    }

    pub fn header_i64(_: u32, name: [*]const u8, length: usize, otherwise: i64) i64 {
        return number(header_numbers, name[0..length], otherwise);
    }

    pub fn header_str(_: u32, name: [*]const u8, length: usize, room: [*]u8, limit: usize) i32 {
        return text(header_texts, name[0..length], room, limit);
    }

    pub fn prop_str(_: u32, property: u32, room: [*]u8, limit: usize) i32 {
        return put(properties[property] orelse return -1, room, limit);
    }

    pub fn body(_: u32, offset: u32, room: [*]u8, limit: usize) i32 {
        if (offset >= message_body.len) return 0;
        const rest = message_body[offset..];
        return put(rest[0..@min(rest.len, limit)], room, limit);
    }

    pub fn counter_add(_: [*]const u8, _: usize, delta: i64) void {
        counted += delta;
    }

    pub fn trace_attr(_: u32, _: [*]const u8, _: usize, _: [*]const u8, _: usize) void {}

    pub fn hold(_: u32, until_ms: i64) void {
        held = until_ms;
    }
};
