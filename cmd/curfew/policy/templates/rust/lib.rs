//! NAME is an expiry policy: messages wait for ttl-ms milliseconds, or less if
//! their publisher or their queue says so.
#![no_std]

mod policy;

use policy::*;

static TTL: Global<i64> = Global::new(0);

fn read() -> Result<(), &'static str> {
    let ttl = config("ttl-ms", 60_000);
    if ttl < 1 || ttl > 1_000_000_000_000 {
        return Err("ttl-ms has to be from 1 to 1000000000000");
    }
    TTL.set(ttl);
    Ok(())
}

fn limit(now: i64, m: &Message) -> Verdict {
    let mut ttl = TTL.get();
    for other in [m.expiration_ms, m.queue_ttl_ms] {
        if other != NONE {
            ttl = ttl.min(other);
        }
    }
    keep(now + ttl)
}

policy::export! { configure: read, on_enqueue: limit }
