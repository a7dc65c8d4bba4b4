//! The guest of the conformance kit, in Zig.
const std = @import("std");
const policy = @import("policy.zig"); // lies in sdk/zig

const Message = policy.Message;
const Verdict = policy.Verdict;

pub const panic = policy.panic;

var both: policy.Route = .{};
var exchange_only: policy.Route = .{};

fn configure() ?[]const u8 {
    if (policy.config("refuse", 0) != 0) return "as asked";
    if (!both.fromConfig("exchange", "key") or !exchange_only.fromConfig("exchange", "nothing")) {
        return "exchange and key have to be set";
    }
    return null;
}

/// Says a number.
fn number(n: i64) Verdict {
    return policy.keep(policy.none).withState(n);
}

/// Says a text, if there is one.
fn say(m: *const Message, key: []const u8, said: ?[]const u8) Verdict {
    const text = said orelse return number(-1);
    m.trace(key, text);
    return number(@intCast(text.len));
}

var room: [1024]u8 = undefined;

fn properties(m: *const Message) Verdict {
    const names = [_][]const u8{ "exchange", "routing-key", "message-id", "type", "app-id", "user-id" };
    var present: i64 = 0;
    for (names, 1..) |name, which| {
        const said = m.property(@enumFromInt(which), &room);
        _ = say(m, name, said);
        present += @intFromBool(said != null);
    }
    return number(present);
}

fn allLevels() Verdict {
    var enabled: i64 = 0;
    for ([_]policy.Level{ .debug, .info, .warn, .err }, [_]i64{ 1, 2, 4, 8 }) |level, bit| {
        policy.log(level, "hello");
        if (policy.logEnabled(level)) enabled |= bit;
    }
    return number(enabled);
}

fn digits(numbers: []const i64) Verdict {
    var all: i64 = 0;
    for (numbers) |n| all = all * 1000 + n;
    return number(all);
}

fn record(now: i64, m: *const Message) Verdict {
    return digits(&.{ m.expiration_ms, m.queue_ttl_ms, m.deadline_ms - now, m.state, m.size, m.deliveries });
}

fn rest(now: i64, m: *const Message) Verdict {
    var flags: i64 = @intFromBool(m.redelivered());
    if (m.persistent()) flags += 2;
    if (m.hasDlx()) flags += 4;
    return digits(&.{ now - m.enqueued_ms, m.deaths, m.priority, flags, @intFromEnum(m.why) });
}

fn enter(now: i64, m: *const Message) Verdict {
    return switch (m.priority) {
        1 => policy.keep(m.enqueued_ms + 1000),
        2 => policy.keep(policy.none),
        3 => policy.expire(),
        4 => policy.discard(),
        5 => policy.askAgain(now + 5000),
        6 => policy.deadLetter(&both),
        7 => policy.deadLetter(&exchange_only),
        8 => number(m.header("number", -7)),
        9 => say(m, "text", m.headerText("text", &room)),
        10 => properties(m),
        11 => say(m, "body", m.body(4, room[0..8])),
        12 => number(policy.config("deep.number", -7)),
        13 => say(m, "text", policy.configText("deep.text", &room)),
        14 => number(m.queue("x-max-length", -7)),
        15 => say(m, "text", m.queueText("overflow", &room)),
        16 => allLevels(),
        17 => counted(m),
        18 => record(now, m),
        19 => rest(now, m),
        20 => policy.keep(policy.none).andAskAtHead(),
        21 => held(m, now + 2000, policy.keep(policy.none)),
        22 => held(m, now + 2000, policy.noOpinion()),
        23 => takenBack(now, m),
        else => policy.noOpinion(),
    };
}

fn counted(m: *const Message) Verdict {
    policy.count("asked", m.size);
    return policy.noOpinion();
}

fn held(m: *const Message, until: i64, v: Verdict) Verdict {
    m.hold(until);
    return v;
}

fn takenBack(now: i64, m: *const Message) Verdict {
    m.hold(now + 2000);
    return held(m, policy.none, policy.noOpinion());
}

fn due(now: i64, m: *const Message) Verdict {
    return switch (m.priority) {
        0 => policy.expire(),
        1 => policy.keep(now + 1000).withState(m.state + 1),
        2 => policy.deadLetter(&both),
        3 => policy.askAgain(now + 5000),
        4 => policy.discard(),
        else => policy.noOpinion(),
    };
}

fn head(now: i64, m: *const Message) Verdict {
    return switch (m.priority) {
        0 => policy.keep(now + 10),
        2 => held(m, now + 10, policy.noOpinion()),
        else => policy.noOpinion(),
    };
}

fn back(_: i64, m: *const Message) Verdict {
    return switch (m.priority) {
        0 => policy.keep(m.deadline_ms + 1000).withState(m.deliveries),
        2 => held(m, m.deadline_ms, policy.noOpinion()),
        else => policy.noOpinion(),
    };
}

fn idle(now: i64, idle_ms: i64, ready: u32, unacked: u32, consumers: u32) policy.Idle {
    return switch (ready) {
        0 => .{ .ask_at = now + idle_ms + @as(i64, unacked) * 1000 + consumers },
        1 => .no_opinion,
        2 => .delete,
        else => .stays,
    };
}

comptime {
    policy.register(.{ .configure = configure, .on_enqueue = enter, .on_deadline = due, .on_head = head, .on_requeue = back, .on_idle = idle });
}

const doubles = policy.doubles;

test "the configuration" {
    doubles.reset();
    try std.testing.expectEqualStrings("exchange and key have to be set", configure().?);
    doubles.config_texts = &.{ .{ .name = "exchange", .value = "parking" }, .{ .name = "key", .value = "lost" } };
    try std.testing.expect(configure() == null);
    const v = enter(0, &.{ .priority = 6 });
    try std.testing.expectEqualStrings("parkinglost", v.text.?[0 .. v.exchange_length + v.key_length]);
    try std.testing.expectEqual(@as(u16, 0), enter(0, &.{ .priority = 7 }).key_length);
    doubles.config_numbers = &.{.{ .name = "refuse", .value = 1 }};
    try std.testing.expectEqualStrings("as asked", configure().?);
}

test "what a message carries" {
    doubles.reset();
    try std.testing.expectEqual(number(-1), enter(0, &.{ .priority = 9 }));
    doubles.header_texts = &.{.{ .name = "text", .value = "a\x00\xff" }}; // publishers may send any bytes
    doubles.header_numbers = &.{.{ .name = "number", .value = 12 }};
    doubles.message_body = "0123456";
    doubles.properties[@intFromEnum(policy.Property.type)] = "order";
    doubles.queue_numbers = &.{.{ .name = "x-max-length", .value = 77 }};
    const want = [_]struct { priority: u8, said: i64 }{
        .{ .priority = 8, .said = 12 }, .{ .priority = 9, .said = 3 },   .{ .priority = 10, .said = 1 },
        .{ .priority = 11, .said = 3 }, .{ .priority = 14, .said = 77 }, .{ .priority = 15, .said = -1 },
    };
    for (want) |w| try std.testing.expectEqual(number(w.said), enter(0, &.{ .priority = w.priority }));
    _ = enter(0, &.{ .priority = 17, .size = 5 });
    try std.testing.expectEqual(@as(i64, 5), doubles.counted);
}

test "holds" {
    doubles.reset();
    try std.testing.expectEqual(policy.keep(policy.none), enter(5, &.{ .priority = 21 }));
    try std.testing.expectEqual(@as(i64, 2005), doubles.held);
    _ = enter(5, &.{ .priority = 23 });
    try std.testing.expectEqual(policy.none, doubles.held);
}
