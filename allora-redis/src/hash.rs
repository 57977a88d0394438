//! A record as the fields of its hash: what every take and finish touches is one line of words,
//! what is rare is one field, and what is large has fields of its own.
//!
//! The line is text, so that an operator can read it, and so that a script can compare it as a
//! whole: it carries a token that no other write has, so equal lines mean that nothing was written
//! in between.

use allora_core::{
    Occurrence, Time,
    backend::{Counters, Next, Outcome},
    record::{Accepted, Hold, How, Record, codec},
    time::from_millis,
};
use std::{fmt::Write, str::FromStr};

/// The version of the line; scripts ask for it too.
const LAYOUT: &str = "1";

/// The fields of a hash, in the order in which scripts read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// One line: `1 TOKEN EDITION INCARNATION FENCE CURSOR DUE LAST_STARTED STARTED RAN LAST
    /// ENDED_FENCE ENDED_HOW RARE HOLD`. `RARE` is `!` where the cold field keeps the scripts from
    /// deciding alone. `HOLD` is `-` or `CLAIM FENCE AT ATTEMPT UNTIL LEASED NODE`.
    pub(crate) hot: Vec<u8>,
    /// What has no place in the line, as a record in which everything else is blank; often empty.
    pub(crate) cold: Vec<u8>,
    pub(crate) kind: Vec<u8>,
    pub(crate) text: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

/// Their names, in the same order.
pub(crate) const NAMES: [&str; 5] = ["hot", "cold", "kind", "text", "data"];

impl Fields {
    pub(crate) fn parts(&self) -> [&[u8]; 5] {
        [&self.hot, &self.cold, &self.kind, &self.text, &self.data]
    }

    /// The fields of a record that this token has written.
    pub(crate) fn of(record: &Record, token: &str) -> Self {
        // A hold of a trigger has no room in the line, nor has one that names no node.
        let fits = |hold: &&Hold| hold.run.trigger.is_none() && !hold.node.contains('\n');
        let inline = record.holds.first().filter(fits);
        Self {
            hot: hot(record, token, inline).into_bytes(),
            cold: cold(record, usize::from(inline.is_some())),
            kind: record.kind.clone().into_bytes(),
            text: record.definition.clone().into_bytes(),
            data: record.data.clone(),
        }
    }

    /// The record, or why nobody can read it.
    pub(crate) fn record(&self) -> Result<Record, String> {
        let line = text(&self.hot, "line")?;
        let mut words = Words { rest: line };
        if words.next()? != LAYOUT {
            return Err("it was written by another version of allora; update this one".to_owned());
        }
        words.next()?;
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
            fence: words.number()?,
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
        words.next()?;
        if let Some(hold) = words.hold()? {
            record.holds.insert(0, hold);
        }
        Ok(record)
    }

    /// The fence, good also where the rest is not.
    pub(crate) fn fence(&self) -> i64 {
        let line = String::from_utf8_lossy(&self.hot);
        line.split(' ').nth(4).and_then(|word| word.parse().ok()).unwrap_or(0)
    }
}

fn hot(record: &Record, token: &str, inline: Option<&Hold>) -> String {
    let Record { edition, incarnation, fence, cursor, last_started, counters, .. } = record;
    let mut line = String::with_capacity(224);
    let mut word = |word: &dyn std::fmt::Display| {
        let space = if line.is_empty() { "" } else { " " };
        let _ = write!(line, "{space}{word}");
    };
    word(&LAYOUT);
    word(&token);
    word(edition);
    word(incarnation);
    word(fence);
    match cursor {
        Some(next) => {
            word(&ms(next.at));
            word(&ms(next.due_at));
        }
        None => {
            word(&"-");
            word(&"-");
        }
    }
    match last_started {
        Some(at) => word(&ms(*at)),
        None => word(&"-"),
    }
    word(&counters.started);
    word(&counters.ran);
    word(&match record.last {
        None => "-",
        Some(Outcome::Ran) => "ran",
        Some(_) => "*",
    });
    match record.ended {
        Some(ended) => {
            word(&ended.fence);
            word(&how_letter(ended.how));
        }
        None => {
            word(&"-");
            word(&"-");
        }
    }
    word(if is_rare(record, usize::from(inline.is_some())) { &"!" } else { &"." });
    match inline {
        Some(hold) => {
            let Hold { claim, fence, run, attempt, until, at_least_once, node } = hold;
            let (at, until, leased) = (ms(run.at), ms(*until), u8::from(*at_least_once));
            word(&format_args!("{claim:032x} {fence} {at} {attempt} {until} {leased} {node}"));
        }
        None => word(&"-"),
    }
    line
}

/// Whether only the pure functions may decide.
fn is_rare(record: &Record, inline: usize) -> bool {
    record.holds.len() > inline
        || !record.again.is_empty()
        || !record.triggers.is_empty()
        || record.unheld.is_some()
        || record.paused.is_some()
        || record.gone.is_some()
}

fn cold(record: &Record, inline: usize) -> Vec<u8> {
    let last = record.last.clone().filter(|last| *last != Outcome::Ran);
    let mut counters = record.counters;
    (counters.started, counters.ran) = (0, 0);
    let holds = record.holds.get(inline..).unwrap_or_default();
    let nothing = !is_rare(record, inline)
        && last.is_none()
        && counters == Counters::default()
        && record.dead.is_empty()
        && record.version == 0;
    if nothing {
        return Vec::new();
    }
    codec::encode(&Record {
        version: record.version,
        unheld: record.unheld.clone(),
        holds: holds.to_vec(),
        again: record.again.clone(),
        triggers: record.triggers.clone(),
        paused: record.paused.clone(),
        gone: record.gone,
        dead: record.dead.clone(),
        last,
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

    fn hold(&mut self) -> Result<Option<Hold>, String> {
        let claim = match self.next()? {
            "-" => return Ok(None),
            claim => u128::from_str_radix(claim, 16).map_err(|_| "its claim is no number")?,
        };
        let missing = || "an instant of its hold is missing".to_owned();
        Ok(Some(Hold {
            claim,
            fence: self.number()?,
            run: Occurrence::from(self.time()?.ok_or_else(missing)?),
            attempt: self.number()?,
            until: self.time()?.ok_or_else(missing)?,
            at_least_once: self.next()? == "1",
            node: self.rest.to_owned(),
        }))
    }
}

/// How an ending is written: [`How::Finished`] is `f` also in the scripts.
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
            let fields = Fields::of(&record, "token");
            assert_eq!(fields.record(), Ok(record.clone()), "{fields:?}");
            assert_eq!(fields.fence(), record.fence);
        }
    }

    #[test]
    fn a_line_that_was_cut_is_no_record() {
        let whole = Fields::of(&records()[1], "token");
        for end in 0..whole.hot.len() {
            let cut = Fields { hot: whole.hot[..end].to_vec(), ..whole.clone() };
            assert!(cut.record().is_err(), "{:?}", String::from_utf8_lossy(&cut.hot));
        }
        let newer = Fields { hot: b"2 x".to_vec(), ..whole };
        assert!(newer.record().unwrap_err().contains("version"));
    }
}
