//! A broker for a policy's unit tests, which `cargo test` runs on the host: it has
//! the settings, messages and properties that a test gives it, and records the
//! policy's logs, counts, traces and holds.
//!
//! ```ignore
//! #[test]
//! fn waits_for_less_if_the_publisher_says_so() {
//!     let mut broker = Broker::new();
//!     broker.set("ttl-ms", 1000);
//!     assert_eq!(read(), Ok(()));
//!     let mut m = broker.message();
//!     m.expiration_ms = 10;
//!     assert_eq!(limit(broker.now, &m), keep(broker.now + 10));
//! }
//! ```
//!
//! It answers as a broker that has given the policy all grants. An error that ends an instance in a
//! broker, such as a name of more than 255 bytes, is a panic here. Fuel and memory are not limited:
//! `curfew policy check` and `curfew policy test` show those limits.
#![allow(unused_imports)] // a crate with std has the prelude anyway
#![allow(unused_unsafe)] // from edition 2024 on, an unsafe function needs the blocks that others warn about

extern crate std;

use self::std::collections::BTreeMap;
use self::std::ops::{Deref, DerefMut};
use self::std::prelude::v1::*;
use self::std::sync::{Mutex, MutexGuard};
use self::std::{cell::RefCell, panic, thread_local};

use super::{Level, Message, Property, Verdict, Why, MAX_NAME, NONE};

/// The time at which a [`Broker`] starts: 2026-01-05, a Monday, at 9:00 UTC.
pub const START: i64 = 1_767_603_600_000;

/// The longest text of a log line, in bytes; longer ones are truncated.
const MAX_TEXT: usize = 1024;

/// How many names a policy may use with `count`.
const MAX_COUNTERS: usize = 32;

/// The value of a setting or a header: a number or a text. A text may be any bytes, since
/// publishers may send any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Number(i64),
    Bool(bool),
    Text(Vec<u8>),
}

impl From<i32> for Value {
    fn from(n: i32) -> Value {
        Value::Number(n.into())
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Value {
        Value::Number(n)
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Value {
        Value::Bool(b)
    }
}

impl<'a> From<&'a str> for Value {
    fn from(text: &'a str) -> Value {
        Value::Text(text.as_bytes().to_vec())
    }
}

impl<'a> From<&'a [u8]> for Value {
    fn from(text: &'a [u8]) -> Value {
        Value::Text(text.to_vec())
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Value {
    fn from(text: &'a [u8; N]) -> Value {
        Value::Text(text.to_vec())
    }
}

impl Value {
    fn number(&self) -> Option<i64> {
        match self {
            Value::Number(n) => Some(*n),
            Value::Bool(b) => Some(*b as i64),
            Value::Text(b) => whole(b),
        }
    }

    fn text(&self) -> Option<&[u8]> {
        match self {
            Value::Text(b) => Some(b),
            _ => None,
        }
    }
}

/// The number that a text of digits stands for.
fn whole(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The parts of a message besides its record.
#[derive(Default)]
struct Content {
    headers: BTreeMap<Vec<u8>, Value>,
    properties: BTreeMap<i32, Vec<u8>>,
    body: Vec<u8>,
    traced: Vec<(String, String)>,
    held: Option<i64>,
}

/// The broker's data, and the calls it received.
#[derive(Default)]
struct State {
    settings: BTreeMap<Vec<u8>, Value>,
    queue: BTreeMap<Vec<u8>, Value>,
    messages: Vec<Content>,
    logged: Vec<(Level, String)>,
    counted: BTreeMap<Vec<u8>, i64>,
    refusal: Option<String>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

fn with<T>(f: impl FnOnce(&mut State) -> T) -> T {
    STATE.with(|s| f(&mut s.borrow_mut()))
}

/// The turn of the one test that has a broker.
static TURN: Mutex<()> = Mutex::new(());

/// A broker with one queue. Make it first in each test: policies have statics, so
/// a second test that makes one waits until the first has ended.
pub struct Broker {
    /// The time, in milliseconds since 1970, to give to hooks. It starts with [`START`], and passes as the
    /// test says.
    pub now: i64,
    _turn: MutexGuard<'static, ()>,
}

impl Broker {
    /// A broker in which nothing is set.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Broker {
        let turn = TURN.lock().unwrap_or_else(|e| e.into_inner()); // a test that failed has given up its turn
        with(|s| *s = State::default());
        Broker { now: START, _turn: turn }
    }

    /// Sets a setting of the policy's configuration, which `config` and `config_text` read.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        with(|s| s.settings.insert(name.as_bytes().to_vec(), value.into()));
    }

    /// Sets a setting of the queue: `message-ttl` or `x-message-ttl`. Messages made later have its message-ttl as
    /// `queue_ttl_ms`.
    pub fn set_queue(&mut self, name: &str, value: impl Into<Value>) {
        with(|s| s.queue.insert(setting_name(name.as_bytes()).to_vec(), value.into()));
    }

    /// A message that was enqueued now, without anything. Its fields can be changed.
    pub fn message(&mut self) -> Sample {
        let (index, ttl) = with(|s| {
            s.messages.push(Content::default());
            let ttl = s.queue.get(&b"message-ttl"[..]).and_then(Value::number);
            (s.messages.len() - 1, ttl.unwrap_or(NONE))
        });
        Sample(Message {
            enqueued_ms: self.now,
            expiration_ms: NONE,
            queue_ttl_ms: ttl,
            deadline_ms: NONE,
            state: 0,
            size: 0,
            deliveries: 0,
            deaths: 0,
            queue: index as u32,
            priority: 0,
            flags: 0,
            why: Why::ENQUEUE,
            reserved: [0; 5],
        })
    }

    /// The lines that the policy logged, in order.
    pub fn logged(&self) -> Vec<(Level, String)> {
        with(|s| s.logged.clone())
    }

    /// The sum of the policy's counts under a name.
    pub fn counted(&self, name: &str) -> i64 {
        with(|s| s.counted.get(name.as_bytes()).copied().unwrap_or(0))
    }

    /// The attributes that the policy added to a message's trace, in order.
    pub fn traced(&self, m: &Message) -> Vec<(String, String)> {
        with(|s| s.messages[m.queue as usize].traced.clone())
    }

    /// Until when the policy holds a message, in milliseconds since 1970. None means that the message is not held: the policy
    /// has not said so, has taken it back, or has named a time that has passed.
    pub fn held(&self, m: &Message) -> Option<i64> {
        with(|s| s.messages[m.queue as usize].held).filter(|&until| until > self.now)
    }

    /// Why the policy refused its configuration, by [`super::refuse`].
    pub fn refusal(&self) -> Option<String> {
        with(|s| s.refusal.clone())
    }
}

/// A [`Message`] of a test. Its `with_…` methods set the content of the message.
pub struct Sample(Message);

impl Sample {
    fn content(&self, f: impl FnOnce(&mut Content)) {
        with(|s| f(&mut s.messages[self.0.queue as usize]))
    }

    fn flag(mut self, bit: u8) -> Sample {
        self.0.flags |= bit;
        self
    }

    /// The message with a header.
    pub fn with_header(self, name: &str, value: impl Into<Value>) -> Sample {
        self.content(|c| drop(c.headers.insert(name.as_bytes().to_vec(), value.into())));
        self
    }

    /// The message with a property.
    pub fn with_property(self, which: Property, value: impl AsRef<[u8]>) -> Sample {
        self.content(|c| drop(c.properties.insert(which as i32, value.as_ref().to_vec())));
        self
    }

    /// The message with a body, and its size.
    pub fn with_body(mut self, body: impl AsRef<[u8]>) -> Sample {
        self.0.size = body.as_ref().len() as u32;
        self.content(|c| c.body = body.as_ref().to_vec());
        self
    }

    /// The message as one that was delivered before.
    pub fn as_redelivered(self) -> Sample {
        self.flag(1)
    }

    /// The message as a persistent one.
    pub fn as_persistent(self) -> Sample {
        self.flag(2)
    }

    /// The message in a queue that has a dead-letter exchange.
    pub fn with_dlx(self) -> Sample {
        self.flag(4)
    }
}

impl Deref for Sample {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.0
    }
}

impl DerefMut for Sample {
    fn deref_mut(&mut self) -> &mut Message {
        &mut self.0
    }
}

/// The exchange and the routing key of a [`super::dead_letter`] verdict. Messages keep their own key if it is empty.
pub fn target(v: &Verdict) -> Option<(String, String)> {
    if v.text.is_null() {
        return None;
    }
    let (exchange, key) = (v.exchange_length as usize, v.key_length as usize);
    // A verdict with a text is made by dead_letter alone, of a Route, which is static and has room for both.
    let text = unsafe { std::slice::from_raw_parts(v.text, exchange + key) };
    Some((lossy(&text[..exchange]), lossy(&text[exchange..])))
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// A queue's setting has the same name with and without `x-`.
fn setting_name(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"x-").unwrap_or(name)
}

/// The broker's functions, as [`super::host`] declares them for WebAssembly.
pub mod host {
    use super::std::prelude::v1::*;
    use super::std::{format, panic};
    use super::*;

    /// A text that the policy gives.
    unsafe fn given<'a>(text: *const u8, length: usize) -> &'a [u8] {
        unsafe { std::slice::from_raw_parts(text, length) }
    }

    unsafe fn name<'a>(text: *const u8, length: usize) -> &'a [u8] {
        if length > MAX_NAME {
            panic!("a name of {} bytes; accepted are up to {}", length, MAX_NAME);
        }
        unsafe { given(text, length) }
    }

    unsafe fn truncated(text: *const u8, length: usize) -> String {
        lossy(unsafe { given(text, length.min(MAX_TEXT)) })
    }

    /// Writes a text into the policy's buffer, or nothing if it is too long, and returns its length.
    unsafe fn put(text: Option<&[u8]>, buffer: *mut u8, limit: usize) -> i32 {
        let b = match text {
            Some(b) => b,
            None => return -1,
        };
        if b.len() <= limit {
            unsafe { std::ptr::copy_nonoverlapping(b.as_ptr(), buffer, b.len()) };
        }
        b.len() as i32
    }

    fn content<T>(message: u32, f: impl FnOnce(&mut Content) -> T) -> T {
        with(|s| f(s.messages.get_mut(message as usize).expect("a message of another broker")))
    }

    pub unsafe fn log(level: i32, text: *const u8, length: usize) {
        let level = match level {
            i32::MIN..=0 => Level::Debug,
            1 => Level::Info,
            2 => Level::Warn,
            _ => Level::Error,
        };
        let text = unsafe { truncated(text, length) };
        with(|s| s.logged.push((level, text)));
    }

    pub unsafe fn log_enabled(_: i32) -> i32 {
        1
    }

    pub unsafe fn fail(text: *const u8, length: usize) {
        let text = unsafe { truncated(text, length) };
        with(|s| s.refusal = Some(text));
    }

    pub unsafe fn config_i64(text: *const u8, length: usize, otherwise: i64) -> i64 {
        let name = unsafe { name(text, length) };
        let found = with(|s| s.settings.get(name).cloned());
        match found {
            None => otherwise,
            Some(Value::Bool(_)) => panic!("{} is not a whole number: a broker refuses the configuration", lossy(name)),
            Some(v) => v.number().unwrap_or_else(|| panic!("{} is not a whole number: a broker refuses the configuration", lossy(name))),
        }
    }

    pub unsafe fn config_str(text: *const u8, length: usize, buffer: *mut u8, limit: usize) -> i32 {
        let name = unsafe { name(text, length) };
        let json = with(|s| s.settings.get(name).cloned()).map(|v| match v {
            Value::Number(n) => n.to_string().into_bytes(),
            Value::Bool(b) => b.to_string().into_bytes(),
            Value::Text(b) => b,
        });
        unsafe { put(json.as_deref(), buffer, limit) }
    }

    pub unsafe fn queue_arg_i64(_: u32, text: *const u8, length: usize, otherwise: i64) -> i64 {
        let name = setting_name(unsafe { name(text, length) });
        match with(|s| s.queue.get(name).cloned()) {
            None | Some(Value::Text(_)) => otherwise,
            Some(v) => v.number().unwrap_or(otherwise),
        }
    }

    pub unsafe fn queue_arg_str(_: u32, text: *const u8, length: usize, buffer: *mut u8, limit: usize) -> i32 {
        let name = setting_name(unsafe { name(text, length) });
        with(|s| unsafe { put(s.queue.get(name).and_then(Value::text), buffer, limit) })
    }

    pub unsafe fn header_i64(message: u32, text: *const u8, length: usize, otherwise: i64) -> i64 {
        let name = unsafe { name(text, length) };
        content(message, |c| c.headers.get(name).and_then(Value::number)).unwrap_or(otherwise)
    }

    pub unsafe fn header_str(message: u32, text: *const u8, length: usize, buffer: *mut u8, limit: usize) -> i32 {
        let name = unsafe { name(text, length) };
        content(message, |c| unsafe { put(c.headers.get(name).and_then(Value::text), buffer, limit) })
    }

    pub unsafe fn prop_str(message: u32, property: i32, buffer: *mut u8, limit: usize) -> i32 {
        content(message, |c| {
            let set = c.properties.get(&property).map(Vec::as_slice);
            let always = property <= Property::RoutingKey as i32; // the exchange may be empty, but is there
            unsafe { put(set.or(if always { Some(b"") } else { None }), buffer, limit) }
        })
    }

    pub unsafe fn body(message: u32, offset: u32, buffer: *mut u8, limit: usize) -> i32 {
        content(message, |c| {
            let rest = c.body.get(offset as usize..).unwrap_or(&[]);
            unsafe { put(Some(&rest[..rest.len().min(limit)]), buffer, limit) }
        })
    }

    pub unsafe fn counter_add(text: *const u8, length: usize, delta: i64) {
        let name = unsafe { name(text, length) };
        with(|s| {
            let n = s.counted.entry(name.to_vec()).or_insert(0);
            *n = n.wrapping_add(delta);
            assert!(s.counted.len() <= MAX_COUNTERS, "one name too many to count; accepted are {}", MAX_COUNTERS);
        });
    }

    pub unsafe fn trace_attr(message: u32, key: *const u8, key_length: usize, value: *const u8, value_length: usize) {
        let (key, value) = unsafe { (truncated(key, key_length.min(MAX_NAME)), truncated(value, value_length)) };
        content(message, |c| c.traced.push((key, value)));
    }

    pub unsafe fn hold(message: u32, until_ms: i64) {
        content(message, |c| c.held = Some(until_ms));
    }
}
