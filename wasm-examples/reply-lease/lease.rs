//! Reply lease: a queue without consumers stays for a while, and for longer while
//! there are messages in it that somebody may yet fetch.
#![no_std]

#[path = "../../sdk/rust/policy.rs"]
mod policy;

use policy::*;

static LEASE: Global<i64> = Global::new(0); // of an empty queue
static MAX: Global<i64> = Global::new(0); // of one with messages

const YEAR: i64 = 365 * 24 * 60 * 60 * 1000;

fn read() -> Result<(), &'static str> {
    let (lease, max) = (config("lease-ms", 60_000), config("max-ms", 24 * 60 * 60 * 1000));
    if lease < 1_000 || max < lease || max > YEAR {
        return Err("lease-ms has to be 1000 or more, and max-ms from that to 31536000000");
    }
    LEASE.set(lease);
    MAX.set(max);
    Ok(())
}

/// Messages may expire unnoticed, so that a queue that holds some is asked about
/// again after each lease.
fn idle(now: i64, idle_ms: i64, ready: u32, unacked: u32, _: u32) -> Idle {
    let limit = if ready > 0 || unacked > 0 { MAX.get() } else { LEASE.get() };
    let left = limit - idle_ms;
    if left <= 0 {
        return Idle::Delete;
    }
    Idle::AskAt(now + left.min(LEASE.get()))
}

policy::export! { configure: read, on_idle: idle }
