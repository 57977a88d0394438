//! A record as the columns of its row: numbers that every claim and completion touches have columns
//! of their own, rare parts share one column, and the data is in a table of its own.

use crate::driver::{Row, Type, Value};
use allora_core::{
    Occurrence, Time,
    backend::{Counters, HistoryEntry, Lease, NextRun, NotRunReason, OnExpiry, Outcome, Sharing},
    record::{Accepted, How, MAX_FENCE, Record, TOMBSTONE, codec},
    time::{from_millis, saturating_add},
};
use std::string::FromUtf8Error;

/// The columns of the job table, in the order of every statement. The first is the key. Those that
/// are needed even where the rest cannot be read come first.
pub(crate) const JOB: &[(&str, Type)] = &[
    ("name", Type::Name),
    // Compared by every commit; each write adds 1.
    ("version", Type::Int),
    ("fence", Type::Int),
    ("index_at", Type::IntOrNull),
    // The key of the data in its table; NULL if there is none.
    ("data_generation", Type::IntOrNull),
    ("kind", Type::Name),
    ("definition", Type::Bytes),
    ("definition_version", Type::Int),
    ("incarnation", Type::Int),
    ("generation", Type::Int),
    ("cursor_scheduled_at", Type::IntOrNull),
    ("cursor_due_at", Type::IntOrNull),
    ("last_started", Type::IntOrNull),
    ("lease_node", Type::BytesOrNull),
    ("lease_claim_id", Type::BytesOrNull),
    ("lease_fence", Type::IntOrNull),
    ("lease_scheduled_at", Type::IntOrNull),
    ("lease_attempt", Type::IntOrNull),
    ("lease_due_at", Type::IntOrNull),
    ("lease_started_at", Type::IntOrNull),
    ("lease_until", Type::IntOrNull),
    // 0: lost, 1: retry, 2: lost, and other runs may be active beside it.
    ("lease_on_expiry", Type::IntOrNull),
    ("ended_fence", Type::IntOrNull),
    // 0: completed, 1: retried, 2: released.
    ("ended_how", Type::IntOrNull),
    ("last_outcome", Type::BytesOrNull),
    ("last_error", Type::BytesOrNull),
    ("started", Type::Int),
    ("succeeded", Type::Int),
    ("failed", Type::Int),
    ("cancelled", Type::Int),
    ("skipped", Type::Int),
    ("missed", Type::Int),
    ("lost", Type::Int),
    ("expired", Type::Int),
    ("deleted_at", Type::IntOrNull),
    ("more", Type::BytesOrNull),
];

/// The columns of the history table. The first two are the key.
pub(crate) const HISTORY: &[(&str, Type)] = &[
    ("fence", Type::Int),
    ("name", Type::Name),
    ("kind", Type::Bytes),
    ("scheduled_at", Type::Int),
    ("trigger_id", Type::BytesOrNull),
    ("last_scheduled_at", Type::IntOrNull),
    ("occurrences", Type::IntOrNull),
    ("due_at", Type::IntOrNull),
    ("attempt", Type::Int),
    ("node", Type::Bytes),
    ("started_at", Type::IntOrNull),
    ("ended_at", Type::IntOrNull),
    ("outcome", Type::Bytes),
    ("error", Type::BytesOrNull),
    ("reason", Type::BytesOrNull),
    ("output", Type::BytesOrNull),
];

/// The columns of the data table. The first two are the key.
pub(crate) const DATA: &[(&str, Type)] =
    &[("name", Type::Name), ("generation", Type::Int), ("data", Type::Bytes)];

/// The most bytes of a column that are read.
pub(crate) const LONGEST: usize = 8 << 20;

/// A fence that was read, if allora can have written it.
pub(crate) fn plausible(fence: i64) -> Option<i64> {
    (0..=MAX_FENCE).contains(&fence).then_some(fence)
}

/// The kind of tombstones in the due index. No kind is equal to it, because it is not UTF-8.
pub(crate) const DELETED: &[u8] = &[0xFF];

/// The record's row.
pub(crate) fn columns(
    name: &str,
    record: &Record,
    version: i64,
    data_generation: Option<i64>,
) -> Vec<Value> {
    // The lease of a trigger's run does not fit into the columns. That of a run to be cancelled stays
    // out of them, so that no single statement extends or completes it.
    let inline = record.leases.first();
    let inline =
        inline.filter(|lease| lease.occurrence.trigger.is_none() && !lease.cancel_requested);
    let ended = record.ended;
    let Counters { started, succeeded, failed, cancelled, skipped, missed, lost, expired, .. } =
        record.counters;
    let last = record.last.as_ref();
    vec![
        Value::bytes(name),
        Value::int(version),
        Value::int(record.fence),
        Value::Int(index_at(record).map(ms)),
        Value::Int(data_generation),
        match record.deleted_at {
            None => Value::bytes(&record.kind),
            Some(_) => Value::bytes(DELETED),
        },
        Value::bytes(&record.definition),
        Value::bits(record.version),
        Value::int(record.incarnation),
        Value::int(record.generation),
        Value::Int(record.cursor.map(|next| ms(next.scheduled_at))),
        Value::Int(record.cursor.map(|next| ms(next.due_at))),
        Value::Int(record.last_started.map(ms)),
        Value::Bytes(inline.map(|lease| lease.node.clone().into_bytes())),
        Value::Bytes(inline.map(|lease| lease.claim_id.to_be_bytes().to_vec())),
        Value::Int(inline.map(|lease| lease.fence)),
        Value::Int(inline.map(|lease| ms(lease.occurrence.scheduled_at))),
        Value::Int(inline.map(|lease| lease.attempt.into())),
        Value::Int(inline.map(|lease| ms(lease.due_at))),
        Value::Int(inline.map(|lease| ms(lease.started_at))),
        Value::Int(inline.map(|lease| ms(lease.until))),
        Value::Int(inline.map(|lease| expiry_number(lease.on_expiry, lease.sharing))),
        Value::Int(ended.map(|ended| ended.fence)),
        Value::Int(ended.map(|ended| how_number(ended.how))),
        Value::Bytes(last.map(|last| last.word().into())),
        Value::Bytes(last.map(Outcome::error).filter(|e| !e.is_empty()).map(Into::into)),
        Value::bits(started),
        Value::bits(succeeded),
        Value::bits(failed),
        Value::bits(cancelled),
        Value::bits(skipped),
        Value::bits(missed),
        Value::bits(lost),
        Value::bits(expired),
        Value::Int(record.deleted_at.map(ms)),
        Value::Bytes(more(record, usize::from(inline.is_some()))),
    ]
}

/// The time under which the index lists the row: as work, or, of a tombstone, to be purged.
fn index_at(record: &Record) -> Option<Time> {
    match record.deleted_at {
        Some(deleted_at) => Some(saturating_add(deleted_at, TOMBSTONE)),
        None => record.index_at(),
    }
}

/// The parts without columns of their own, as a record in which everything else is empty.
fn more(record: &Record, inline: usize) -> Option<Vec<u8>> {
    let leases = record.leases.get(inline..).unwrap_or_default();
    let rare = !leases.is_empty()
        || !record.lost.is_empty()
        || !record.retries.is_empty()
        || !record.triggers.is_empty()
        || !record.waiters.is_empty()
        || !record.dead.is_empty()
        || record.paused.is_some();
    rare.then(|| {
        codec::encode(&Record {
            leases: leases.to_vec(),
            lost: record.lost.clone(),
            retries: record.retries.clone(),
            triggers: record.triggers.clone(),
            waiters: record.waiters.clone(),
            dead: record.dead.clone(),
            paused: record.paused.clone(),
            ..Record::default()
        })
    })
}

/// A row as it was read.
#[derive(Debug)]
pub(crate) struct StoredRow {
    pub(crate) name: String,
    pub(crate) version: i64,
    /// The fence column: valid also where the rest is not.
    pub(crate) fence: i64,
    /// The place in the due index.
    pub(crate) index_at: Option<Time>,
    pub(crate) data_generation: Option<i64>,
    /// The record, or the reason why it cannot be read.
    pub(crate) record: Result<Record, String>,
}

impl StoredRow {
    /// The time in the due index; `None` if the record is not in it. A record that cannot be read
    /// stays in it for the nodes that can.
    pub(crate) fn due_at(&self) -> Option<Time> {
        match &self.record {
            Ok(record) => record.index_at(),
            Err(_) => self.index_at.or(Some(Time::UNIX_EPOCH)),
        }
    }
}

/// Reads the columns of [`JOB`], and the data after them if they were selected; `None` for a row of
/// NULLs, which an outer join returns where it found nothing.
pub(crate) fn stored(row: Row) -> Option<StoredRow> {
    let with_data = row.len() > JOB.len();
    let mut cells = Cells { cells: row.into_iter() };
    let name = cells.bytes()?;
    let version = cells.int_or_null().unwrap_or_default();
    let fence = cells.int_or_null().unwrap_or_default();
    let index_at = cells.time().ok().flatten();
    let data_generation = cells.int_or_null();
    let record = match plausible(fence) {
        Some(fence) => cells.record(fence, data_generation.filter(|_| with_data).is_some()),
        None => Err(format!(
            "its fence {fence} is not one that allora gives: delete it, or restore its row"
        )),
    };
    // The fences of a later record of this name begin again.
    let fence = plausible(fence).unwrap_or_default();
    let name = String::from_utf8_lossy(&name).into_owned();
    Some(StoredRow { name, version, fence, index_at, data_generation, record })
}

struct Cells {
    cells: std::vec::IntoIter<Value>,
}

impl Cells {
    fn record(&mut self, fence: i64, has_data: bool) -> Result<Record, String> {
        let kind = match self.bytes() {
            Some(deleted) if deleted == DELETED => String::new(),
            kind => text("kind", kind)?,
        };
        let definition = self.text("definition")?;
        let version = self.bits()?;
        let incarnation = self.int()?;
        let generation = self.int()?;
        let cursor = next(self.int_or_null(), self.int_or_null())?;
        let last_started = self.time()?;
        let inline = self.lease()?;
        let ended = ended(self.int_or_null(), self.int_or_null())?;
        let last = last(self.bytes(), self.bytes())?;
        let mut counters = Counters::default();
        for counter in [
            &mut counters.started,
            &mut counters.succeeded,
            &mut counters.failed,
            &mut counters.cancelled,
            &mut counters.skipped,
            &mut counters.missed,
            &mut counters.lost,
            &mut counters.expired,
        ] {
            *counter = self.bits()?;
        }
        let deleted_at = self.time()?;
        let more = match self.bytes() {
            None => Record::default(),
            Some(more) if more.is_empty() => {
                return Err(too_long("its retries and dead letters are"));
            }
            Some(more) => codec::decode(&more).map_err(|why| why.to_string())?,
        };
        let data = self.bytes();
        if has_data && data.is_none() {
            return Err(too_long("its data is missing, or"));
        }
        let record = Record {
            kind,
            definition,
            version,
            incarnation,
            generation,
            data: data.unwrap_or_default(),
            cursor,
            last_started,
            fence,
            leases: inline.into_iter().chain(more.leases).collect(),
            lost: more.lost,
            retries: more.retries,
            triggers: more.triggers,
            waiters: more.waiters,
            dead: more.dead,
            paused: more.paused,
            deleted_at,
            ended,
            last,
            counters,
        };
        record.checked()
    }

    fn lease(&mut self) -> Result<Option<Lease>, String> {
        let (node, claim_id) = (self.bytes(), self.bytes());
        let (fence, scheduled_at, attempt) = (self.int_or_null(), self.time()?, self.int_or_null());
        let (due_at, started_at) = (self.time()?, self.time()?);
        let (until, on_expiry) = (self.time()?, self.int_or_null());
        let Some(fence) = fence else { return Ok(None) };
        let lease = || {
            let node = String::from_utf8(node?).ok()?;
            let claim_id = u128::from_be_bytes(claim_id?.try_into().ok()?);
            let (on_expiry, sharing) = match on_expiry? {
                0 => (OnExpiry::Lost, Sharing::Exclusive),
                1 => (OnExpiry::Retry, Sharing::Exclusive),
                2 => (OnExpiry::Lost, Sharing::Shared),
                _ => return None,
            };
            let occurrence = Occurrence::from(scheduled_at?);
            let lease = Lease::new(node, claim_id, fence, occurrence, until?, on_expiry);
            let lease = lease.sharing(sharing);
            Some(lease.attempt(attempt?.try_into().ok()?).claimed_at(due_at?, started_at?))
        };
        lease().map(Some).ok_or_else(|| "the columns of its lease do not match".to_owned())
    }

    fn int(&mut self) -> Result<i64, String> {
        self.int_or_null().ok_or_else(|| "a number is missing".to_owned())
    }

    fn int_or_null(&mut self) -> Option<i64> {
        self.cells.next().and_then(Value::into_int)
    }

    fn bits(&mut self) -> Result<u64, String> {
        self.int().map(i64::cast_unsigned)
    }

    fn time(&mut self) -> Result<Option<Time>, String> {
        self.int_or_null().map(time).transpose()
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        self.cells.next().and_then(Value::into_bytes)
    }

    fn text_or_null(&mut self) -> Result<Option<String>, FromUtf8Error> {
        self.bytes().map(String::from_utf8).transpose()
    }

    fn text(&mut self, what: &str) -> Result<String, String> {
        text(what, self.bytes())
    }
}

/// The reason of a value that was not read because of its size.
fn too_long(what: &str) -> String {
    let mib = LONGEST >> 20;
    format!("{what} longer than {mib} MiB: delete it, or restore its row")
}

fn text(what: &str, bytes: Option<Vec<u8>>) -> Result<String, String> {
    let bytes = bytes.ok_or_else(|| too_long(&format!("its {what} is missing, or")))?;
    String::from_utf8(bytes).map_err(|_| format!("its {what} is not text"))
}

fn next(scheduled_at: Option<i64>, due_at: Option<i64>) -> Result<Option<NextRun>, String> {
    match (scheduled_at, due_at) {
        (None, None) => Ok(None),
        (Some(scheduled_at), Some(due_at)) => {
            Ok(Some(NextRun { scheduled_at: time(scheduled_at)?, due_at: time(due_at)? }))
        }
        _ => Err("one of the two columns of its cursor is missing".to_owned()),
    }
}

fn ended(fence: Option<i64>, how: Option<i64>) -> Result<Option<Accepted>, String> {
    let Some(fence) = fence else { return Ok(None) };
    let how = match how {
        Some(0) => How::Completed,
        Some(1) => How::Retried,
        Some(2) => How::Released,
        _ => return Err("the column ended_how has an unknown number".to_owned()),
    };
    Ok(Some(Accepted { fence, how }))
}

/// The number in the column `lease_on_expiry`.
pub(crate) fn expiry_number(on_expiry: OnExpiry, sharing: Sharing) -> i64 {
    match (on_expiry, sharing) {
        (OnExpiry::Lost, Sharing::Exclusive) => 0,
        (OnExpiry::Retry, _) => 1,
        (OnExpiry::Lost, Sharing::Shared) => 2,
    }
}

/// The number of an end in its column. [`How::Completed`] is 0 also in the statements.
fn how_number(how: How) -> i64 {
    match how {
        How::Completed => 0,
        How::Retried => 1,
        How::Released => 2,
    }
}

/// An outcome from its word and its error.
fn last(word: Option<Vec<u8>>, error: Option<Vec<u8>>) -> Result<Option<Outcome>, String> {
    let Some(word) = word else { return Ok(None) };
    let error = error.unwrap_or_default();
    let known =
        Outcome::from_word(&String::from_utf8_lossy(&word), &String::from_utf8_lossy(&error));
    known.map(Some).ok_or_else(|| "the outcome of its last run is an unknown word".to_owned())
}

/// The row of a history entry.
pub(crate) fn history_columns(entry: &HistoryEntry) -> Vec<Value> {
    vec![
        Value::int(entry.fence),
        Value::bytes(&entry.name),
        Value::bytes(&entry.kind),
        Value::int(ms(entry.occurrence.scheduled_at)),
        Value::Bytes(entry.occurrence.trigger.clone().map(String::into_bytes)),
        Value::Int(entry.last.map(ms)),
        Value::Int(entry.count.map(u64::cast_signed)),
        Value::Int(entry.due_at.map(ms)),
        Value::int(entry.attempt.into()),
        Value::bytes(&entry.node),
        Value::Int(entry.started_at.map(ms)),
        Value::Int(entry.ended_at.map(ms)),
        Value::bytes(entry.outcome.word()),
        Value::bytes(entry.outcome.error()),
        Value::Bytes(entry.reason.map(|reason| reason.word().into())),
        Value::Bytes(entry.output.clone().map(String::into_bytes)),
    ]
}

/// The entry of a history row; `None` if it cannot be read.
pub(crate) fn history_entry(row: Row) -> Option<HistoryEntry> {
    let mut cells = Cells { cells: row.into_iter() };
    let fence = cells.int().ok()?;
    let name = cells.text("name").ok()?;
    let kind = cells.text("kind").ok()?;
    let scheduled_at = cells.time().ok()??;
    let trigger = cells.text_or_null().ok()?;
    let last_scheduled_at = cells.time().ok()?;
    let count = cells.int_or_null().map(i64::cast_unsigned);
    let due_at = cells.time().ok()?;
    let attempt = cells.int().ok()?.try_into().ok()?;
    let node = cells.text("node").ok()?;
    let (started_at, ended_at) = (cells.time().ok()?, cells.time().ok()?);
    let outcome = last(cells.bytes(), cells.bytes()).ok()??;
    let reason = match cells.text_or_null().ok()? {
        Some(word) => Some(NotRunReason::from_word(&word)?),
        None => None,
    };
    let output = cells.text_or_null().ok()?;
    let occurrence = Occurrence { scheduled_at, trigger };
    let mut entry = HistoryEntry::new(name, fence, occurrence, outcome);
    (entry.kind, entry.node, entry.attempt) = (kind, node, attempt);
    (entry.last, entry.count, entry.reason) = (last_scheduled_at, count, reason);
    (entry.due_at, entry.started_at, entry.ended_at) = (due_at, started_at, ended_at);
    entry.output = output;
    Some(entry)
}

/// A time as it is stored: whole milliseconds since 1970.
pub(crate) fn ms(at: Time) -> i64 {
    at.timestamp_millis()
}

/// A stored time.
pub(crate) fn time(ms: i64) -> Result<Time, String> {
    from_millis(ms).ok_or_else(|| format!("the time {ms} ms is not in the years 1970 to 9999"))
}
