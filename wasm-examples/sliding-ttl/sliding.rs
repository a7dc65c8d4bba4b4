//! Sliding TTL: a message's time starts anew when it comes back unacknowledged,
//! up to a limit that counts from when it entered the queue.
#![no_std]

#[path = "../../sdk/rust/policy.rs"]
mod policy;

use policy::*;

static TTL: Global<i64> = Global::new(0);
static MAX: Global<i64> = Global::new(0);

fn read() -> Result<(), &'static str> {
    let (ttl, max) = (config("ttl-ms", 30_000), config("max-ms", 600_000));
    if ttl < 1 || max < ttl {
        return Err("ttl-ms must be 1 or more, and max-ms no less than that");
    }
    TTL.set(ttl);
    MAX.set(max);
    Ok(())
}

/// The publisher and the queue may lower the limit.
fn lease(now: i64, m: &Message) -> Verdict {
    let mut last = m.enqueued_ms.saturating_add(MAX.get());
    for ttl in [m.expiration_ms, m.queue_ttl_ms] {
        if ttl != NONE {
            last = last.min(m.enqueued_ms.saturating_add(ttl));
        }
    }
    keep(last.min(now.saturating_add(TTL.get())))
}

policy::export! { configure: read, on_enqueue: lease, on_requeue: lease }
