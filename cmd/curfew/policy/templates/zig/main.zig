//! NAME is an expiry policy: messages wait for ttl-ms milliseconds, or less if
//! their publisher or their queue says so.
const std = @import("std");
const policy = @import("policy.zig");

pub const panic = policy.panic;

var ttl: i64 = 0; // milliseconds

fn configure() ?[]const u8 {
    ttl = policy.config("ttl-ms", 60_000);
    return if (ttl < 1 or ttl > 1_000_000_000_000) "ttl-ms has to be from 1 to 1000000000000" else null;
}

fn limit(_: i64, m: *const policy.Message) policy.Verdict {
    return policy.keep(m.enqueued_ms + lower(ttl, lower(m.expiration_ms, m.queue_ttl_ms)));
}

/// The lower of two durations, of which none is the longest.
fn lower(a: i64, b: i64) i64 {
    return if (a == policy.none or (b != policy.none and b < a)) b else a;
}

comptime {
    policy.register(.{ .configure = configure, .on_enqueue = limit });
}

test "the publisher may ask for less" {
    policy.doubles.reset();
    policy.doubles.config_numbers = &.{.{ .name = "ttl-ms", .value = 1000 }};
    try std.testing.expect(configure() == null);
    for ([_]i64{ policy.none, 10, 2000 }, [_]i64{ 1000, 10, 1000 }) |expiration, want| {
        try std.testing.expectEqual(policy.keep(want), limit(0, &.{ .expiration_ms = expiration }));
    }
}

test "a time out of range is refused" {
    for ([_]i64{ 0, 1_000_000_000_001 }) |out| {
        policy.doubles.config_numbers = &.{.{ .name = "ttl-ms", .value = out }};
        try std.testing.expectEqualStrings("ttl-ms has to be from 1 to 1000000000000", configure().?);
    }
}
