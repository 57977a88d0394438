//! Records, history entries and changes as bytes, for stores that keep them in this form.
//!
//! The format is JSON with a version: times are whole milliseconds since 1970, claim ids are
//! hexadecimal text, data is text where it is UTF-8 and hexadecimal otherwise. Empty parts are
//! omitted. Any other bytes are an error, never an empty record.

mod chain;
mod change;
mod entry;

pub use change::{decode_change, encode_change};
pub use entry::{decode_entry, encode_entry};

use self::{chain::WireChain, change::WireChange};
use super::{
    Accepted, EndedBy, OccurrenceData, PendingRetry, Record, RememberedTrigger, SavedValue,
};
use crate::{
    backend::{
        Counters, DeadLetter, Lease, NextRun, Occurrence, OnExpiry, Outcome, Pause, Sharing,
        Streak, Waiter,
    },
    name::printable,
    time::{Time, from_millis},
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap, error, fmt, time::Duration};

/// The version of the format that [`encode`] writes.
pub const VERSION: u32 = 1;

/// The reason why bytes are not a record or an entry.
#[derive(Debug, PartialEq, Eq)]
pub struct Unreadable {
    why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stored bytes cannot be read: {}", self.why)
    }
}

impl error::Error for Unreadable {}

/// The record as bytes. Instants are cut to whole milliseconds.
///
/// ```
/// use allora::backend::{Action, NewSchedule, Operation};
/// use allora::record::{HistoryBuffer, OpContext, apply, codec};
/// use allora::time::from_millis;
///
/// let context = OpContext::new("node", from_millis(1_000).unwrap());
/// let create = Action::Create(NewSchedule::new("mail", "every 60s", None));
/// let mut slot = None;
/// apply(&mut slot, &Operation::new("report", create), context, &mut HistoryBuffer::off())?;
/// let record = slot.unwrap();
/// assert_eq!(codec::decode(&codec::encode(&record)), Ok(record));
/// # Ok::<(), allora::Error>(())
/// ```
pub fn encode(record: &Record) -> Vec<u8> {
    serde_json::to_vec(&Wire::from(record)).expect("the form has only text keys and finite numbers")
}

/// The record in these bytes.
///
/// # Errors
/// [`Unreadable`] for another version of the format, and for bytes that [`encode`] does not write.
pub fn decode(bytes: &[u8]) -> Result<Record, Unreadable> {
    read::<Wire>(bytes)?.record()?.checked().map_err(|why| wrong(&why))
}

fn read<'a, W: Deserialize<'a>>(bytes: &'a [u8]) -> Result<W, Unreadable> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u32,
    }
    let bad = |why: serde_json::Error| {
        let why = why.to_string();
        // Without the list of all that this build knows.
        let unknown = why.strip_prefix("unknown ").and_then(|what| what.split_once(", expected"));
        Unreadable {
            why: match unknown {
                Some((what, _)) => {
                    printable(&format!("a newer build wrote the {what}; update this one"))
                }
                None => printable(&why),
            },
        }
    };
    let Versioned { v } = serde_json::from_slice(bytes).map_err(bad)?;
    if v != VERSION {
        let why = format!("it has version {v}, and this build reads version {VERSION}; update it");
        return Err(Unreadable { why });
    }
    serde_json::from_slice(bytes).map_err(bad)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    v: u32,
    kind: Cow<'a, str>,
    definition: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_lease: Option<u64>,
    version: u64,
    incarnation: i64,
    generation: i64,
    fence: i64,
    #[serde(default, skip_serializing_if = "WireData::is_empty")]
    data: WireData<'a>,
    cursor: Option<(i64, i64)>,
    last_started: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    leases: Vec<WireLease<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<WireLease<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    retries: Vec<WireRetry<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    triggers: Vec<WireOccurrence<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    occurrence_data: Vec<WireOccurrenceData<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    remembered: Vec<WireRemembered<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    waiters: Vec<WireWaiter<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dead: Vec<WireLetter<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<WirePause<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleted_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<(i64, WireEndedBy)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<(Cow<'a, str>, Cow<'a, str>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    streak: Option<(u32, Option<i64>, bool)>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    counters: BTreeMap<Cow<'a, str>, u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    changes: Vec<WireChange<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chain: Option<WireChain<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum WireData<'a> {
    Text(Cow<'a, str>),
    Hex { hex: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireOccurrence<'a> {
    scheduled_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trigger: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireLease<'a> {
    node: Cow<'a, str>,
    claim_id: String,
    fence: i64,
    occurrence: WireOccurrence<'a>,
    attempt: u32,
    due_at: i64,
    started_at: i64,
    until: i64,
    on_expiry: WireOnExpiry,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cancel_requested: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replaced_by: Option<i64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    completed: bool,
}

/// The result when the lease ends. `Shared`: lost, and other runs may be active beside this one.

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireOnExpiry {
    Lost,
    Shared,
    Retry,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRetry<'a> {
    occurrence: WireOccurrence<'a>,
    attempts: u32,
    not_before: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireOccurrenceData<'a> {
    occurrence: WireOccurrence<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<WireData<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checkpoint: Option<WireSaved<'a>>,
}

/// The time at which the value was saved, and the value.
#[derive(Serialize, Deserialize)]
struct WireSaved<'a>(i64, WireData<'a>);

/// The time of the occurrence, the end of the retention, the id, and the hash of its data: there may be
/// many of them.
#[derive(Serialize, Deserialize)]
struct WireRemembered<'a>(
    i64,
    i64,
    Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")] Option<u64>,
);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireWaiter<'a> {
    job: Cow<'a, str>,
    due_at: i64,
    since: i64,
    until: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireLetter<'a> {
    occurrence: WireOccurrence<'a>,
    attempts: u32,
    died_at: i64,
    error: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePause<'a> {
    since: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
    note: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireEndedBy {
    Completed,
    Retried,
    Released,
}

impl<'a> From<&'a Record> for Wire<'a> {
    fn from(record: &'a Record) -> Self {
        Self {
            v: VERSION,
            kind: Cow::from(&record.kind),
            definition: Cow::from(&record.definition),
            due_lease: record
                .due_lease
                .map(|lease| lease.as_millis().try_into().unwrap_or(u64::MAX)),
            version: record.version,
            incarnation: record.incarnation,
            generation: record.generation,
            fence: record.fence,
            data: WireData::from(&record.data[..]),
            cursor: record.cursor.map(|next| (ms(next.scheduled_at), ms(next.due_at))),
            last_started: record.last_started.map(ms),
            leases: record.leases.iter().map(WireLease::from).collect(),
            lost: record.lost.iter().map(WireLease::from).collect(),
            retries: record.retries.iter().map(WireRetry::from).collect(),
            triggers: record.triggers.iter().map(WireOccurrence::from).collect(),
            occurrence_data: record.occurrence_data.iter().map(WireOccurrenceData::from).collect(),
            remembered: record.remembered.iter().map(WireRemembered::from).collect(),
            waiters: record.waiters.iter().map(WireWaiter::from).collect(),
            dead: record.dead.iter().map(WireLetter::from).collect(),
            paused: record.paused.as_ref().map(WirePause::from),
            deleted_at: record.deleted_at.map(ms),
            ended: record.ended.map(|ended| (ended.fence, WireEndedBy::from(ended.by))),
            last: record.last.as_ref().map(|last| (last.word().into(), last.error().into())),
            streak: record
                .streak
                .as_ref()
                .map(|streak| (streak.failures, streak.alerted_at.map(ms), streak.has_paused)),
            counters: counters(record.counters),
            changes: record.changes.iter().map(WireChange::from).collect(),
            chain: record.chain.as_deref().map(WireChain::from),
        }
    }
}

impl Wire<'_> {
    fn record(self) -> Result<Record, Unreadable> {
        let next = |(at, due_at)| Ok(NextRun { scheduled_at: time(at)?, due_at: time(due_at)? });
        Ok(Record {
            kind: self.kind.into_owned(),
            definition: self.definition.into_owned(),
            due_lease: self.due_lease.map(Duration::from_millis),
            version: self.version,
            incarnation: self.incarnation,
            generation: self.generation,
            data: self.data.bytes()?,
            cursor: self.cursor.map(next).transpose()?,
            last_started: self.last_started.map(time).transpose()?,
            fence: self.fence,
            leases: all(self.leases, WireLease::lease)?,
            lost: all(self.lost, WireLease::lease)?,
            retries: all(self.retries, WireRetry::retry)?,
            triggers: all(self.triggers, WireOccurrence::occurrence)?,
            occurrence_data: all(self.occurrence_data, WireOccurrenceData::occurrence_data)?,
            remembered: all(self.remembered, WireRemembered::remembered)?,
            waiters: all(self.waiters, WireWaiter::waiter)?,
            dead: all(self.dead, WireLetter::letter)?,
            paused: self.paused.map(WirePause::pause).transpose()?,
            deleted_at: self.deleted_at.map(time).transpose()?,
            ended: self.ended.map(|(fence, by)| Accepted { fence, by: by.into() }),
            last: self.last.map(|(word, error)| outcome(&word, &error)).transpose()?,
            streak: self.streak.map(read_streak).transpose()?,
            counters: read_counters(self.counters)?,
            changes: all(self.changes, WireChange::change)?,
            chain: self.chain.map(WireChain::chain).transpose()?.map(Box::new),
        })
    }
}

impl Default for WireData<'_> {
    fn default() -> Self {
        WireData::Text(Cow::default())
    }
}

impl<'a> From<&'a [u8]> for WireData<'a> {
    fn from(data: &'a [u8]) -> Self {
        match std::str::from_utf8(data) {
            Ok(text) => WireData::Text(text.into()),
            Err(_) => WireData::Hex { hex: data.iter().map(|b| format!("{b:02x}")).collect() },
        }
    }
}

impl WireData<'_> {
    fn is_empty(&self) -> bool {
        matches!(self, WireData::Text(text) if text.is_empty())
    }

    fn bytes(self) -> Result<Vec<u8>, Unreadable> {
        let hex = match self {
            WireData::Text(text) => return Ok(text.into_owned().into_bytes()),
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

impl<'a> From<&'a Occurrence> for WireOccurrence<'a> {
    fn from(run: &'a Occurrence) -> Self {
        Self { scheduled_at: ms(run.scheduled_at), trigger: run.trigger.as_deref().map(Cow::from) }
    }
}

impl WireOccurrence<'_> {
    fn occurrence(self) -> Result<Occurrence, Unreadable> {
        Ok(Occurrence {
            scheduled_at: time(self.scheduled_at)?,
            trigger: self.trigger.map(Cow::into_owned),
        })
    }
}

impl<'a> From<&'a Lease> for WireLease<'a> {
    fn from(lease: &'a Lease) -> Self {
        Self {
            node: Cow::from(&lease.node),
            claim_id: claim_text(lease.claim_id),
            fence: lease.fence,
            occurrence: WireOccurrence::from(&lease.occurrence),
            attempt: lease.attempt,
            due_at: ms(lease.due_at),
            started_at: ms(lease.started_at),
            until: ms(lease.until),
            on_expiry: match (lease.on_expiry, lease.sharing) {
                (OnExpiry::Lost, Sharing::Exclusive) => WireOnExpiry::Lost,
                (OnExpiry::Lost, Sharing::Shared) => WireOnExpiry::Shared,
                (OnExpiry::Retry, _) => WireOnExpiry::Retry,
            },
            cancel_requested: lease.cancel_requested,
            replaced_by: lease.replaced_by.map(ms),
            completed: lease.completed,
        }
    }
}

impl WireLease<'_> {
    fn lease(self) -> Result<Lease, Unreadable> {
        Ok(Lease {
            node: self.node.into_owned(),
            claim_id: claim(&self.claim_id)?,
            fence: self.fence,
            occurrence: self.occurrence.occurrence()?,
            attempt: self.attempt,
            due_at: time(self.due_at)?,
            started_at: time(self.started_at)?,
            until: time(self.until)?,
            on_expiry: match self.on_expiry {
                WireOnExpiry::Lost | WireOnExpiry::Shared => OnExpiry::Lost,
                WireOnExpiry::Retry => OnExpiry::Retry,
            },
            sharing: match self.on_expiry {
                WireOnExpiry::Shared => Sharing::Shared,
                WireOnExpiry::Lost | WireOnExpiry::Retry => Sharing::Exclusive,
            },
            cancel_requested: self.cancel_requested,
            replaced_by: self.replaced_by.map(time).transpose()?,
            completed: self.completed,
        })
    }
}

impl<'a> From<&'a PendingRetry> for WireRetry<'a> {
    fn from(retry: &'a PendingRetry) -> Self {
        let PendingRetry { occurrence, attempts, not_before } = retry;
        let (occurrence, not_before) = (occurrence.into(), ms(*not_before));
        Self { occurrence, attempts: *attempts, not_before }
    }
}

impl WireRetry<'_> {
    fn retry(self) -> Result<PendingRetry, Unreadable> {
        let Self { occurrence, attempts, not_before } = self;
        let occurrence = occurrence.occurrence()?;
        Ok(PendingRetry { occurrence, attempts, not_before: time(not_before)? })
    }
}

impl<'a> From<&'a RememberedTrigger> for WireRemembered<'a> {
    fn from(remembered: &'a RememberedTrigger) -> Self {
        let RememberedTrigger { occurrence, until, data } = remembered;
        let trigger = occurrence.trigger.as_deref().map(Cow::from);
        Self(ms(occurrence.scheduled_at), ms(*until), trigger, *data)
    }
}

impl WireRemembered<'_> {
    fn remembered(self) -> Result<RememberedTrigger, Unreadable> {
        let Self(scheduled_at, until, trigger, data) = self;
        let trigger = trigger.map(Cow::into_owned);
        let occurrence = Occurrence { scheduled_at: time(scheduled_at)?, trigger };
        Ok(RememberedTrigger { occurrence, until: time(until)?, data })
    }
}

impl<'a> From<&'a OccurrenceData> for WireOccurrenceData<'a> {
    fn from(one: &'a OccurrenceData) -> Self {
        Self {
            occurrence: WireOccurrence::from(&one.occurrence),
            data: one.data.as_deref().map(WireData::from),
            checkpoint: one.checkpoint.as_ref().map(WireSaved::from),
        }
    }
}

impl WireOccurrenceData<'_> {
    fn occurrence_data(self) -> Result<OccurrenceData, Unreadable> {
        let Self { occurrence, data, checkpoint } = self;
        Ok(OccurrenceData {
            occurrence: occurrence.occurrence()?,
            data: data.map(WireData::bytes).transpose()?,
            checkpoint: checkpoint.map(WireSaved::saved).transpose()?,
        })
    }
}

impl<'a> From<&'a SavedValue> for WireSaved<'a> {
    fn from(saved: &'a SavedValue) -> Self {
        Self(saved.saved_at.timestamp_millis(), WireData::from(&*saved.value))
    }
}

impl WireSaved<'_> {
    fn saved(self) -> Result<SavedValue, Unreadable> {
        let Self(saved_at, value) = self;
        Ok(SavedValue { saved_at: time(saved_at)?, value: value.bytes()? })
    }
}

impl<'a> From<&'a Waiter> for WireWaiter<'a> {
    fn from(waiter: &'a Waiter) -> Self {
        let Waiter { job, due_at, since, until } = waiter;
        Self { job: Cow::from(job), due_at: ms(*due_at), since: ms(*since), until: ms(*until) }
    }
}

impl WireWaiter<'_> {
    fn waiter(self) -> Result<Waiter, Unreadable> {
        let Self { job, due_at, since, until } = self;
        Ok(Waiter {
            job: job.into_owned(),
            due_at: time(due_at)?,
            since: time(since)?,
            until: time(until)?,
        })
    }
}

impl<'a> From<&'a DeadLetter> for WireLetter<'a> {
    fn from(letter: &'a DeadLetter) -> Self {
        let DeadLetter { occurrence, attempts, died_at, error } = letter;
        let (occurrence, died_at) = (occurrence.into(), ms(*died_at));
        Self { occurrence, attempts: *attempts, died_at, error: Cow::from(error) }
    }
}

impl WireLetter<'_> {
    fn letter(self) -> Result<DeadLetter, Unreadable> {
        let Self { occurrence, attempts, died_at, error } = self;
        let occurrence = occurrence.occurrence()?;
        Ok(DeadLetter { occurrence, attempts, died_at: time(died_at)?, error: error.into_owned() })
    }
}

impl<'a> From<&'a Pause> for WirePause<'a> {
    fn from(pause: &'a Pause) -> Self {
        let Pause { since, until, note } = pause;
        Self { since: ms(*since), until: until.map(ms), note: Cow::from(note) }
    }
}

impl WirePause<'_> {
    fn pause(self) -> Result<Pause, Unreadable> {
        let Self { since, until, note } = self;
        let (since, until) = (time(since)?, until.map(time).transpose()?);
        Ok(Pause { since, until, note: note.into_owned() })
    }
}

impl From<EndedBy> for WireEndedBy {
    fn from(by: EndedBy) -> Self {
        match by {
            EndedBy::Completed => WireEndedBy::Completed,
            EndedBy::Retried => WireEndedBy::Retried,
            EndedBy::Released => WireEndedBy::Released,
        }
    }
}

impl From<WireEndedBy> for EndedBy {
    fn from(by: WireEndedBy) -> Self {
        match by {
            WireEndedBy::Completed => EndedBy::Completed,
            WireEndedBy::Retried => EndedBy::Retried,
            WireEndedBy::Released => EndedBy::Released,
        }
    }
}

fn read_streak(
    (failures, alerted_at, has_paused): (u32, Option<i64>, bool),
) -> Result<Streak, Unreadable> {
    Ok(Streak { failures, alerted_at: alerted_at.map(time).transpose()?, has_paused })
}

/// The counters that are not 0, by name.
fn counters(counters: Counters) -> BTreeMap<Cow<'static, str>, u64> {
    let counted = counters.each().into_iter().filter(|(_, count)| *count > 0);
    counted.map(|(name, count)| (name.into(), count)).collect()
}

fn read_counters(counts: BTreeMap<Cow<'_, str>, u64>) -> Result<Counters, Unreadable> {
    let mut counters = Counters::default();
    for (name, count) in counts {
        let counter = counters.by_name_mut(&name);
        *counter.ok_or_else(|| wrong(&format!("no counter is {name:?}")))? = count;
    }
    Ok(counters)
}

fn all<W, T>(
    parts: Vec<W>,
    part: impl Fn(W) -> Result<T, Unreadable>,
) -> Result<Vec<T>, Unreadable> {
    parts.into_iter().map(part).collect()
}

fn ms(at: Time) -> i64 {
    at.timestamp_millis()
}

fn time(ms: i64) -> Result<Time, Unreadable> {
    from_millis(ms).ok_or_else(|| wrong(&format!("the instant {ms} ms is not in 1970 to 9999")))
}

fn outcome(word: &str, error: &str) -> Result<Outcome, Unreadable> {
    Outcome::from_word(word, error).ok_or_else(|| wrong(&format!("no outcome is {word:?}")))
}

fn claim_text(claim: u128) -> String {
    format!("{claim:032x}")
}

fn claim(text: &str) -> Result<u128, Unreadable> {
    let plain = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let claim = plain.then(|| u128::from_str_radix(text, 16).ok()).flatten();
    claim.ok_or_else(|| wrong("a claim is not 32 hexadecimal digits"))
}

fn wrong(why: &str) -> Unreadable {
    Unreadable { why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{record::MAX_FENCE, time::end_of_time};

    fn full() -> Record {
        let at = |ms| from_millis(ms).unwrap();
        let run = Occurrence { scheduled_at: at(7), trigger: Some("by \"hand\"\n".into()) };
        let lease = Lease {
            node: "n1".into(),
            claim_id: u128::MAX - 1,
            fence: i64::MAX,
            occurrence: at(5).into(),
            attempt: u32::MAX,
            due_at: at(6),
            started_at: at(8),
            until: end_of_time(),
            on_expiry: OnExpiry::Retry,
            sharing: Sharing::Exclusive,
            cancel_requested: true,
            replaced_by: Some(at(9)),
            completed: false,
        };
        let (on_expiry, completed) = (OnExpiry::Lost, true);
        let lost = Lease { on_expiry, completed, occurrence: run.clone(), ..lease.clone() };
        Record {
            kind: "mail".into(),
            definition: "ev\0ery 🧾".into(),
            due_lease: Some(Duration::from_secs(30)),
            version: u64::MAX,
            incarnation: -1,
            generation: 3,
            data: vec![0, 255, 7],
            cursor: Some(NextRun { scheduled_at: at(5), due_at: end_of_time() }),
            last_started: Some(at(0)),
            fence: MAX_FENCE,
            leases: vec![lease, lost.clone()],
            lost: vec![Lease { sharing: Sharing::Shared, ..lost }],
            retries: vec![PendingRetry { occurrence: run.clone(), attempts: 3, not_before: at(9) }],
            triggers: vec![run.clone()],
            occurrence_data: vec![OccurrenceData {
                occurrence: run.clone(),
                data: Some(vec![0, 255]),
                checkpoint: Some(SavedValue { saved_at: at(8), value: b"7".to_vec() }),
            }],
            remembered: vec![RememberedTrigger {
                occurrence: run.clone(),
                until: at(10),
                data: Some(u64::MAX),
            }],
            waiters: vec![Waiter::new("j\0", at(3), at(4), end_of_time())],
            dead: vec![DeadLetter {
                occurrence: run,
                attempts: 5,
                died_at: at(8),
                error: "gone\n".into(),
            }],
            paused: Some(Pause { since: at(1), until: Some(at(3)), note: String::new() }),
            deleted_at: Some(at(2)),
            ended: Some(Accepted { fence: 1, by: EndedBy::Retried }),
            last: Some(Outcome::Failed("boom".into())),
            streak: Some(Streak { failures: 4, alerted_at: Some(at(7)), has_paused: true }),
            counters: Counters { started: u64::MAX, lost: 4, ..Counters::default() },
            changes: change::tests::all(),
            chain: Some(Box::new(chain::tests::full())),
        }
    }

    fn bare() -> Record {
        Record {
            kind: String::new(),
            data: b"{\"k\": 1}".to_vec(),
            cursor: None,
            last_started: None,
            leases: Vec::new(),
            lost: Vec::new(),
            retries: Vec::new(),
            triggers: Vec::new(),
            occurrence_data: Vec::new(),
            remembered: Vec::new(),
            waiters: Vec::new(),
            dead: Vec::new(),
            paused: None,
            deleted_at: None,
            ended: None,
            last: None,
            counters: Counters::default(),
            changes: Vec::new(),
            chain: None,
            ..full()
        }
    }

    #[test]
    fn every_part_survives() {
        for record in [full(), bare(), Record { data: Vec::new(), ..bare() }] {
            assert_eq!(decode(&encode(&record)), Ok(record));
        }
        for by in [EndedBy::Completed, EndedBy::Retried, EndedBy::Released] {
            let record = Record { ended: Some(Accepted { fence: 9, by }), ..bare() };
            assert_eq!(decode(&encode(&record)), Ok(record));
        }
    }

    /// A build that does not know the end of a pause leaves the job to others.
    #[test]
    fn a_pause_without_an_end_is_written_as_before_there_were_ends() {
        let paused = Some(Pause { since: from_millis(1).unwrap(), until: None, note: "n".into() });
        let record = Record { paused, ..bare() };
        let text = String::from_utf8(encode(&record)).unwrap();
        assert!(text.contains(r#""paused":{"since":1,"note":"n"}"#), "{text}");
        assert_eq!(decode(text.as_bytes()), Ok(record));
    }

    #[test]
    fn every_outcome_survives() {
        let error = || "e".to_owned();
        for last in [
            Outcome::Running,
            Outcome::Succeeded,
            Outcome::Failed(error()),
            Outcome::Retried(error()),
            Outcome::Interrupted,
            Outcome::Dead(error()),
            Outcome::Cancelled,
            Outcome::Released,
            Outcome::Skipped,
            Outcome::Missed,
            Outcome::Lost,
            Outcome::Expired,
        ] {
            let record = Record { last: Some(last), ..bare() };
            assert_eq!(decode(&encode(&record)), Ok(record));
        }
    }

    /// The first released format: bytes in stores must stay readable.
    #[test]
    fn what_the_first_release_wrote_is_read() {
        let first = concat!(
            r#"{"v":1,"kind":"mail","definition":"d","version":2,"incarnation":3,"generation":4,"#,
            r#""fence":5,"data":"x","cursor":[6,7],"last_started":null,"leases":[{"node":"n","#,
            r#""claim_id":"0000000000000000000000000000000a","fence":5,"occurrence":{"scheduled_at":6},"#,
            r#""attempt":1,"due_at":7,"started_at":8,"until":9,"on_expiry":"retry"}],"triggers":[{"scheduled_at":8,"#,
            r#""trigger":"t"}],"ended":[5,"completed"],"last":["dead","why"],"#,
            r#""counters":{"failed":1,"started":1}}"#
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
    fn what_a_newer_build_has_added_is_refused_by_its_name_and_never_dropped() {
        let good = String::from_utf8(encode(&full())).unwrap();
        for (known, newer) in [
            ("\"fence\":", "\"shape\":1,\"fence\":"),
            ("\"attempts\":", "\"shape\":1,\"attempts\":"),
        ] {
            let error = decode(good.replacen(known, newer, 1).as_bytes()).unwrap_err().to_string();
            assert!(
                error.ends_with("newer build wrote the field `shape`; update this one"),
                "{error}"
            );
        }
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
            ("4611686018427387903", "4611686018427387904"),
        ] {
            assert!(good.contains(from), "{from}");
            assert!(decode(good.replacen(from, to, 1).as_bytes()).is_err(), "{from} -> {to}");
        }
        for end in 0..good.len() {
            assert!(decode(&good.as_bytes()[..end]).is_err(), "cut at {end}");
        }
    }
}
