//! A record as rows: what claims and completions change is the row of the state table, what they
//! never change that of the job table. Rare parts and the data have tables of their own.
//!
//! In one wide row by name, each claim would copy the definition and compare names. So the state is
//! a narrow row by a 64-bit id, which the nodes remember and the database never gives to another
//! name. A claim does not move its row in the due index: the index has `index_at`, and `wake_at`
//! beside it is the time at which the row is wanted. That is one index entry for each occurrence
//! instead of two.

use crate::driver::{Row, Type, Value};
use allora_core::{
    Occurrence, Time,
    backend::{Counters, HistoryEntry, Lease, NextRun, NotRunReason, OnExpiry, Outcome, Sharing},
    record::{Accepted, Change, EndedBy, MAX_FENCE, Record, TOMBSTONE, codec},
    time::{from_millis, saturating_add},
};
use std::{array, string::FromUtf8Error, time::Duration, vec};

/// The columns of the job table: what claims and completions never change. The first is the key.
pub(crate) const JOB: &[(&str, Type)] = &[
    ("id", Type::Id),
    ("name", Type::Name),
    // The key of the data in its table; NULL if there is none.
    ("data_generation", Type::IntOrNull),
    ("kind", Type::Name),
    ("definition", Type::Bytes),
    ("definition_version", Type::Int),
    ("generation", Type::Int),
    ("deleted_at", Type::IntOrNull),
];

/// The columns of the state table: what claims and completions read and write. The first is the key,
/// the job's.
pub(crate) const STATE: &[(&str, Type)] = &[
    ("id", Type::Int),
    // Compared by every commit; each write adds 1.
    ("version", Type::Int),
    ("fence", Type::Int),
    // The place in the due index, never later than `wake_at`; NULL if the job is not in it.
    ("index_at", Type::IntOrNull),
    // The time at which a node should read the record; later than `index_at` after a claim.
    ("wake_at", Type::IntOrNull),
    ("kind", Type::Name),
    // 0: no other parts, 1: cold parts, 2: others too, or a tombstone.
    ("rare", Type::Int),
    ("incarnation", Type::Int),
    ("cursor_scheduled_at", Type::IntOrNull),
    ("cursor_due_at", Type::IntOrNull),
    ("last_started", Type::IntOrNull),
    // Without a `lease_fence`, the columns of the lease mean nothing: they may be those of a run that has ended.
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
    // NULL is 0: most jobs have none of these.
    ("failed", Type::IntOrNull),
    ("cancelled", Type::IntOrNull),
    ("skipped", Type::IntOrNull),
    ("missed", Type::IntOrNull),
    ("lost", Type::IntOrNull),
    ("expired", Type::IntOrNull),
    // The lease of a claim by a query, in milliseconds; NULL if no query may claim it.
    ("due_lease", Type::IntOrNull),
];

/// The columns of the table of rare parts. The first is the key, the job's.
pub(crate) const RARE: &[(&str, Type)] = &[
    ("id", Type::Int),
    ("more", Type::BytesOrNull),
    // The dead letters and the remembered triggers: neither claims nor queries read them.
    ("cold", Type::BytesOrNull),
];

/// The number of cells of a record without its data: the columns of three tables.
pub(crate) const CELLS: usize = JOB.len() + STATE.len() + RARE.len() - 2;

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
    ("value", Type::BytesOrNull),
    ("is_failure", Type::Int),
];

/// The columns of the table of changes. The first two are the key.
pub(crate) const CHANGE: &[(&str, Type)] =
    &[("fence", Type::Int), ("name", Type::Name), ("entry", Type::Bytes)];

/// The columns of the table of flags, which are its key: a row for each flag of each job.
pub(crate) const FLAG: &[(&str, Type)] = &[("flag", Type::Name), ("name", Type::Name)];

/// The [key](allora_core::backend::Flag::key) of the flag of schedules that have ended.
pub(crate) const ENDED: &str = "ended";

/// The columns of the data table. The first two are the key.
pub(crate) const DATA: &[(&str, Type)] =
    &[("id", Type::Int), ("generation", Type::Int), ("data", Type::Bytes)];

/// The most bytes of a column that are read.
pub(crate) const LONGEST: usize = 8 << 20;

/// A fence that was read, if allora can have written it.
pub(crate) fn plausible(fence: i64) -> Option<i64> {
    (0..=MAX_FENCE).contains(&fence).then_some(fence)
}

/// The kind of tombstones in the due index. No kind is equal to it, because it is not UTF-8.
pub(crate) const DELETED: &[u8] = &[0xFF];

/// The columns of the job table, without the key.
pub(crate) fn job_columns(name: &str, record: &Record, data_generation: Option<i64>) -> Vec<Value> {
    vec![
        Value::bytes(name),
        Value::Int(data_generation),
        kind(record),
        Value::bytes(&record.definition),
        Value::bits(record.version),
        Value::int(record.generation),
        Value::Int(record.deleted_at.map(ms)),
    ]
}

/// True if both records have the same row in the job table, apart from the data's generation.
pub(crate) fn is_same_job(one: &Record, other: &Record) -> bool {
    let fixed = |record: &Record| (record.version, record.generation, record.deleted_at);
    fixed(one) == fixed(other) && one.kind == other.kind && one.definition == other.definition
}

/// The columns of the state table, without the key. `listed_at` is the present place in the due
/// index.
pub(crate) fn state_columns(
    before: Option<&Record>,
    record: &Record,
    version: i64,
    listed_at: Option<i64>,
) -> Vec<Value> {
    let inline = inline(record);
    let ended = record.ended;
    let Counters { started, succeeded, failed, cancelled, skipped, missed, lost, expired, .. } =
        record.counters;
    let last = record.last.as_ref();
    let few = |counter: u64| Value::Int((counter > 0).then_some(counter.cast_signed()));
    let wake_at = wake_at(record).map(ms);
    let is_claim = before.is_some_and(|before| {
        record.leases.iter().any(|lease| before.leases.iter().all(|old| old.fence != lease.fence))
    });
    // A claim does not move it.
    let stays = |at: &i64| is_claim && Some(*at) <= wake_at;
    let index_at = wake_at.map(|wake_at| listed_at.filter(stays).unwrap_or(wake_at));
    vec![
        Value::int(version),
        Value::int(record.fence),
        Value::Int(index_at),
        Value::Int(wake_at),
        kind(record),
        Value::int(rarity(record)),
        Value::int(record.incarnation),
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
        Value::Int(ended.map(|ended| ended_by_number(ended.by))),
        Value::Bytes(last.map(|last| last.word().into())),
        Value::Bytes(last.map(Outcome::error).filter(|e| !e.is_empty()).map(Into::into)),
        Value::bits(started),
        Value::bits(succeeded),
        few(failed),
        few(cancelled),
        few(skipped),
        few(missed),
        few(lost),
        few(expired),
        Value::Int(record.due_lease.and_then(|lease| lease.as_millis().try_into().ok())),
    ]
}

/// The kind in the due index.
fn kind(record: &Record) -> Value {
    match record.deleted_at {
        None => Value::bytes(&record.kind),
        Some(_) => Value::bytes(DELETED),
    }
}

/// The lease that has columns. That of a trigger's run does not fit into them, and that of a run to be
/// cancelled, or that has completed itself, stays out of them, so that no single statement extends or
/// completes it.
fn inline(record: &Record) -> Option<&Lease> {
    let first = record.leases.first();
    let is_plain = |lease: &&Lease| !lease.cancel_requested && !lease.completed;
    first.filter(is_plain).filter(|lease| lease.occurrence.trigger.is_none())
}

/// The time at which the row is wanted: as work, or, of a tombstone, to be purged.
fn wake_at(record: &Record) -> Option<Time> {
    match record.deleted_at {
        Some(deleted_at) => Some(saturating_add(deleted_at, TOMBSTONE)),
        None => record.index_at(),
    }
}

/// The number of the column `rare`. Single statements leave a record from 2 on to the general path.
fn rarity(record: &Record) -> i64 {
    match () {
        () if record.deleted_at.is_some() || has_more(record) => 2,
        () if has_cold(record) => 1,
        () => 0,
    }
}

/// True if there are dead letters or remembered triggers.
fn has_cold(record: &Record) -> bool {
    !record.dead.is_empty() || !record.remembered.is_empty()
}

/// True if there are parts, apart from the cold ones, without columns of their own.
fn has_more(record: &Record) -> bool {
    record.leases.len() > usize::from(inline(record).is_some())
        || !record.lost.is_empty()
        || !record.retries.is_empty()
        || !record.triggers.is_empty()
        || !record.occurrence_data.is_empty()
        || !record.waiters.is_empty()
        || record.paused.is_some()
        || record.streak.is_some()
        || record.chain.is_some()
}

/// The columns of the table of rare parts, without the key: each a record in which everything else is
/// empty.
pub(crate) fn rare_columns(record: &Record) -> [Value; 2] {
    let more = has_more(record).then(|| {
        let inline = usize::from(inline(record).is_some());
        codec::encode(&Record {
            leases: record.leases.get(inline..).unwrap_or_default().to_vec(),
            lost: record.lost.clone(),
            retries: record.retries.clone(),
            triggers: record.triggers.clone(),
            occurrence_data: record.occurrence_data.clone(),
            waiters: record.waiters.clone(),
            paused: record.paused.clone(),
            streak: record.streak.clone(),
            chain: record.chain.clone(),
            ..Record::default()
        })
    });
    let cold = has_cold(record).then(|| {
        let (dead, remembered) = (record.dead.clone(), record.remembered.clone());
        codec::encode(&Record { dead, remembered, ..Record::default() })
    });
    [Value::Bytes(more), Value::Bytes(cold)]
}

/// True if both records have the same rare parts.
pub(crate) fn has_same_rare(one: &Record, other: &Record) -> bool {
    let of = |record: &Record| {
        let inline = usize::from(inline(record).is_some());
        record.leases.get(inline..).unwrap_or_default().to_vec()
    };
    of(one) == of(other)
        && one.lost == other.lost
        && one.retries == other.retries
        && one.triggers == other.triggers
        && one.occurrence_data == other.occurrence_data
        && one.waiters == other.waiters
        && one.dead == other.dead
        && one.remembered == other.remembered
        && one.paused == other.paused
        && one.streak == other.streak
        && one.chain == other.chain
}

/// A row as it was read.
#[derive(Debug)]
pub(crate) struct StoredRow {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) version: i64,
    /// The fence column: valid also where the rest is not.
    pub(crate) fence: i64,
    /// The place in the due index, in milliseconds.
    pub(crate) index_at: Option<i64>,
    /// The column of this name.
    wake_at: Option<Time>,
    pub(crate) data_generation: Option<i64>,
    /// The record, or the reason why it cannot be read.
    pub(crate) record: Result<Record, String>,
}

/// A place in the due index of a kind, which has the key after the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IndexPlace {
    /// In milliseconds.
    pub(crate) index_at: i64,
    pub(crate) id: i64,
}

impl IndexPlace {
    /// The place before all others.
    pub(crate) const FIRST: Self = Self { index_at: i64::MIN, id: i64::MIN };

    /// The place of a row; `None` if it is not in the index.
    pub(crate) fn of(row: &StoredRow) -> Option<Self> {
        Some(Self { index_at: row.index_at?, id: row.id })
    }
}

impl StoredRow {
    /// The number of bytes of its data.
    pub(crate) fn data_len(&self) -> usize {
        self.record.as_ref().map_or(0, |record| record.data.len())
    }

    /// The time in the due index; `None` if the record is not in it. A record that cannot be read
    /// stays in it for the nodes that can.
    pub(crate) fn due_at(&self) -> Option<Time> {
        match &self.record {
            Ok(record) => record.index_at(),
            Err(_) => self.wake_at.or(Some(Time::UNIX_EPOCH)),
        }
    }
}

/// Reads the columns of a record, and the data after them if they were selected; `None` for a row of
/// NULLs, which an outer join returns where it found nothing.
pub(crate) fn stored(cells: vec::IntoIter<Value>) -> Option<StoredRow> {
    let with_data = cells.len() > CELLS;
    let mut state = Cells { cells };
    let id = state.int_or_null()?;
    let name = state.bytes()?;
    let data_generation = state.int_or_null();
    // An error in these does not keep the others from their places.
    let job: [_; JOB.len() - 3] =
        array::from_fn(|_| state.cells.next().unwrap_or(Value::Int(None)));
    let mut job = Cells { cells: job.into_iter() };
    let version = state.int_or_null().unwrap_or_default();
    let fence = state.int_or_null().unwrap_or_default();
    let index_at = state.int_or_null();
    let wake_at = state.time().ok().flatten();
    let record = match plausible(fence) {
        Some(fence) => job.fixed().and_then(|fixed| {
            state.record(fixed, fence, data_generation.filter(|_| with_data).is_some())
        }),
        None => Err(format!(
            "its fence {fence} is not one that allora gives: delete it, or restore its row"
        )),
    };
    // The fences of a later record of this name begin again.
    let fence = plausible(fence).unwrap_or_default();
    let name = String::from_utf8_lossy(&name).into_owned();
    Some(StoredRow { id, name, version, fence, index_at, wake_at, data_generation, record })
}

struct Cells<I> {
    cells: I,
}

impl<I: Iterator<Item = Value>> Cells<I> {
    /// The record as far as the job table has it.
    fn fixed(&mut self) -> Result<Record, String> {
        let kind = match self.bytes() {
            Some(deleted) if deleted == DELETED => String::new(),
            kind => text("kind", kind)?,
        };
        let definition = self.text("definition")?;
        let (version, generation) = (self.bits()?, self.int()?);
        let deleted_at = self.time()?;
        Ok(Record { kind, definition, version, generation, deleted_at, ..Record::default() })
    }

    fn record(&mut self, fixed: Record, fence: i64, has_data: bool) -> Result<Record, String> {
        let (_kind, rare) = (self.bytes(), self.int()?);
        let incarnation = self.int()?;
        let cursor = next(self.int_or_null(), self.int_or_null())?;
        let last_started = self.time()?;
        let inline = self.lease()?;
        let ended = ended(self.int_or_null(), self.int_or_null())?;
        let last = last(self.bytes(), self.bytes())?;
        let mut counters = Counters::default();
        for (_, counter) in counters.each_mut() {
            *counter = self.int_or_null().unwrap_or_default().cast_unsigned();
        }
        let due_lease = self.int_or_null().and_then(|lease| lease.try_into().ok());
        let more = part("its leases, retries and triggers are", self.bytes())?;
        if more.is_none() && fixed.deleted_at.is_none() && rare > 1 {
            return Err("the row of its retries and triggers is missing: restore it".to_owned());
        }
        let more = more.unwrap_or_default();
        let cold = part("its dead letters and remembered triggers are", self.bytes())?;
        let cold = cold.unwrap_or_default();
        let data = self.bytes();
        if has_data && data.is_none() {
            return Err(too_long("its data is missing, or"));
        }
        let record = Record {
            due_lease: due_lease.map(Duration::from_millis),
            incarnation,
            data: data.unwrap_or_default(),
            cursor,
            last_started,
            fence,
            leases: inline.into_iter().chain(more.leases).collect(),
            lost: more.lost,
            retries: more.retries,
            triggers: more.triggers,
            occurrence_data: more.occurrence_data,
            chain: more.chain,
            remembered: cold.remembered,
            waiters: more.waiters,
            dead: cold.dead,
            paused: more.paused,
            streak: more.streak,
            ended,
            last,
            counters,
            ..fixed
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

/// A column of the table of rare parts.
fn part(what: &str, bytes: Option<Vec<u8>>) -> Result<Option<Record>, String> {
    match bytes {
        None => Ok(None),
        Some(bytes) if bytes.is_empty() => Err(too_long(what)),
        Some(bytes) => codec::decode(&bytes).map(Some).map_err(|why| why.to_string()),
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

fn ended(fence: Option<i64>, by: Option<i64>) -> Result<Option<Accepted>, String> {
    let Some(fence) = fence else { return Ok(None) };
    let by = match by {
        Some(0) => EndedBy::Completed,
        Some(1) => EndedBy::Retried,
        Some(2) => EndedBy::Released,
        _ => return Err("the column ended_how has an unknown number".to_owned()),
    };
    Ok(Some(Accepted { fence, by }))
}

/// The number in the column `lease_on_expiry`.
pub(crate) fn expiry_number(on_expiry: OnExpiry, sharing: Sharing) -> i64 {
    match (on_expiry, sharing) {
        (OnExpiry::Lost, Sharing::Exclusive) => 0,
        (OnExpiry::Retry, _) => 1,
        (OnExpiry::Lost, Sharing::Shared) => 2,
    }
}

/// The number of an end in its column. [`EndedBy::Completed`] is 0 also in the statements.
fn ended_by_number(by: EndedBy) -> i64 {
    match by {
        EndedBy::Completed => 0,
        EndedBy::Retried => 1,
        EndedBy::Released => 2,
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
        Value::Bytes(entry.reason.map(|reason| reason.text().into())),
        Value::Bytes(entry.output.clone().map(String::into_bytes)),
        Value::Bytes(entry.value.clone().map(String::into_bytes)),
        Value::int(entry.outcome.is_failure().into()),
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
        Some(word) => Some(NotRunReason::from_text(&word)?),
        None => None,
    };
    let (output, value) = (cells.text_or_null().ok()?, cells.text_or_null().ok()?);
    let occurrence = Occurrence { scheduled_at, trigger };
    let mut entry = HistoryEntry::new(name, fence, occurrence, outcome);
    (entry.kind, entry.node, entry.attempt) = (kind, node, attempt);
    (entry.last, entry.count, entry.reason) = (last_scheduled_at, count, reason);
    (entry.due_at, entry.started_at, entry.ended_at) = (due_at, started_at, ended_at);
    (entry.output, entry.value) = (output, value);
    Some(entry)
}

/// The row of a change.
pub(crate) fn change_columns(change: &Change) -> Vec<Value> {
    let bytes = codec::encode_change(change);
    vec![Value::int(change.sequence), Value::bytes(&change.name), Value::bytes(&bytes)]
}

/// A time as it is stored: whole milliseconds since 1970.
pub(crate) fn ms(at: Time) -> i64 {
    at.timestamp_millis()
}

/// A stored time.
pub(crate) fn time(ms: i64) -> Result<Time, String> {
    from_millis(ms).ok_or_else(|| format!("the time {ms} ms is not in the years 1970 to 9999"))
}
