//! Records as bytes, for stores that keep them as such.
//!
//! The form is JSON with its version in it: instants are whole milliseconds since 1970, claims are
//! hexadecimal text, data is text where it is UTF-8 and hexadecimal where it is not. What is
//! usually empty is left out. Whatever is not exactly that is an error, never an empty record.

use super::{Accepted, Again, Hold, How, Record, Unheld};
use crate::{
    backend::{Counters, DeadLetter, Next, Occurrence, Outcome, Pause},
    time::{Time, from_millis},
};
use serde::{Deserialize, Serialize};
use std::{error, fmt};

/// The version of the form that [`encode`] writes.
pub const VERSION: u32 = 1;

/// Why bytes are not a record.
#[derive(Debug, PartialEq, Eq)]
pub struct Undecodable {
    why: String,
}

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stored record cannot be read: {}", self.why)
    }
}

impl error::Error for Undecodable {}

/// The record as bytes. Instants are cut to whole milliseconds.
///
/// ```
/// use allora_core::record::{At, codec, create};
/// use allora_core::{backend::NewSchedule, time::from_millis};
///
/// let now = from_millis(1_000).unwrap();
/// let mut slot = None;
/// create(&mut slot, &NewSchedule::new("report", "mail", "every 60s", None), At::new("node", now))?;
/// let record = slot.unwrap();
/// assert_eq!(codec::decode(&codec::encode(&record)), Ok(record));
/// # Ok::<(), allora_core::Error>(())
/// ```
pub fn encode(record: &Record) -> Vec<u8> {
    serde_json::to_vec(&Wire::from(record)).expect("the form has only text keys and finite numbers")
}

/// The record in these bytes.
///
/// # Errors
/// [`Undecodable`] for another version of the form, and for whatever [`encode`] does not write.
pub fn decode(bytes: &[u8]) -> Result<Record, Undecodable> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u32,
    }
    let bad = |why: serde_json::Error| Undecodable { why: why.to_string() };
    let Versioned { v } = serde_json::from_slice(bytes).map_err(bad)?;
    if v != VERSION {
        let why = format!("it has version {v}, and this build reads version {VERSION}; update it");
        return Err(Undecodable { why });
    }
    serde_json::from_slice::<Wire>(bytes).map_err(bad)?.record()
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    v: u32,
    kind: String,
    definition: String,
    version: u64,
    incarnation: i64,
    edition: i64,
    fence: i64,
    #[serde(default, skip_serializing_if = "WireData::is_empty")]
    data: WireData,
    cursor: Option<(i64, i64)>,
    last_started: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unheld: Option<WireUnheld>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    holds: Vec<WireHold>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    again: Vec<WireAgain>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    triggers: Vec<WireRun>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dead: Vec<WireLetter>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<WirePause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gone: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<(i64, WireHow)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<(String, String)>,
    counters: WireCounters,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum WireData {
    Text(String),
    Hex { hex: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRun {
    at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trigger: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireHold {
    node: String,
    claim: String,
    fence: i64,
    run: WireRun,
    attempt: u32,
    until: i64,
    at_least_once: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireUnheld {
    claim: String,
    fence: i64,
    run: WireRun,
    attempt: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireAgain {
    run: WireRun,
    attempts: u32,
    at: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireLetter {
    run: WireRun,
    attempts: u32,
    at: i64,
    error: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePause {
    since: i64,
    note: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireHow {
    Finished,
    Retried,
    Released,
}

#[derive(Serialize, Deserialize, Default, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct WireCounters {
    started: u64,
    ran: u64,
    failed: u64,
    cancelled: u64,
    skipped: u64,
    missed: u64,
    lost: u64,
    abandoned: u64,
}

impl From<&Record> for Wire {
    fn from(record: &Record) -> Self {
        Self {
            v: VERSION,
            kind: record.kind.clone(),
            definition: record.definition.clone(),
            version: record.version,
            incarnation: record.incarnation,
            edition: record.edition,
            fence: record.fence,
            data: WireData::from(&record.data[..]),
            cursor: record.cursor.map(|next| (ms(next.at), ms(next.due_at))),
            last_started: record.last_started.map(ms),
            unheld: record.unheld.as_ref().map(WireUnheld::from),
            holds: record.holds.iter().map(WireHold::from).collect(),
            again: record.again.iter().map(WireAgain::from).collect(),
            triggers: record.triggers.iter().map(WireRun::from).collect(),
            dead: record.dead.iter().map(WireLetter::from).collect(),
            paused: record
                .paused
                .as_ref()
                .map(|pause| WirePause { since: ms(pause.since), note: pause.note.clone() }),
            gone: record.gone.map(ms),
            ended: record.ended.map(|ended| (ended.fence, WireHow::from(ended.how))),
            last: record.last.as_ref().map(|last| (last.word().into(), last.error().into())),
            counters: WireCounters::from(record.counters),
        }
    }
}

impl Wire {
    fn record(self) -> Result<Record, Undecodable> {
        let next = |(at, due_at)| Ok(Next { at: time(at)?, due_at: time(due_at)? });
        let pause = |pause: WirePause| Ok(Pause { since: time(pause.since)?, note: pause.note });
        Ok(Record {
            kind: self.kind,
            definition: self.definition,
            version: self.version,
            incarnation: self.incarnation,
            edition: self.edition,
            data: self.data.bytes()?,
            cursor: self.cursor.map(next).transpose()?,
            last_started: self.last_started.map(time).transpose()?,
            fence: self.fence,
            unheld: self.unheld.map(WireUnheld::unheld).transpose()?,
            holds: all(self.holds, WireHold::hold)?,
            again: all(self.again, WireAgain::again)?,
            triggers: all(self.triggers, WireRun::run)?,
            dead: all(self.dead, WireLetter::letter)?,
            paused: self.paused.map(pause).transpose()?,
            gone: self.gone.map(time).transpose()?,
            ended: self.ended.map(|(fence, how)| Accepted { fence, how: how.into() }),
            last: self.last.map(|(word, error)| outcome(&word, &error)).transpose()?,
            counters: self.counters.into(),
        })
    }
}

impl Default for WireData {
    fn default() -> Self {
        WireData::Text(String::new())
    }
}

impl From<&[u8]> for WireData {
    fn from(data: &[u8]) -> Self {
        match std::str::from_utf8(data) {
            Ok(text) => WireData::Text(text.to_owned()),
            Err(_) => WireData::Hex { hex: data.iter().map(|b| format!("{b:02x}")).collect() },
        }
    }
}

impl WireData {
    fn is_empty(&self) -> bool {
        matches!(self, WireData::Text(text) if text.is_empty())
    }

    fn bytes(self) -> Result<Vec<u8>, Undecodable> {
        let hex = match self {
            WireData::Text(text) => return Ok(text.into_bytes()),
            WireData::Hex { hex } => hex,
        };
        let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
        let pairs = hex.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> = pairs
            .map(|pair| match pair {
                [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
                _ => None,
            })
            .collect();
        bytes.ok_or_else(|| wrong("its data is not hexadecimal"))
    }
}

impl From<&Occurrence> for WireRun {
    fn from(run: &Occurrence) -> Self {
        Self { at: ms(run.at), trigger: run.trigger.clone() }
    }
}

impl WireRun {
    fn run(self) -> Result<Occurrence, Undecodable> {
        Ok(Occurrence { at: time(self.at)?, trigger: self.trigger })
    }
}

impl From<&Hold> for WireHold {
    fn from(hold: &Hold) -> Self {
        Self {
            node: hold.node.clone(),
            claim: claim_text(hold.claim),
            fence: hold.fence,
            run: WireRun::from(&hold.run),
            attempt: hold.attempt,
            until: ms(hold.until),
            at_least_once: hold.at_least_once,
        }
    }
}

impl WireHold {
    fn hold(self) -> Result<Hold, Undecodable> {
        Ok(Hold {
            node: self.node,
            claim: claim(&self.claim)?,
            fence: self.fence,
            run: self.run.run()?,
            attempt: self.attempt,
            until: time(self.until)?,
            at_least_once: self.at_least_once,
        })
    }
}

impl From<&Unheld> for WireUnheld {
    fn from(last: &Unheld) -> Self {
        Self {
            claim: claim_text(last.claim),
            fence: last.fence,
            run: WireRun::from(&last.run),
            attempt: last.attempt,
        }
    }
}

impl WireUnheld {
    fn unheld(self) -> Result<Unheld, Undecodable> {
        let (claim, run) = (claim(&self.claim)?, self.run.run()?);
        Ok(Unheld { claim, fence: self.fence, run, attempt: self.attempt })
    }
}

impl From<&Again> for WireAgain {
    fn from(again: &Again) -> Self {
        Self { run: WireRun::from(&again.run), attempts: again.attempts, at: ms(again.at) }
    }
}

impl WireAgain {
    fn again(self) -> Result<Again, Undecodable> {
        Ok(Again { run: self.run.run()?, attempts: self.attempts, at: time(self.at)? })
    }
}

impl From<&DeadLetter> for WireLetter {
    fn from(letter: &DeadLetter) -> Self {
        let DeadLetter { run, attempts, at, error } = letter;
        let (run, at) = (WireRun::from(run), ms(*at));
        Self { run, attempts: *attempts, at, error: error.clone() }
    }
}

impl WireLetter {
    fn letter(self) -> Result<DeadLetter, Undecodable> {
        let Self { run, attempts, at, error } = self;
        Ok(DeadLetter { run: run.run()?, attempts, at: time(at)?, error })
    }
}

impl From<How> for WireHow {
    fn from(how: How) -> Self {
        match how {
            How::Finished => WireHow::Finished,
            How::Retried => WireHow::Retried,
            How::Released => WireHow::Released,
        }
    }
}

impl From<WireHow> for How {
    fn from(how: WireHow) -> Self {
        match how {
            WireHow::Finished => How::Finished,
            WireHow::Retried => How::Retried,
            WireHow::Released => How::Released,
        }
    }
}

impl From<Counters> for WireCounters {
    fn from(from: Counters) -> Self {
        let Counters { started, ran, failed, cancelled, skipped, missed, lost, abandoned } = from;
        Self { started, ran, failed, cancelled, skipped, missed, lost, abandoned }
    }
}

impl From<WireCounters> for Counters {
    fn from(from: WireCounters) -> Self {
        let WireCounters { started, ran, failed, cancelled, skipped, missed, lost, abandoned } =
            from;
        Self { started, ran, failed, cancelled, skipped, missed, lost, abandoned }
    }
}

fn all<W, T>(
    parts: Vec<W>,
    part: impl Fn(W) -> Result<T, Undecodable>,
) -> Result<Vec<T>, Undecodable> {
    parts.into_iter().map(part).collect()
}

fn ms(at: Time) -> i64 {
    at.timestamp_millis()
}

fn time(ms: i64) -> Result<Time, Undecodable> {
    from_millis(ms).ok_or_else(|| wrong(&format!("the instant {ms} ms is not in 1970 to 9999")))
}

fn outcome(word: &str, error: &str) -> Result<Outcome, Undecodable> {
    Outcome::from_word(word, error).ok_or_else(|| wrong(&format!("no outcome is {word:?}")))
}

fn claim_text(claim: u128) -> String {
    format!("{claim:032x}")
}

fn claim(text: &str) -> Result<u128, Undecodable> {
    let plain = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let claim = plain.then(|| u128::from_str_radix(text, 16).ok()).flatten();
    claim.ok_or_else(|| wrong("a claim is not 32 hexadecimal digits"))
}

fn wrong(why: &str) -> Undecodable {
    Undecodable { why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::end_of_time;

    fn full() -> Record {
        let at = |ms| from_millis(ms).unwrap();
        let run = Occurrence { at: at(7), trigger: Some("by \"hand\"\n".into()) };
        let hold = Hold {
            node: "n1".into(),
            claim: u128::MAX - 1,
            fence: i64::MAX,
            run: at(5).into(),
            attempt: u32::MAX,
            until: end_of_time(),
            at_least_once: true,
        };
        Record {
            kind: "mail".into(),
            definition: "ev\0ery 🧾".into(),
            version: u64::MAX,
            incarnation: -1,
            edition: 3,
            data: vec![0, 255, 7],
            cursor: Some(Next { at: at(5), due_at: end_of_time() }),
            last_started: Some(at(0)),
            fence: i64::MAX,
            unheld: Some(Unheld { claim: 0, fence: 2, run: run.clone(), attempt: 1 }),
            holds: vec![hold.clone(), Hold { at_least_once: false, run: run.clone(), ..hold }],
            again: vec![Again { run: run.clone(), attempts: 3, at: at(9) }],
            triggers: vec![run.clone()],
            dead: vec![DeadLetter { run, attempts: 5, at: at(8), error: "gone\n".into() }],
            paused: Some(Pause { since: at(1), note: String::new() }),
            gone: Some(at(2)),
            ended: Some(Accepted { fence: 1, how: How::Retried }),
            last: Some(Outcome::Failed("boom".into())),
            counters: Counters { started: u64::MAX, lost: 4, ..Counters::default() },
        }
    }

    fn bare() -> Record {
        Record {
            kind: String::new(),
            data: b"{\"k\": 1}".to_vec(),
            cursor: None,
            last_started: None,
            unheld: None,
            holds: Vec::new(),
            again: Vec::new(),
            triggers: Vec::new(),
            dead: Vec::new(),
            paused: None,
            gone: None,
            ended: None,
            last: None,
            counters: Counters::default(),
            ..full()
        }
    }

    #[test]
    fn every_part_survives() {
        for record in [full(), bare(), Record { data: Vec::new(), ..bare() }] {
            assert_eq!(decode(&encode(&record)), Ok(record));
        }
        for how in [How::Finished, How::Retried, How::Released] {
            let record = Record { ended: Some(Accepted { fence: 9, how }), ..bare() };
            assert_eq!(decode(&encode(&record)), Ok(record));
        }
    }

    #[test]
    fn every_outcome_survives() {
        let error = || "e".to_owned();
        for last in [
            Outcome::Running,
            Outcome::Ran,
            Outcome::Failed(error()),
            Outcome::Dead(error()),
            Outcome::Cancelled,
            Outcome::Released,
            Outcome::Skipped,
            Outcome::Missed,
            Outcome::Lost,
            Outcome::Abandoned,
        ] {
            let record = Record { last: Some(last), ..bare() };
            assert_eq!(decode(&encode(&record)), Ok(record));
        }
    }

    /// The first released form: bytes that stores hold must be readable for ever.
    #[test]
    fn what_the_first_release_wrote_is_read() {
        let first = concat!(
            r#"{"v":1,"kind":"mail","definition":"d","version":2,"incarnation":3,"edition":4,"#,
            r#""fence":5,"data":"x","cursor":[6,7],"last_started":null,"triggers":[{"at":8,"#,
            r#""trigger":"t"}],"ended":[5,"finished"],"last":["dead","why"],"#,
            r#""counters":{"started":1,"ran":0,"failed":1,"cancelled":0,"skipped":0,"missed":0,"#,
            r#""lost":0,"abandoned":0}}"#
        );
        let record = decode(first.as_bytes()).unwrap();
        assert_eq!(record.last, Some(Outcome::Dead("why".into())));
        assert_eq!(String::from_utf8(encode(&record)).unwrap(), first);
    }

    #[test]
    fn a_newer_form_is_refused_by_both_versions() {
        let newer = decode(br#"{"v":2,"shape":"unknown"}"#).unwrap_err().to_string();
        assert!(newer.contains("version 2") && newer.contains("version 1"), "{newer}");
    }

    #[test]
    fn garbage_is_an_error_and_never_an_empty_record() {
        let good = String::from_utf8(encode(&full())).unwrap();
        for garbage in ["", "{}", "null", "[]", "{\"v\":1}", "\u{0}", "{\"v\":1e400}"] {
            assert!(decode(garbage.as_bytes()).is_err(), "{garbage:?}");
        }
        for (from, to) in [
            ("\"fence\":", "\"hence\":"),
            ("[5,253402300799999]", "[5,253402300800000]"),
            ("[5,253402300799999]", "[-1,5]"),
            ("00ff07", "00ff0"),
            ("00ff07", "00fg07"),
            ("fffffffffffffffffffffffffffffffe", "+ffffffffffffffffffffffffffffffe"),
            ("\"failed\",\"boom\"", "\"exploded\",\"boom\""),
            ("retried", "tired"),
        ] {
            assert!(good.contains(from), "{from}");
            assert!(decode(good.replacen(from, to, 1).as_bytes()).is_err(), "{from} -> {to}");
        }
        for end in 0..good.len() {
            assert!(decode(&good.as_bytes()[..end]).is_err(), "cut at {end}");
        }
    }
}
