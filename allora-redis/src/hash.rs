//! A record as a line and fields: what every take and finish touches is one line of words, what is
//! rare is one field, and what is large has fields of its own.
//!
//! The line is text, so that an operator can read it, and so that a script can compare it as a
//! whole: it carries a token that no other write has, so equal lines mean that nothing was written
//! in between, neither to the line nor to the fields.
//!
//! A line begins with the instant of its write, and what that decides can be said by it: `=` is a
//! fence that was drawn at that instant, `+60000000` a lease that ends so many microseconds after it.
//! So all but the instant is known before the server has read its clock.

use allora_core::{
    Occurrence, Time,
    backend::{Counters, Next, Outcome},
    record::{Accepted, Hold, How, Record, codec},
    time::from_millis,
};
use std::{io::Write, str::FromStr};

/// The version of the line; scripts write it and ask for it, too.
const LAYOUT: &str = "1";

/// A line and the fields of a hash, in the order in which scripts read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// `1 TOKEN INSTANT EDITION INCARNATION FENCE CURSOR DUE LAST_STARTED STARTED RAN LAST ENDED_FENCE
    /// ENDED_HOW HOLD`. `HOLD` is `-` or `CLAIM FENCE AT ATTEMPT UNTIL LEASED NODE`; its fence is
    /// `=` where it is the record's.
    pub(crate) line: Vec<u8>,
    /// What has no place in the line, as a record in which everything else is blank; often empty.
    pub(crate) cold: Vec<u8>,
    pub(crate) kind: Vec<u8>,
    pub(crate) text: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

/// The names of the fields, in the same order.
pub(crate) const NAMES: [&str; 4] = ["cold", "kind", "text", "data"];

impl Fields {
    pub(crate) fn parts(&self) -> [&[u8]; 4] {
        [&self.cold, &self.kind, &self.text, &self.data]
    }

    /// The line and the fields of a record that this token has written at this instant.
    pub(crate) fn of(record: &Record, token: &str, written: i64) -> Self {
        Self {
            line: [head(token, written).as_bytes(), &tail(record, written, None)].concat(),
            cold: cold(record),
            kind: record.kind.clone().into_bytes(),
            text: record.definition.clone().into_bytes(),
            data: record.data.clone(),
        }
    }

    /// The record, or why nobody can read it.
    pub(crate) fn record(&self) -> Result<Record, String> {
        let mut words = Words { rest: text(&self.line, "line")?, written: 0 };
        if words.next()? != LAYOUT {
            return Err("it was written by another version of allora; update this one".to_owned());
        }
        words.next()?;
        words.written = words.number()?;
        let cold = match self.cold.as_slice() {
            [] => blank(),
            cold => codec::decode(cold).map_err(|why| why.to_string())?,
        };
        let mut record = Record {
            kind: text(&self.kind, "kind")?.to_owned(),
            definition: text(&self.text, "definition")?.to_owned(),
            data: self.data.clone(),
            edition: words.number()?,
            incarnation: words.number()?,
            fence: words.fence(None)?,
            cursor: words.cursor()?,
            last_started: words.time()?,
            ..cold
        };
        record.counters.started = words.number()?;
        record.counters.ran = words.number()?;
        record.last = match words.next()? {
            "-" => None,
            "ran" => Some(Outcome::Ran),
            "*" => record.last,
            _ => return Err("how its last run ended is an unknown word".to_owned()),
        };
        record.ended = words.ended()?;
        if let Some(hold) = words.hold(record.fence)? {
            record.holds.insert(0, hold);
        }
        Ok(record)
    }

    /// The fence, good also where the rest is not.
    pub(crate) fn fence(&self) -> i64 {
        let line = String::from_utf8_lossy(&self.line);
        let word = |i| line.split(' ').nth(i);
        let word = word(5).and_then(|fence| if fence == "=" { word(2) } else { Some(fence) });
        word.and_then(|word| word.parse().ok()).unwrap_or(0)
    }
}

/// How a line begins.
pub(crate) fn head(token: &str, written: i64) -> String {
    format!("{LAYOUT} {token} {written} ")
}

/// How it goes on. Of a run that lasts so many microseconds from the instant of the write on, the
/// end is said by that.
pub(crate) fn tail(record: &Record, written: i64, lasts: Option<i64>) -> Vec<u8> {
    let Record { edition, incarnation, fence, cursor, last_started, counters, .. } = record;
    let mut line = Line(Vec::with_capacity(224));
    line.number(*edition);
    line.number(*incarnation);
    line.fence(*fence, written);
    line.time(cursor.map(|next| next.at));
    line.time(cursor.map(|next| next.due_at));
    line.time(*last_started);
    line.number(counters.started);
    line.number(counters.ran);
    line.word(match record.last {
        None => "-",
        Some(Outcome::Ran) => "ran",
        Some(_) => "*",
    });
    match record.ended {
        Some(ended) => {
            line.number(ended.fence);
            line.word(how_letter(ended.how));
        }
        None => line.word("- -"),
    }
    let Some(hold) = inline(record) else {
        line.0.push(b'-');
        return line.0;
    };
    // Writing to memory does not fail.
    let _ = write!(line.0, "{:x} ", hold.claim);
    line.fence(hold.fence, *fence);
    line.time(Some(hold.run.at));
    line.number(hold.attempt);
    match lasts {
        Some(lasts) => {
            line.0.push(b'+');
            line.number(lasts);
        }
        None => line.time(Some(hold.until)),
    }
    line.word(if hold.at_least_once { "1" } else { "0" });
    line.0.extend_from_slice(hold.node.as_bytes());
    line.0
}

/// A line that is written, each word with a blank after it.
struct Line(Vec<u8>);

impl Line {
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

    fn time(&mut self, at: Option<Time>) {
        match at {
            Some(at) => self.number(ms(at)),
            None => self.word("-"),
        }
    }
}

/// The hold that has its place in the line. One of a trigger has no room there, nor has one whose
/// node would end it.
fn inline(record: &Record) -> Option<&Hold> {
    let first = record.holds.first();
    first.filter(|hold| hold.run.trigger.is_none() && !hold.node.contains('\n'))
}

/// Whether a record has nothing but a cursor and a run that has its place in the line.
pub(crate) fn is_plain(record: &Record) -> bool {
    record.holds.len() <= usize::from(inline(record).is_some())
        && record.again.is_empty()
        && record.triggers.is_empty()
        && record.unheld.is_none()
        && record.paused.is_none()
        && record.gone.is_none()
}

/// The counters for which the line has no place.
pub(crate) fn rare(mut counters: Counters) -> Counters {
    (counters.started, counters.ran) = (0, 0);
    counters
}

/// How the last run ended, where the line does not say.
pub(crate) fn said(record: &Record) -> Option<&Outcome> {
    record.last.as_ref().filter(|last| **last != Outcome::Ran)
}

fn cold(record: &Record) -> Vec<u8> {
    let (last, counters) = (said(record), rare(record.counters));
    let nothing = is_plain(record)
        && last.is_none()
        && counters == Counters::default()
        && record.dead.is_empty()
        && record.version == 0;
    if nothing {
        return Vec::new();
    }
    let holds = record.holds.get(usize::from(inline(record).is_some())..);
    codec::encode(&Record {
        version: record.version,
        unheld: record.unheld.clone(),
        holds: holds.unwrap_or_default().to_vec(),
        again: record.again.clone(),
        triggers: record.triggers.clone(),
        paused: record.paused.clone(),
        gone: record.gone,
        dead: record.dead.clone(),
        last: last.cloned(),
        counters,
        ..blank()
    })
}

fn blank() -> Record {
    Record {
        kind: String::new(),
        definition: String::new(),
        version: 0,
        incarnation: 0,
        edition: 0,
        data: Vec::new(),
        cursor: None,
        last_started: None,
        fence: 0,
        unheld: None,
        holds: Vec::new(),
        again: Vec::new(),
        triggers: Vec::new(),
        paused: None,
        gone: None,
        ended: None,
        last: None,
        dead: Vec::new(),
        counters: Counters::default(),
    }
}

/// The words of a line, one after the other.
struct Words<'a> {
    rest: &'a str,
    /// The instant of the write, in microseconds.
    written: i64,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        if self.rest.is_empty() {
            return Err("its line ends too early".to_owned());
        }
        let (word, rest) = self.rest.split_once(' ').unwrap_or((self.rest, ""));
        self.rest = rest;
        Ok(word)
    }

    fn number<N: FromStr>(&mut self) -> Result<N, String> {
        let word = self.next()?;
        word.parse().map_err(|_| format!("{word:?} stands where a number should"))
    }

    /// A fence; `=` is `same`, or the instant of the write.
    fn fence(&mut self, same: Option<i64>) -> Result<i64, String> {
        match self.rest.strip_prefix("= ") {
            Some(rest) => {
                self.rest = rest;
                Ok(same.unwrap_or(self.written))
            }
            None => self.number(),
        }
    }

    /// The end of a run.
    fn until(&mut self) -> Result<Option<Time>, String> {
        let Some(rest) = self.rest.strip_prefix('+') else { return self.time() };
        self.rest = rest;
        let lasts: i64 = self.number()?;
        Ok(self.written.checked_add(lasts).and_then(|end| from_millis(end.div_euclid(1_000))))
    }

    fn time(&mut self) -> Result<Option<Time>, String> {
        match self.next()? {
            "-" => Ok(None),
            word => {
                let ms = word.parse().ok().and_then(from_millis);
                ms.map(Some).ok_or_else(|| format!("{word:?} stands where an instant should"))
            }
        }
    }

    fn cursor(&mut self) -> Result<Option<Next>, String> {
        match (self.time()?, self.time()?) {
            (None, None) => Ok(None),
            (Some(at), Some(due_at)) => Ok(Some(Next { at, due_at })),
            _ => Err("its cursor is only half there".to_owned()),
        }
    }

    fn ended(&mut self) -> Result<Option<Accepted>, String> {
        let fence = self.next()?;
        let how = match self.next()? {
            "-" => return Ok(None),
            "f" => How::Finished,
            "t" => How::Retried,
            "r" => How::Released,
            _ => return Err("how its last run ended is not known".to_owned()),
        };
        let fence = fence.parse().map_err(|_| "its last ending has no fence".to_owned())?;
        Ok(Some(Accepted { fence, how }))
    }

    fn hold(&mut self, newest: i64) -> Result<Option<Hold>, String> {
        let claim = match self.next()? {
            "-" => return Ok(None),
            claim => u128::from_str_radix(claim, 16).map_err(|_| "its claim is no number")?,
        };
        let missing = || "an instant of its hold is missing".to_owned();
        Ok(Some(Hold {
            claim,
            fence: self.fence(Some(newest))?,
            run: Occurrence::from(self.time()?.ok_or_else(missing)?),
            attempt: self.number()?,
            until: self.until()?.ok_or_else(missing)?,
            at_least_once: self.next()? == "1",
            node: self.rest.to_owned(),
        }))
    }
}

/// How an ending is written.
fn how_letter(how: How) -> &'static str {
    match how {
        How::Finished => "f",
        How::Retried => "t",
        How::Released => "r",
    }
}

fn text<'a>(bytes: &'a [u8], what: &str) -> Result<&'a str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("its {what} is not text"))
}

/// An instant as it is stored: whole milliseconds.
pub(crate) fn ms(at: Time) -> i64 {
    at.timestamp_millis()
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::record::{Again, Unheld};

    fn t(ms: i64) -> Time {
        from_millis(ms).unwrap()
    }

    fn hold(node: &str, trigger: Option<&str>) -> Hold {
        let run = Occurrence { at: t(5_000), trigger: trigger.map(Into::into) };
        let (node, until) = (node.into(), t(9_000));
        Hold { node, claim: u128::MAX, fence: 7, run, attempt: 3, until, at_least_once: true }
    }

    /// Records of every shape that the fields have a place for.
    fn records() -> Vec<Record> {
        let plain = Record {
            definition: "every 60s".into(),
            incarnation: 3,
            edition: 4,
            fence: i64::MAX,
            cursor: Some(Next { at: t(5_000), due_at: t(6_000) }),
            ..blank()
        };
        let mut counters = Counters::default();
        (counters.started, counters.ran, counters.lost) = (u64::MAX, 1, 2);
        vec![
            blank(),
            plain.clone(),
            Record { holds: vec![hold("a node", None)], last: Some(Outcome::Ran), ..plain.clone() },
            Record { holds: vec![hold("", Some("by hand")), hold("b", None)], ..plain.clone() },
            Record { holds: vec![hold("two\nlines", None)], ..plain.clone() },
            Record { version: u64::MAX, kind: "mail {x}".into(), data: vec![0, 255], ..blank() },
            Record {
                last: Some(Outcome::Failed("a b".into())),
                last_started: Some(t(1)),
                ..blank()
            },
            Record { ended: Some(Accepted { fence: 9, how: How::Retried }), ..blank() },
            Record { gone: Some(t(3)), counters, ..blank() },
            Record {
                again: vec![Again { run: t(5).into(), attempts: 2, at: t(6) }],
                triggers: vec![Occurrence { at: t(1), trigger: Some("x".into()) }],
                unheld: Some(Unheld { claim: 1, fence: 2, run: t(3).into(), attempt: 4 }),
                ..plain
            },
        ]
    }

    #[test]
    fn records_come_back_as_they_were() {
        for record in records() {
            for written in [5, 7, i64::MAX] {
                let fields = Fields::of(&record, "token", written);
                assert_eq!(fields.record(), Ok(record.clone()), "{fields:?}");
                assert_eq!(fields.fence(), record.fence);
            }
        }
    }

    #[test]
    fn what_the_instant_decides_is_read_by_the_instant() {
        let hold = Hold { fence: 5_000_001, until: t(65_000), ..hold("n", None) };
        let record = Record { fence: 5_000_001, holds: vec![hold], ..records()[1].clone() };
        let tail = tail(&record, 5_000_001, Some(60_000_000));
        for (written, until) in [(5_000_001, 65_000), (9_999_999, 69_999)] {
            let line = [head("token", written).as_bytes(), &tail].concat();
            let fields = Fields { line, ..Fields::of(&record, "token", 0) };
            let read = fields.record().unwrap();
            assert_eq!((read.fence, read.holds[0].fence), (written, written));
            assert_eq!(read.holds[0].until, t(until));
        }
    }

    #[test]
    fn a_line_that_was_cut_is_no_record() {
        let whole = Fields::of(&records()[1], "token", 5);
        for end in 0..whole.line.len() {
            let cut = Fields { line: whole.line[..end].to_vec(), ..whole.clone() };
            assert!(cut.record().is_err(), "{:?}", String::from_utf8_lossy(&cut.line));
        }
        let newer = Fields { line: b"2 x".to_vec(), ..whole };
        assert!(newer.record().unwrap_err().contains("version"));
    }
}
