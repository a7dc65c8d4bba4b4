//! Points in time, as messages write them.

/// The last instant that the broker takes: the end of the year 9999.
pub const LATEST: i64 = 253_402_300_799_999;

/// The first: some time in 1973. A number that is less counts seconds.
const EARLIEST: i64 = 100_000_000_000;

/// A number, in seconds or milliseconds since 1970.
pub fn of_number(n: i64) -> Option<i64> {
    match n {
        EARLIEST..=LATEST => Some(n),
        0..=99_999_999_999 => Some(n * 1000),
        _ => None,
    }
}

/// A date and time of ISO 8601, such as 2026-11-21T15:04:05.678+01:00. The zone
/// may be absent, which is UTC, and so may the seconds and what is less.
pub fn read(text: &[u8]) -> Option<i64> {
    let mut r = Reader(text);
    let year = r.number(4)?;
    r.expect(b"-")?;
    let month = r.number(2).filter(|m| (1..=12).contains(m))?;
    r.expect(b"-")?;
    let day = r.number(2).filter(|d| *d >= 1 && *d <= days_in(year, month))?;
    r.expect(b"Tt ")?;
    let minutes = r.clock()?;
    let seconds = if r.expect(b":").is_some() { r.number(2).filter(|s| *s <= 60)? } else { 0 };
    let millis = if r.expect(b".,").is_some() { r.fraction()? } else { 0 };
    let zone = r.zone()?;
    if !r.0.is_empty() {
        return None;
    }
    Some(((days(year, month, day) * 24 * 60 + minutes - zone) * 60 + seconds) * 1000 + millis)
}

/// What is still to be read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// Takes one byte, if it is one of these.
    fn expect(&mut self, any: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        if !any.contains(first) {
            return None;
        }
        self.0 = rest;
        Some(*first)
    }

    /// Takes a number of so many digits.
    fn number(&mut self, digits: usize) -> Option<i64> {
        let mut n = 0;
        for _ in 0..digits {
            n = n * 10 + (self.expect(b"0123456789")? - b'0') as i64;
        }
        Some(n)
    }

    /// Takes hours and minutes, which may have a colon between them.
    fn clock(&mut self) -> Option<i64> {
        let hours = self.number(2).filter(|h| *h < 24)?;
        self.expect(b":");
        let minutes = self.number(2).filter(|m| *m < 60)?;
        Some(hours * 60 + minutes)
    }

    /// Takes a fraction of a second. What is less than a millisecond is left out.
    fn fraction(&mut self) -> Option<i64> {
        let (mut millis, mut worth) = (self.number(1)? * 100, 10);
        while let Some(digit) = self.expect(b"0123456789") {
            millis += (digit - b'0') as i64 * worth;
            worth /= 10;
        }
        Some(millis)
    }

    /// Takes a zone, in minutes east of Greenwich.
    fn zone(&mut self) -> Option<i64> {
        match self.expect(b"Zz+-") {
            Some(b'+') => self.clock(),
            Some(b'-') => Some(-self.clock()?),
            _ => Some(0),
        }
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + is_leap(year) as i64,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The days from 1970-01-01 to a day. A year that begins in March has its leap day
/// at its end, so that the days before a month follow from its number.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400);
    y * 365 + leaps + (m * 153 + 2) / 5 + day - 1 - 719_468
}
