//! The guest of the conformance kit, in Rust.
#![cfg_attr(not(test), no_std)]

#[path = "../../sdk/rust/policy.rs"]
mod policy;

use policy::*;

static BOTH: Route = Route::new();
static EXCHANGE_ONLY: Route = Route::new();

fn read() -> Result<(), &'static str> {
    if config("refuse", 0) != 0 {
        return Err("as asked");
    }
    if !BOTH.from_config("exchange", "key") || !EXCHANGE_ONLY.from_config("exchange", "nothing") {
        return Err("exchange and key have to be set");
    }
    Ok(())
}

/// Says a number.
fn number(n: i64) -> Verdict {
    keep(NONE).with_state(n)
}

/// Says a text, if there is one.
fn text(m: &Message, key: &str, said: Option<&[u8]>) -> Verdict {
    let b = match said {
        Some(b) => b,
        None => return number(-1),
    };
    m.trace(key, core::str::from_utf8(b).unwrap_or("no text"));
    number(b.len() as i64)
}

fn properties(m: &Message) -> Verdict {
    use Property::*;
    let mut present = 0;
    for (which, name) in [
        (Exchange, "exchange"),
        (RoutingKey, "routing-key"),
        (MessageId, "message-id"),
        (Type, "type"),
        (AppId, "app-id"),
        (UserId, "user-id"),
    ] {
        let mut buffer = [0; 255];
        let said = m.property(which, &mut buffer);
        present += said.is_some() as i64;
        text(m, name, said);
    }
    number(present)
}

fn all_levels() -> Verdict {
    let mut enabled = 0;
    for level in [Level::Debug, Level::Info, Level::Warn, Level::Error] {
        log(level, "hello");
        enabled |= (log_enabled(level) as i64) << level as i64;
    }
    number(enabled)
}

fn digits(numbers: &[i64]) -> Verdict {
    number(numbers.iter().fold(0, |n, next| n * 1000 + next))
}

fn record(now: i64, m: &Message) -> Verdict {
    digits(&[m.expiration_ms, m.queue_ttl_ms, m.deadline_ms - now, m.state, m.size as i64, m.deliveries as i64])
}

fn rest(now: i64, m: &Message) -> Verdict {
    let flags = m.redelivered() as i64 + 2 * m.persistent() as i64 + 4 * m.has_dlx() as i64;
    let why = [Why::ENQUEUE, Why::DEADLINE, Why::HEAD, Why::REQUEUE].iter().position(|w| *w == m.why);
    digits(&[now - m.enqueued_ms, m.deaths as i64, m.priority as i64, flags, why.map_or(0, |i| i as i64 + 1)])
}

fn enter(now: i64, m: &Message) -> Verdict {
    let mut buffer = [0; 512];
    match m.priority {
        1 => keep(m.enqueued_ms + 1000),
        2 => keep(NONE),
        3 => expire(),
        4 => discard(),
        5 => ask_again(now + 5000),
        6 => dead_letter(&BOTH),
        7 => dead_letter(&EXCHANGE_ONLY),
        8 => number(m.header("number", -7)),
        9 => text(m, "text", m.header_text("text", &mut buffer)),
        10 => properties(m),
        11 => text(m, "body", Some(m.body(4, &mut buffer[..8]))),
        12 => number(config("deep.number", -7)),
        13 => text(m, "text", config_text("deep.text", &mut buffer)),
        14 => number(m.queue("x-max-length", -7)),
        15 => text(m, "text", m.queue_text("overflow", &mut buffer)),
        16 => all_levels(),
        17 => {
            count("asked", m.size as i64);
            no_opinion()
        }
        18 => record(now, m),
        19 => rest(now, m),
        20 => keep(NONE).and_ask_at_head(),
        21 => held(m, now + 2000, keep(NONE)),
        22 => held(m, now + 2000, no_opinion()),
        23 => {
            m.hold(now + 2000);
            held(m, NONE, no_opinion())
        }
        _ => no_opinion(),
    }
}

fn held(m: &Message, until: i64, v: Verdict) -> Verdict {
    m.hold(until);
    v
}

fn due(now: i64, m: &Message) -> Verdict {
    match m.priority {
        0 => expire(),
        1 => keep(now + 1000).with_state(m.state + 1),
        2 => dead_letter(&BOTH),
        3 => ask_again(now + 5000),
        4 => discard(),
        _ => no_opinion(),
    }
}

fn head(now: i64, m: &Message) -> Verdict {
    match m.priority {
        0 => keep(now + 10),
        2 => held(m, now + 10, no_opinion()),
        _ => no_opinion(),
    }
}

fn back(_: i64, m: &Message) -> Verdict {
    match m.priority {
        0 => keep(m.deadline_ms + 1000).with_state(m.deliveries as i64),
        2 => held(m, m.deadline_ms, no_opinion()),
        _ => no_opinion(),
    }
}

fn idle(now: i64, idle_ms: i64, ready: u32, unacked: u32, consumers: u32) -> Idle {
    match ready {
        0 => Idle::AskAt(now + idle_ms + unacked as i64 * 1000 + consumers as i64),
        1 => Idle::NoOpinion,
        2 => Idle::Delete,
        _ => Idle::Stays,
    }
}

policy::export! {
    configure: read, on_enqueue: enter, on_deadline: due, on_head: head, on_requeue: back, on_idle: idle
}

#[cfg(test)]
#[path = "guest_test.rs"]
mod tests;
