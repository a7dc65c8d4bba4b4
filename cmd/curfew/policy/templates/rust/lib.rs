//! NAME is an expiry policy: messages wait for ttl-ms milliseconds, or less if
//! their publisher or their queue says so.
#![cfg_attr(not(test), no_std)]

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

fn limit(_now: i64, m: &Message) -> Verdict {
    let mut ttl = TTL.get();
    for other in [m.expiration_ms, m.queue_ttl_ms] {
        if other != NONE {
            ttl = ttl.min(other);
        }
    }
    keep(m.enqueued_ms + ttl)
}

policy::export! { configure: read, on_enqueue: limit }

#[cfg(test)]
mod tests {
    use super::policy::testing::Broker;
    use super::*;

    #[test]
    fn the_publisher_may_ask_for_less() {
        let mut broker = Broker::new();
        broker.set("ttl-ms", 1000);
        assert_eq!(read(), Ok(()));
        for (expiration, want) in [(NONE, 1000), (10, 10), (2000, 1000)] {
            let mut m = broker.message();
            m.expiration_ms = expiration;
            assert_eq!(limit(broker.now, &m), keep(broker.now + want), "expiration {}", expiration);
        }
    }

    #[test]
    fn a_time_out_of_range_is_refused() {
        let mut broker = Broker::new();
        for ttl in [0_i64, 1_000_000_000_001] {
            broker.set("ttl-ms", ttl);
            assert_eq!(read(), Err("ttl-ms has to be from 1 to 1000000000000"));
        }
    }
}
