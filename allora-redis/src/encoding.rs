//! A record in four parts: what every claim and completion changes (the hot record), the definition
//! with kind and data, what few records have, and the cold parts: dead letters and remembered triggers.
//!
//! The hot record is text, so that an operator can read it, and so that a script can compare it as a
//! whole. It contains a version stamp that no other write has: equal hot records mean that neither the
//! hot record nor another part was written in between.
//!
//! A hot record begins with the time of its write, and may refer to it: `=` is a fence that was drawn
//! or a run that was started at that time, `+60000000` a lease that ends this number of microseconds
//! after it. So everything but that time can be computed before the server has read its clock. The time
//! is 0 in one that refers to none.

pub(crate) mod history;

use allora_core::{
    Occurrence, Time,
    backend::{Counters, Lease, NextRun, OnExpiry, Outcome, Sharing},
    record::{Accepted, EndedBy, Record, codec},
    time::from_millis,
};
use std::{io::Write, str::FromStr, time::Duration};

/// The version of the hot record; the scripts know it, too.
const LAYOUT: &str = "1";

/// The parts of a record as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// `1 STAMP TIME GENERATION INCARNATION FENCE CURSOR DUE LAST_STARTED STARTED SUCCEEDED LAST
    /// ENDED_FENCE ENDED_HOW LEASE`. `LEASE` is `-` or `CLAIM_ID FENCE SCHEDULED_AT DUE ATTEMPT
    /// STARTED UNTIL ON_EXPIRY NODE`; its fence is `=` if it is the record's, and DUE is `=` if it is
    /// SCHEDULED_AT.
    pub(crate) hot: Vec<u8>,
    /// The lengths of kind and definition, the lease of a claim by a query in milliseconds (0: no query
    /// may claim the job), then kind, definition and data.
    pub(crate) definition: Vec<u8>,
    /// The parts that have no place elsewhere, as a record whose other parts are empty. Often empty.
    pub(crate) rare: Vec<u8>,
    /// The dead letters and the remembered triggers, as a record whose other parts are empty. Often
    /// empty.
    pub(crate) cold: Vec<u8>,
}

/// The number of parts beside the hot record.
pub(crate) const PARTS: usize = 3;

impl Fields {
    /// The parts beside the hot record, in the order of their keys.
    pub(crate) fn parts(&self) -> [&[u8]; PARTS] {
        [&self.definition, &self.rare, &self.cold]
    }

    /// The parts of a record that is written with this version stamp at this time.
    pub(crate) fn of(record: &Record, stamp: &str, written: i64) -> Self {
        Self {
            hot: [hot_prefix(stamp, written).as_bytes(), &hot_suffix(record, written, None)]
                .concat(),
            definition: definition(record),
            rare: rare(record),
            cold: cold(record),
        }
    }

    /// The record, or the reason why it cannot be read.
    pub(crate) fn record(&self) -> Result<Record, String> {
        let mut words = HotReader { rest: text(&self.hot, "hot record")?, written: 0 };
        if words.next()? != LAYOUT {
            return Err("it was written by another version of allora; update this one".to_owned());
        }
        words.next()?;
        words.written = words.number()?;
        let part = |part: &[u8]| match part {
            [] => Ok(Record::default()),
            part => codec::decode(part).map_err(|why| why.to_string()),
        };
        let (due_lease, [kind, definition, data]) = self.split_definition()?;
        let Record { dead, remembered, .. } = part(&self.cold)?;
        let mut record = Record {
            kind: text(kind, "kind")?.to_owned(),
            definition: text(definition, "definition")?.to_owned(),
            due_lease,
            data: data.to_vec(),
            generation: words.number()?,
            incarnation: words.number()?,
            fence: words.fence(None)?,
            cursor: words.cursor()?,
            last_started: words.time()?,
            dead,
            remembered,
            ..part(&self.rare)?
        };
        record.counters.started = words.number()?;
        record.counters.succeeded = words.number()?;
        record.last = match words.next()? {
            "-" => None,
            "succeeded" => Some(Outcome::Succeeded),
            "*" => record.last,
            _ => return Err("the outcome of its last run is an unknown word".to_owned()),
        };
        record.ended = words.ended()?;
        if let Some(lease) = words.lease(record.fence)? {
            record.leases.insert(0, lease);
        }
        record.checked()
    }

    /// The lease of a claim by a query; kind, definition and data.
    fn split_definition(&self) -> Result<(Option<Duration>, [&[u8]; 3]), String> {
        let split = || {
            let (kind, rest) = length(&self.definition)?;
            let (definition, rest) = length(rest)?;
            let (lease, rest) = length(rest)?;
            let (kind, rest) = rest.split_at_checked(kind)?;
            let (definition, data) = rest.split_at_checked(definition)?;
            let lease = Some(Duration::from_millis(lease as u64)).filter(|lease| !lease.is_zero());
            Some((lease, [kind, definition, data]))
        };
        split().ok_or_else(|| "its definition was cut".to_owned())
    }

    /// The version stamp of the hot record.
    pub(crate) fn stamp(&self) -> &str {
        std::str::from_utf8(&self.hot).ok().and_then(|hot| hot.split(' ').nth(1)).unwrap_or("")
    }

    /// The fence, also if the rest cannot be read; 0 if unknown.
    pub(crate) fn fence(&self) -> i64 {
        let hot = String::from_utf8_lossy(&self.hot);
        let word = |i| hot.split(' ').nth(i);
        let word = word(5).and_then(|fence| if fence == "=" { word(2) } else { Some(fence) });
        word.and_then(|word| word.parse().ok()).unwrap_or(0)
    }
}

/// The beginning of a hot record, up to the time of its write.
pub(crate) fn hot_prefix(stamp: &str, written: i64) -> String {
    format!("{LAYOUT} {stamp} {written} ")
}

/// The rest of a hot record. With a `duration`, the lease ends this number of microseconds after the
/// write.
pub(crate) fn hot_suffix(record: &Record, written: i64, duration: Option<i64>) -> Vec<u8> {
    let Record { generation, incarnation, fence, cursor, last_started, counters, .. } = record;
    let mut hot = HotWriter(Vec::with_capacity(224));
    hot.number(*generation);
    hot.number(*incarnation);
    hot.fence(*fence, written);
    hot.time(cursor.map(|next| next.scheduled_at));
    hot.time(cursor.map(|next| next.due_at));
    hot.time(*last_started);
    hot.number(counters.started);
    hot.number(counters.succeeded);
    hot.word(match record.last {
        None => "-",
        Some(Outcome::Succeeded) => "succeeded",
        Some(_) => "*",
    });
    match record.ended {
        Some(ended) => {
            hot.number(ended.fence);
            hot.word(ended_by_letter(ended.by));
        }
        None => hot.word("- -"),
    }
    let Some(lease) = hot_lease(record) else {
        hot.0.push(b'-');
        return hot.0;
    };
    // Writing to memory does not fail.
    let _ = write!(hot.0, "{:x} ", lease.claim_id);
    hot.fence(lease.fence, *fence);
    hot.time(Some(lease.occurrence.scheduled_at));
    hot.time_or_same(lease.due_at, Some(lease.occurrence.scheduled_at));
    hot.number(lease.attempt);
    // Only the fence proves that this write is the claim.
    let is_claim = lease.fence == *fence && *fence == written;
    hot.time_or_same(lease.started_at, micros_time(written).filter(|_| is_claim));
    match duration {
        Some(duration) => {
            hot.0.push(b'+');
            hot.number(duration);
        }
        None => hot.time(Some(lease.until)),
    }
    hot.word(match (lease.on_expiry, lease.sharing) {
        (OnExpiry::Retry, _) => "retry",
        (OnExpiry::Lost, Sharing::Exclusive) => "lost",
        (OnExpiry::Lost, Sharing::Shared) => "shared",
    });
    hot.0.extend_from_slice(lease.node.as_bytes());
    hot.0
}

/// A hot record being written; each word is followed by a blank.
struct HotWriter(Vec<u8>);

impl HotWriter {
    fn word(&mut self, word: &str) {
        self.0.extend_from_slice(word.as_bytes());
        self.0.push(b' ');
    }

    fn number(&mut self, number: impl itoa::Integer) {
        self.word(itoa::Buffer::new().format(number));
    }

    fn fence(&mut self, fence: i64, same: i64) {
        match fence == same {
            true => self.word("="),
            false => self.number(fence),
        }
    }

    fn time_or_same(&mut self, at: Time, same: Option<Time>) {
        match Some(at) == same {
            true => self.word("="),
            false => self.time(Some(at)),
        }
    }

    fn time(&mut self, at: Option<Time>) {
        match at {
            Some(at) => self.number(ms(at)),
            None => self.word("-"),
        }
    }
}

/// The lease that has its place in the hot record. That of a trigger has no room there, a node with a
/// line feed would break it, and one whose run is to be cancelled, or has completed itself, is rare.
fn hot_lease(record: &Record) -> Option<&Lease> {
    let is_plain = |lease: &&Lease| !lease.cancel_requested && !lease.completed;
    let first = record.leases.first().filter(is_plain);
    first.filter(|lease| lease.occurrence.trigger.is_none() && !lease.node.contains('\n'))
}

/// True if a record has nothing but a cursor and one lease that has its place in the hot record.
pub(crate) fn is_plain(record: &Record) -> bool {
    record.leases.len() <= usize::from(hot_lease(record).is_some())
        && record.lost.is_empty()
        && record.retries.is_empty()
        && record.triggers.is_empty()
        && record.occurrence_data.is_empty()
        && record.waiters.is_empty()
        && record.paused.is_none()
        && record.streak.is_none()
        && record.deleted_at.is_none()
        && record.chain.is_none()
}

/// The counters that have no place in the hot record.
pub(crate) fn rare_counters(mut counters: Counters) -> Counters {
    (counters.started, counters.succeeded) = (0, 0);
    counters
}

/// The outcome of the last run, if it has no place in the hot record.
pub(crate) fn rare_outcome(record: &Record) -> Option<&Outcome> {
    record.last.as_ref().filter(|last| **last != Outcome::Succeeded)
}

fn definition(record: &Record) -> Vec<u8> {
    let Record { kind, definition, due_lease, data, .. } = record;
    let lease = due_lease.map_or(0, |lease| lease.as_millis());
    let lengths = format!("{} {} {lease} ", kind.len(), definition.len());
    [lengths.as_bytes(), kind.as_bytes(), definition.as_bytes(), data].concat()
}

fn rare(record: &Record) -> Vec<u8> {
    let (last, counters) = (rare_outcome(record), rare_counters(record.counters));
    let nothing = is_plain(record)
        && last.is_none()
        && counters == Counters::default()
        && record.version == 0;
    if nothing {
        return Vec::new();
    }
    let leases = record.leases.get(usize::from(hot_lease(record).is_some())..);
    codec::encode(&Record {
        version: record.version,
        leases: leases.unwrap_or_default().to_vec(),
        lost: record.lost.clone(),
        retries: record.retries.clone(),
        triggers: record.triggers.clone(),
        occurrence_data: record.occurrence_data.clone(),
        waiters: record.waiters.clone(),
        paused: record.paused.clone(),
        streak: record.streak.clone(),
        deleted_at: record.deleted_at,
        chain: record.chain.clone(),
        last: last.cloned(),
        counters,
        ..Record::default()
    })
}

fn cold(record: &Record) -> Vec<u8> {
    let Record { dead, remembered, .. } = record;
    if dead.is_empty() && remembered.is_empty() {
        return Vec::new();
    }
    let (dead, remembered) = (dead.clone(), remembered.clone());
    codec::encode(&Record { dead, remembered, ..Record::default() })
}

/// A number and a blank, and what follows.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b' ')?;
    let (number, rest) = bytes.split_at(end);
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest.get(1..)?))
}

/// The words of a hot record, one after the other.
struct HotReader<'a> {
    rest: &'a str,
    /// The time of the write, in microseconds.
    written: i64,
}

impl<'a> HotReader<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        if self.rest.is_empty() {
            return Err("its hot record ends too early".to_owned());
        }
        let (word, rest) = self.rest.split_once(' ').unwrap_or((self.rest, ""));
        self.rest = rest;
        Ok(word)
    }

    fn number<N: FromStr>(&mut self) -> Result<N, String> {
        let word = self.next()?;
        word.parse().map_err(|_| format!("its hot record has {word:?} in place of a number"))
    }

    /// A fence; `=` is `same`, or the time of the write.
    fn fence(&mut self, same: Option<i64>) -> Result<i64, String> {
        match self.rest.strip_prefix("= ") {
            Some(rest) => {
                self.rest = rest;
                Ok(same.unwrap_or(self.written))
            }
            None => self.number(),
        }
    }

    /// A time; `=` is `same`.
    fn time_or(&mut self, same: Option<Time>) -> Result<Option<Time>, String> {
        match self.rest.strip_prefix("= ") {
            Some(rest) => {
                self.rest = rest;
                Ok(same)
            }
            None => self.time(),
        }
    }

    /// The end of a lease.
    fn until(&mut self) -> Result<Option<Time>, String> {
        let Some(rest) = self.rest.strip_prefix('+') else { return self.time() };
        self.rest = rest;
        let duration: i64 = self.number()?;
        Ok(self.written.checked_add(duration).and_then(micros_time))
    }

    fn time(&mut self) -> Result<Option<Time>, String> {
        match self.next()? {
            "-" => Ok(None),
            word => {
                let ms = word.parse().ok().and_then(from_millis);
                let wrong = || format!("its hot record has {word:?} in place of a time");
                ms.map(Some).ok_or_else(wrong)
            }
        }
    }

    fn cursor(&mut self) -> Result<Option<NextRun>, String> {
        match (self.time()?, self.time()?) {
            (None, None) => Ok(None),
            (Some(scheduled_at), Some(due_at)) => Ok(Some(NextRun { scheduled_at, due_at })),
            _ => Err("its cursor has one of two times".to_owned()),
        }
    }

    fn ended(&mut self) -> Result<Option<Accepted>, String> {
        let fence = self.next()?;
        let by = match self.next()? {
            "-" => return Ok(None),
            "c" => EndedBy::Completed,
            "t" => EndedBy::Retried,
            "r" => EndedBy::Released,
            _ => return Err("the end of its last run is an unknown word".to_owned()),
        };
        let fence = fence.parse().map_err(|_| "the end of its last run has no fence".to_owned())?;
        Ok(Some(Accepted { fence, by }))
    }

    fn lease(&mut self, newest: i64) -> Result<Option<Lease>, String> {
        let claim_id = match self.next()? {
            "-" => return Ok(None),
            id => u128::from_str_radix(id, 16).map_err(|_| "its claim id is no number")?,
        };
        let missing = || "a time of its lease is missing".to_owned();
        let fence = self.fence(Some(newest))?;
        let scheduled_at = self.time()?.ok_or_else(missing)?;
        let due_at = self.time_or(Some(scheduled_at))?.ok_or_else(missing)?;
        let attempt = self.number()?;
        let started_at = self.time_or(micros_time(self.written))?.ok_or_else(missing)?;
        let until = self.until()?.ok_or_else(missing)?;
        let (on_expiry, sharing) = match self.next()? {
            "retry" => (OnExpiry::Retry, Sharing::Exclusive),
            "lost" => (OnExpiry::Lost, Sharing::Exclusive),
            "shared" => (OnExpiry::Lost, Sharing::Shared),
            _ => return Err("the expiry of its lease is an unknown word".to_owned()),
        };
        let occurrence = Occurrence::from(scheduled_at);
        let lease = Lease::new(self.rest, claim_id, fence, occurrence, until, on_expiry);
        Ok(Some(lease.attempt(attempt).claimed_at(due_at, started_at).sharing(sharing)))
    }
}

/// The letter of an accepted end.
fn ended_by_letter(by: EndedBy) -> &'static str {
    match by {
        EndedBy::Completed => "c",
        EndedBy::Retried => "t",
        EndedBy::Released => "r",
    }
}

fn text<'a>(bytes: &'a [u8], part: &str) -> Result<&'a str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("its {part} is not text"))
}

/// The whole milliseconds of a time in microseconds.
fn micros_time(micros: i64) -> Option<Time> {
    from_millis(micros.div_euclid(1_000))
}

/// A time as it is stored: whole milliseconds.
pub(crate) fn ms(at: Time) -> i64 {
    at.timestamp_millis()
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::record::{MAX_FENCE, PendingRetry, RememberedTrigger};

    fn t(ms: i64) -> Time {
        from_millis(ms).unwrap()
    }

    fn lease(node: &str, trigger: Option<&str>) -> Lease {
        let occurrence = Occurrence { scheduled_at: t(5_000), trigger: trigger.map(Into::into) };
        Lease::new(node, u128::MAX, 7, occurrence, t(9_000), OnExpiry::Retry).attempt(3)
    }

    /// Records of every shape that the fields have a place for.
    fn records() -> Vec<Record> {
        let plain = Record {
            definition: "every 60s".into(),
            incarnation: 3,
            generation: 4,
            fence: MAX_FENCE,
            cursor: Some(NextRun { scheduled_at: t(5_000), due_at: t(6_000) }),
            ..Record::default()
        };
        let mut counters = Counters::default();
        (counters.started, counters.succeeded, counters.lost) = (u64::MAX, 1, 2);
        let mut lost = lease("n", None).claimed_at(t(6_000), t(7_000));
        lost.on_expiry = OnExpiry::Lost;
        let last = Some(Outcome::Succeeded);
        vec![
            Record::default(),
            plain.clone(),
            Record { due_lease: Some(Duration::from_secs(30)), ..plain.clone() },
            Record { leases: vec![lease("a node", None)], last, ..plain.clone() },
            Record {
                leases: vec![lost.clone().sharing(Sharing::Shared)],
                lost: vec![lost.clone().sharing(Sharing::Shared)],
                ..plain.clone()
            },
            Record { leases: vec![lost], ..plain.clone() },
            Record { leases: vec![lease("", Some("by hand")), lease("b", None)], ..plain.clone() },
            Record { leases: vec![lease("two\nlines", None)], ..plain.clone() },
            Record {
                version: u64::MAX,
                kind: "mail {x}".into(),
                data: vec![0, 255],
                ..Record::default()
            },
            Record {
                last: Some(Outcome::Failed("a b".into())),
                last_started: Some(t(1)),
                ..Record::default()
            },
            Record {
                ended: Some(Accepted { fence: 9, by: EndedBy::Retried }),
                ..Record::default()
            },
            Record { deleted_at: Some(t(3)), counters, ..Record::default() },
            Record {
                retries: vec![PendingRetry {
                    occurrence: t(5).into(),
                    attempts: 2,
                    not_before: t(6),
                }],
                triggers: vec![Occurrence { scheduled_at: t(1), trigger: Some("x".into()) }],
                ..plain.clone()
            },
            Record {
                remembered: vec![RememberedTrigger {
                    occurrence: Occurrence { scheduled_at: t(1), trigger: Some("x".into()) },
                    until: t(2),
                    data: None,
                }],
                ..plain
            },
        ]
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        for record in records() {
            for written in [5, 7, i64::MAX] {
                let fields = Fields::of(&record, "stamp", written);
                assert_eq!(fields.record(), Ok(record.clone()), "{fields:?}");
                assert_eq!(fields.fence(), record.fence);
            }
        }
    }

    #[test]
    fn fence_and_lease_end_are_read_by_the_time_of_the_write() {
        let mut lease = lease("n", None);
        (lease.fence, lease.started_at, lease.until) = (5_000_001, t(5_000), t(65_000));
        let record = Record { fence: 5_000_001, leases: vec![lease], ..records()[1].clone() };
        let suffix = hot_suffix(&record, 5_000_001, Some(60_000_000));
        for (written, started, until) in [(5_000_001, 5_000, 65_000), (9_999_999, 9_999, 69_999)] {
            let hot = [hot_prefix("stamp", written).as_bytes(), &suffix].concat();
            let fields = Fields { hot, ..Fields::of(&record, "stamp", 0) };
            let read = fields.record().unwrap();
            assert_eq!((read.fence, read.leases[0].fence), (written, written));
            assert_eq!((read.leases[0].started_at, read.leases[0].until), (t(started), t(until)));
        }
    }

    #[test]
    fn a_hot_record_that_was_cut_is_unreadable() {
        let whole = Fields::of(&records()[1], "stamp", 5);
        for end in 0..whole.hot.len() {
            let cut = Fields { hot: whole.hot[..end].to_vec(), ..whole.clone() };
            assert!(cut.record().is_err(), "{:?}", String::from_utf8_lossy(&cut.hot));
        }
        let newer = Fields { hot: b"2 x".to_vec(), ..whole };
        assert!(newer.record().unwrap_err().contains("version"));
    }
}
