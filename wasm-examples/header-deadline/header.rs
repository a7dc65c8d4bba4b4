//! Deadline from a header: the message itself says in one of its headers until
//! when it is of use, as a number or as a date and time.
#![no_std]

#[path = "../../sdk/rust/policy.rs"]
mod policy;

mod when;

use policy::*;

/// A text that belongs to the policy.
type Text = ([u8; 64], usize);

static HEADER: Global<Text> = Global::new(([0; 64], 0));
static PLUS: Global<i64> = Global::new(0);

const YEAR: i64 = 365 * 24 * 60 * 60 * 1000;

fn read() -> Result<(), &'static str> {
    let mut name = [0; 64];
    let n = match host_text("header", &mut name) {
        -1 => {
            name[..7].copy_from_slice(b"expires");
            7
        }
        n @ 1..=64 => n as usize,
        _ => return Err("header has to be a name of 1 to 64 bytes"),
    };
    let plus = config("plus-ms", 0);
    if !(-YEAR..=YEAR).contains(&plus) {
        return Err("plus-ms has to be from -31536000000 to 31536000000");
    }
    HEADER.set((name, n));
    PLUS.set(plus);
    Ok(())
}

/// The length of a setting that is text, -1 if there is none.
fn host_text(name: &str, buffer: &mut [u8]) -> i32 {
    unsafe { host::config_str(name.as_ptr(), name.len(), buffer.as_mut_ptr(), buffer.len()) }
}

/// What the header says, in milliseconds since 1970.
fn said(m: &Message) -> Option<i64> {
    let (name, n) = HEADER.get();
    let header = core::str::from_utf8(&name[..n]).ok()?;
    let mut buffer = [0; 64];
    if let Some(text) = m.header_text(header, &mut buffer) {
        if let Some(t) = when::read(text) {
            return Some(t);
        }
    }
    match m.header(header, NONE) {
        NONE => None,
        n => when::of_number(n),
    }
}

/// The publisher's expiration and the queue's TTL may ask for less.
fn enter(now: i64, m: &Message) -> Verdict {
    let mut last = match said(m) {
        Some(t) => t.saturating_add(PLUS.get()),
        None => return no_opinion(),
    };
    for ttl in [m.expiration_ms, m.queue_ttl_ms] {
        if ttl != NONE {
            last = last.min(m.enqueued_ms.saturating_add(ttl));
        }
    }
    if last <= now {
        return expire();
    }
    keep(last.min(when::LATEST))
}

policy::export! { configure: read, on_enqueue: enter }
