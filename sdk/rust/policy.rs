//! Expiry policies for Curfew in Rust: the contract policy_v1, in one file
//! without `std` and without dependencies, for editions 2015 to 2024. For other
//! targets than WebAssembly it takes `testing.rs`, a broker for unit tests.
//!
//! Put it beside the policy's own file, where it is the module `policy` of the
//! crate, and write hooks as functions of one message:
//!
//! ```ignore
//! #![no_std]
//! mod policy;
//! use policy::*;
//!
//! fn half_a_minute(_now: i64, m: &Message) -> Verdict { keep(m.enqueued_ms + 30_000) }
//!
//! policy::export! { on_enqueue: half_a_minute }
//! ```
//!
//! Times are milliseconds since 1970, durations milliseconds, and [`NONE`]
//! stands for none or never. A hook's arguments are valid until it returns.
#![allow(dead_code)] // a policy uses what it needs

extern crate core; // edition 2015 does not know it otherwise

use self::core::cell::{Cell, UnsafeCell};

/// None, or never.
pub const NONE: i64 = -1;

/// The most messages of a call.
pub const CAPACITY: usize = 64;

/// The longest exchange or routing key, in bytes.
pub const MAX_NAME: usize = 255;

/// A message, as hooks see it.
#[repr(C)]
pub struct Message {
    pub enqueued_ms: i64,   // when it entered this queue
    pub expiration_ms: i64, // the publisher's expiration, a duration
    pub queue_ttl_ms: i64,  // the queue's message-ttl, a duration
    pub deadline_ms: i64,   // in force
    pub state: i64,         // what the policy had stored with it
    pub size: u32,          // bytes of body
    pub deliveries: u32,    // how often it was handed out and came back
    pub deaths: u32,        // how often it was dead-lettered
    queue: u32,
    pub priority: u8,
    flags: u8,
    pub why: Why,
    reserved: [u8; 5],
}

/// The occasion on which a hook is called about a message. The constants are its
/// known values.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why(u8);

impl Why {
    pub const ENQUEUE: Why = Why(1);
    pub const DEADLINE: Why = Why(2);
    pub const HEAD: Why = Why(3);
    pub const REQUEUE: Why = Why(4);
}

/// Properties of a message for [`Message::property`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    Exchange = 1,
    RoutingKey,
    MessageId,
    Type,
    AppId,
    UserId,
}

impl Message {
    /// Whether it was delivered before.
    pub fn redelivered(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Whether its publisher asked for it to survive a restart.
    pub fn persistent(&self) -> bool {
        self.flags & 2 != 0
    }

    /// Whether its queue has a dead-letter exchange.
    pub fn has_dlx(&self) -> bool {
        self.flags & 4 != 0
    }

    /// Its number in the current call.
    #[cfg(target_arch = "wasm32")]
    fn index(&self) -> u32 {
        ((self as *const Message as usize - BUFFER.at()) / RECORD) as u32
    }

    /// Its number in the test's broker.
    #[cfg(not(target_arch = "wasm32"))]
    fn index(&self) -> u32 {
        self.queue
    }

    /// A header that is a number, or can be read as one; a timestamp is
    /// milliseconds. Needs the grant headers, as the other headers and
    /// properties do.
    pub fn header(&self, name: &str, otherwise: i64) -> i64 {
        unsafe { host::header_i64(self.index(), name.as_ptr(), name.len(), otherwise) }
    }

    /// A header that is text, if it fits into the buffer.
    pub fn header_text<'a>(&self, name: &str, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        fitting(buffer, |b, n| unsafe { host::header_str(self.index(), name.as_ptr(), name.len(), b, n) })
    }

    /// A property, if it fits into the buffer.
    pub fn property<'a>(&self, which: Property, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        fitting(buffer, |b, n| unsafe { host::prop_str(self.index(), which as i32, b, n) })
    }

    /// A setting of its queue: `message-ttl` or `x-message-ttl`.
    pub fn queue(&self, name: &str, otherwise: i64) -> i64 {
        unsafe { host::queue_arg_i64(self.queue, name.as_ptr(), name.len(), otherwise) }
    }

    /// A setting of its queue that is text, if it fits into the buffer.
    pub fn queue_text<'a>(&self, name: &str, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        fitting(buffer, |b, n| unsafe { host::queue_arg_str(self.queue, name.as_ptr(), name.len(), b, n) })
    }

    /// The body from an offset on, as much as the buffer takes.
    /// Needs the grant body.
    pub fn body<'a>(&self, offset: u32, buffer: &'a mut [u8]) -> &'a [u8] {
        let n = unsafe { host::body(self.index(), offset, buffer.as_mut_ptr(), buffer.len()) };
        &buffer[..n as usize]
    }

    /// Adds an attribute to its trace. Needs the grant trace.
    pub fn trace(&self, key: &str, value: &str) {
        unsafe { host::trace_attr(self.index(), key.as_ptr(), key.len(), value.as_ptr(), value.len()) }
    }

    /// Keeps it from being delivered before a time; others pass it. It counts with
    /// a verdict that keeps the message, and [`NONE`] takes it back. A deadline that
    /// comes first is not postponed. Needs the grant hold.
    pub fn hold(&self, until_ms: i64) {
        unsafe { host::hold(self.index(), until_ms) }
    }
}

/// A hook's decision about a message. Functions make one: [`keep`], [`expire`] and
/// so on.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    action: u32,
    flags: u32,
    until_ms: i64,
    state: i64,
    text: *const u8,
    exchange_length: u16,
    key_length: u16,
}

const fn verdict(action: u32, until_ms: i64) -> Verdict {
    Verdict { action, flags: 0, until_ms, state: 0, text: core::ptr::null(), exchange_length: 0, key_length: 0 }
}

/// Keeps the message until a time; [`NONE`] means for ever.
pub const fn keep(until_ms: i64) -> Verdict {
    verdict(0, until_ms)
}

/// Expires the message: it is dead-lettered if the queue is configured for it, and
/// dropped otherwise.
pub const fn expire() -> Verdict {
    verdict(1, NONE)
}

/// Dead-letters the message to an exchange of the policy's choice. Needs the grant
/// route.
pub fn dead_letter(to: &'static Route) -> Verdict {
    let mut v = verdict(2, NONE);
    v.text = to.text.get() as *const u8;
    v.exchange_length = to.exchange_length.get();
    v.key_length = to.key_length.get();
    v
}

/// Keeps the message, and calls the policy about it again, not before that time.
pub const fn ask_again(not_before_ms: i64) -> Verdict {
    verdict(3, not_before_ms)
}

/// Drops the message without dead-lettering it.
pub const fn discard() -> Verdict {
    verdict(4, NONE)
}

/// The broker decides as without a policy, by the message's expiration and the
/// queue's message-ttl.
pub const fn no_opinion() -> Verdict {
    verdict(255, NONE)
}

impl Verdict {
    /// Stores eight bytes of the policy's own with the message.
    pub const fn with_state(mut self, state: i64) -> Verdict {
        self.flags |= 1;
        self.state = state;
        self
    }

    /// Asks for a call of on_head when the message is delivered next.
    pub const fn and_ask_at_head(mut self) -> Verdict {
        self.flags |= 2;
        self
    }
}

/// A decision of on_idle about a queue without consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// The queue's x-expires decides.
    NoOpinion,
    /// Delete it.
    Delete,
    /// The queue stays, and the hook is not called again.
    Stays,
    /// The queue stays until then at least, and the hook is called again.
    AskAt(i64),
}

/// A mutable static, for example for a setting of the policy. An instance runs one
/// call at a time, so no other code reads it meanwhile.
pub struct Global<T: Copy>(Cell<T>);

unsafe impl<T: Copy> Sync for Global<T> {}

impl<T: Copy> Global<T> {
    pub const fn new(value: T) -> Self {
        Global(Cell::new(value))
    }

    pub fn get(&self) -> T {
        self.0.get()
    }

    pub fn set(&self, value: T) {
        self.0.set(value)
    }
}

/// An exchange and a routing key, for [`dead_letter`].
pub struct Route {
    text: UnsafeCell<[u8; 2 * MAX_NAME]>,
    exchange_length: Cell<u16>,
    key_length: Cell<u16>, // 0 = messages keep their own
}

unsafe impl Sync for Route {}

impl Route {
    pub const fn new() -> Self {
        Route { text: UnsafeCell::new([0; 2 * MAX_NAME]), exchange_length: Cell::new(0), key_length: Cell::new(0) }
    }

    /// Reads the route from two settings. The second may be absent; reports
    /// whether the first is there and both are short enough.
    pub fn from_config(&self, exchange: &str, key: &str) -> bool {
        let text = unsafe { &mut *self.text.get() };
        let n = match config_text(exchange, &mut text[..MAX_NAME]) {
            Some(b) => b.len(),
            None => return false,
        };
        let k = unsafe { host::config_str(key.as_ptr(), key.len(), text[n..].as_mut_ptr(), MAX_NAME) };
        self.exchange_length.set(n as u16);
        self.key_length.set(if k < 0 || k > MAX_NAME as i32 { 0 } else { k as u16 });
        k <= MAX_NAME as i32
    }
}

/// A setting of the configuration. Nested settings have names with dots.
pub fn config(name: &str, otherwise: i64) -> i64 {
    unsafe { host::config_i64(name.as_ptr(), name.len(), otherwise) }
}

/// A setting that is text, if it fits into the buffer.
pub fn config_text<'a>(name: &str, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    fitting(buffer, |b, n| unsafe { host::config_str(name.as_ptr(), name.len(), b, n) })
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// Writes a line to the broker's log, whose rate is limited.
pub fn log(level: Level, text: &str) {
    unsafe { host::log(level as i32, text.as_ptr(), text.len()) }
}

/// Whether the log takes lines of this level at all.
pub fn log_enabled(level: Level) -> bool {
    unsafe { host::log_enabled(level as i32) != 0 }
}

/// Adds to a metric of the policy. Needs the grant metrics.
pub fn count(name: &str, delta: i64) {
    unsafe { host::counter_add(name.as_ptr(), name.len(), delta) }
}

/// The text that was written, if it exists and fits.
fn fitting(buffer: &mut [u8], read: impl FnOnce(*mut u8, usize) -> i32) -> Option<&[u8]> {
    let n = read(buffer.as_mut_ptr(), buffer.len());
    if n < 0 {
        return None;
    }
    buffer.get(..n as usize)
}

/// Exports a function by its name. An edition from 2024 on calls that unsafe, in
/// words that compilers before 1.82 do not know. In those editions alone `_` is an
/// expression, which selects the arm; the other is not parsed.
#[doc(hidden)]
#[macro_export]
macro_rules! exported {
    ($edition:expr; $($function:tt)+) => { #[unsafe(no_mangle)] $($function)+ };
    (_; $($function:tt)+) => { #[no_mangle] $($function)+ };
}

/// Declares functions of the broker, in the words of the edition, as [`exported!`] does.
#[doc(hidden)]
#[macro_export]
macro_rules! imported {
    ($edition:expr; $($function:tt)+) => { #[link(wasm_import_module = "policy_v1")] unsafe extern "C" { $($function)+ } };
    (_; $($function:tt)+) => { #[link(wasm_import_module = "policy_v1")] extern "C" { $($function)+ } };
}

/// The broker's functions, for uses that the functions above do not cover.
#[cfg(target_arch = "wasm32")]
pub mod host {
    crate::imported! { _;
        pub fn log(level: i32, text: *const u8, length: usize);
        pub fn log_enabled(level: i32) -> i32;
        pub fn fail(text: *const u8, length: usize);
        pub fn config_i64(name: *const u8, length: usize, otherwise: i64) -> i64;
        pub fn config_str(name: *const u8, length: usize, buffer: *mut u8, limit: usize) -> i32;
        pub fn queue_arg_i64(queue: u32, name: *const u8, length: usize, otherwise: i64) -> i64;
        pub fn queue_arg_str(queue: u32, name: *const u8, length: usize, buffer: *mut u8, limit: usize) -> i32;
        pub fn header_i64(message: u32, name: *const u8, length: usize, otherwise: i64) -> i64;
        pub fn header_str(message: u32, name: *const u8, length: usize, buffer: *mut u8, limit: usize) -> i32;
        pub fn prop_str(message: u32, property: i32, buffer: *mut u8, limit: usize) -> i32;
        pub fn body(message: u32, offset: u32, buffer: *mut u8, limit: usize) -> i32;
        pub fn counter_add(name: *const u8, length: usize, delta: i64);
        pub fn trace_attr(message: u32, key: *const u8, key_length: usize, value: *const u8, value_length: usize);
        pub fn hold(message: u32, until_ms: i64);
    }
}

#[cfg(not(target_arch = "wasm32"))]
#[path = "testing.rs"]
pub mod testing;

#[cfg(not(target_arch = "wasm32"))]
pub use self::testing::host;

const RECORD: usize = core::mem::size_of::<Message>();
const VERDICT: usize = core::mem::size_of::<Verdict>();
const _: () = assert!(RECORD == 64 && (VERDICT == 32 || core::mem::size_of::<usize>() != 4));

/// The records of a call's messages, followed by their verdicts.
#[repr(C, align(8))]
pub struct Buffer(UnsafeCell<[u8; CAPACITY * (RECORD + VERDICT)]>);

unsafe impl Sync for Buffer {}

static BUFFER: Buffer = Buffer(UnsafeCell::new([0; CAPACITY * (RECORD + VERDICT)]));

impl Buffer {
    fn at(&self) -> usize {
        self.0.get() as usize
    }
}

crate::exported! { _;
    extern "C" fn policy_v1() -> i32 {
        CAPACITY as i32
    }
}

crate::exported! { _;
    extern "C" fn policy_buf(bytes: usize) -> usize {
        if bytes <= CAPACITY * (RECORD + VERDICT) {
            BUFFER.at()
        } else {
            0
        }
    }
}

/// Asks a hook about each message of a call. Hooks that [`export!`] makes call
/// it.
#[inline(always)]
pub fn each(now: i64, n: usize, hook: impl Fn(i64, &Message) -> Verdict) -> i32 {
    let records = BUFFER.at() as *const Message;
    unsafe {
        let verdicts = records.add(n) as *mut Verdict;
        for i in 0..n {
            *verdicts.add(i) = hook(now, &*records.add(i));
        }
    }
    0
}

/// The result of a refused configuration, with the reason.
pub fn refuse(why: &str) -> i32 {
    unsafe { host::fail(why.as_ptr(), why.len()) };
    -1
}

/// The results of on_idle.
pub fn idle_code(said: Idle) -> i64 {
    match said {
        Idle::NoOpinion => 0,
        Idle::Delete => -1,
        Idle::Stays => -2,
        Idle::AskAt(t) => t,
    }
}

/// Exports functions as the policy's hooks:
///
/// ```ignore
/// policy::export! {
///     configure: read,      // fn() -> Result<(), &'static str>
///     on_enqueue: enter,    // fn(now: i64, &Message) -> Verdict; so on_deadline, on_head, on_requeue
///     on_idle: idle,        // fn(now: i64, idle_ms: i64, ready: u32, unacked: u32, consumers: u32) -> Idle
/// }
/// ```
#[macro_export]
macro_rules! export {
    ($($hook:ident : $function:path),+ $(,)?) => { $($crate::export_one!($hook $function);)+ };
}

#[doc(hidden)]
#[macro_export]
macro_rules! export_one {
    (configure $function:path) => {
        $crate::exported! { _;
            extern "C" fn policy_configure(_: u32) -> i32 {
                match $function() {
                    Ok(()) => 0,
                    Err(why) => $crate::policy::refuse(why),
                }
            }
        }
    };
    (on_idle $function:path) => {
        $crate::exported! { _;
            extern "C" fn on_idle(now: i64, idle_ms: i64, ready: u32, unacked: u32, consumers: u32) -> i64 {
                $crate::policy::idle_code($function(now, idle_ms, ready, unacked, consumers))
            }
        }
    };
    ($hook:ident $function:path) => {
        $crate::exported! { _;
            extern "C" fn $hook(now: i64, n: u32) -> i32 {
                $crate::policy::each(now, n as usize, $function)
            }
        }
    };
}

pub use crate::export;

/// A panic ends the instance. The broker's log says in which file it was.
#[cfg(target_arch = "wasm32")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let file = info.location().map_or("a panic", |l| l.file());
    unsafe { host::fail(file.as_ptr(), file.len()) };
    core::arch::wasm32::unreachable()
}
