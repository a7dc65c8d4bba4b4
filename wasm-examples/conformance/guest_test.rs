//! The guest's answers in the SDK's broker for unit tests. They are those of the kit's transcript.
use super::policy::testing::{target, Broker, Value};
use super::*;

fn state(v: Verdict) -> i64 {
    (0..=4096).find(|n| v == number(*n)).unwrap_or_else(|| if v == number(-7) { -7 } else { panic!("{:?} says no number", v) })
}

fn ask(priority: u8, broker: &mut Broker, header: Option<(&str, Value)>) -> (Verdict, Vec<(String, String)>) {
    let mut m = broker.message();
    if let Some((name, value)) = header {
        m = m.with_header(name, value);
    }
    m.priority = priority;
    (enter(broker.now, &m), broker.traced(&m))
}

fn said(key: &str, value: &str) -> Vec<(String, String)> {
    vec![(key.to_string(), value.to_string())]
}

#[test]
fn the_configuration() {
    let mut broker = Broker::new();
    assert_eq!(read(), Err("exchange and key have to be set"));
    broker.set("exchange", "parking");
    broker.set("key", "lost");
    assert_eq!(read(), Ok(()));
    for (priority, key) in [(6, "lost"), (7, "")] {
        let (v, _) = ask(priority, &mut broker, None);
        assert_eq!(target(&v), Some(("parking".to_string(), key.to_string())));
    }
    assert_eq!(target(&keep(0)), None);
    broker.set("exchange", "x".repeat(256).as_str()); // longer than any name
    assert!(read().is_err());
    broker.set("refuse", 1);
    assert_eq!(read(), Err("as asked"));
    assert_eq!(refuse("as asked"), -1);
    assert_eq!(broker.refusal(), Some("as asked".to_string()));
}

// A key that is too long is refused, and no part of the route: its length would reach beyond the text.
#[test]
fn a_key_that_is_too_long() {
    static ROUTE: Route = Route::new();
    let mut broker = Broker::new();
    broker.set("exchange", "x".repeat(255).as_str());
    broker.set("key", "k".repeat(400).as_str());
    assert!(!ROUTE.from_config("exchange", "key"));
    assert_eq!(target(&dead_letter(&ROUTE)), Some(("x".repeat(255), String::new())));
}

#[test]
fn settings() {
    let mut broker = Broker::new();
    assert_eq!(state(ask(12, &mut broker, None).0), -7);
    assert_eq!(ask(13, &mut broker, None).0, number(-1));
    assert_eq!(state(ask(14, &mut broker, None).0), -7);
    broker.set("deep.number", 42);
    broker.set("deep.text", "über");
    broker.set_queue("max-length", 77);
    broker.set_queue("x-overflow", "reject-publish");
    broker.set_queue("message-ttl", 202);
    assert_eq!(broker.message().queue_ttl_ms, 202);
    assert_eq!(state(ask(12, &mut broker, None).0), 42);
    assert_eq!(ask(13, &mut broker, None), (number(5), said("text", "über")));
    assert_eq!(state(ask(14, &mut broker, None).0), 77);
    assert_eq!(ask(15, &mut broker, None), (number(14), said("text", "reject-publish")));
}

#[test]
#[should_panic(expected = "deep.number is not a whole number")]
fn a_setting_that_is_no_number() {
    let mut broker = Broker::new();
    broker.set("deep.number", "soon");
    ask(12, &mut broker, None);
}

#[test]
#[should_panic(expected = "a name of 256 bytes; accepted are up to 255")]
fn a_name_that_is_too_long() {
    let _broker = Broker::new();
    config(&"n".repeat(256), 0);
}

#[test]
fn headers() {
    let mut broker = Broker::new();
    for (value, want) in [(Value::from("12"), 12), (Value::from("soon"), -7), (Value::from(3), 3), (Value::from(true), 1), (Value::from("-"), -7)] {
        assert_eq!(state(ask(8, &mut broker, Some(("number", value.clone()))).0), want, "{:?}", value);
    }
    assert_eq!(ask(9, &mut broker, None).0, number(-1));
    assert_eq!(ask(9, &mut broker, Some(("text", Value::from(5)))).0, number(-1));
    assert_eq!(ask(9, &mut broker, Some(("text", Value::from("")))), (number(0), said("text", "")));
    // Publishers may send any bytes: a zero byte is one as any other, and what is not UTF-8 is no &str.
    assert_eq!(ask(9, &mut broker, Some(("text", Value::from("a\0b")))), (number(3), said("text", "a\0b")));
    assert_eq!(ask(9, &mut broker, Some(("text", Value::from(b"\xff\xfe")))), (number(2), said("text", "no text")));
    let long = "x".repeat(513); // is longer than the guest's buffer
    assert_eq!(ask(9, &mut broker, Some(("text", Value::from(long.as_str())))).0, number(-1));
}

#[test]
fn what_a_message_carries() {
    let mut broker = Broker::new();
    let mut m = broker.message().with_body("0123456").with_property(Property::Type, "order").as_persistent().with_dlx().as_redelivered();
    m.priority = 11;
    assert_eq!(m.size, 7);
    assert!(m.persistent() && m.has_dlx() && m.redelivered() && !broker.message().has_dlx());
    assert_eq!((enter(broker.now, &m), broker.traced(&m)), (number(3), said("body", "456")));
    m.priority = 10;
    assert_eq!(state(enter(broker.now, &m)), 3); // exchange and routing key are empty, but there
    m.priority = 11;
    let m = m.with_body("012");
    assert_eq!(enter(broker.now, &m), number(0));
}

#[test]
fn what_the_policy_says() {
    let mut broker = Broker::new();
    assert_eq!(state(ask(16, &mut broker, None).0), 15);
    let levels: Vec<Level> = broker.logged().iter().map(|(level, _)| *level).collect();
    assert_eq!(levels, [Level::Debug, Level::Info, Level::Warn, Level::Error]);
    for size in [1234, 4321] {
        let mut m = broker.message();
        m.size = size;
        m.priority = 17;
        assert_eq!(enter(broker.now, &m), no_opinion());
    }
    assert_eq!((broker.counted("asked"), broker.counted("nothing")), (5555, 0));
    assert_eq!(idle(broker.now, 7, 1, 0, 0), Idle::NoOpinion);
    assert_eq!(back(broker.now, &broker.message()), keep(NONE + 1000).with_state(0));
    assert_eq!(due(broker.now, &broker.message()), expire());
    assert_eq!(head(broker.now, &broker.message()), keep(broker.now + 10));
}

#[test]
fn holds() {
    let mut broker = Broker::new();
    for (priority, verdict, until) in [(20, keep(NONE).and_ask_at_head(), None), (21, keep(NONE), Some(2000)), (22, no_opinion(), Some(2000)), (23, no_opinion(), None)] {
        let mut m = broker.message();
        m.priority = priority;
        assert_eq!((enter(broker.now, &m), broker.held(&m)), (verdict, until.map(|ms| broker.now + ms)));
    }
    let mut m = broker.message();
    m.priority = 2;
    assert_eq!((head(broker.now, &m), broker.held(&m)), (no_opinion(), Some(broker.now + 10)));
    m.deadline_ms = broker.now; // a time that has passed is no hold
    assert_eq!((back(broker.now, &m), broker.held(&m)), (no_opinion(), None));
}
