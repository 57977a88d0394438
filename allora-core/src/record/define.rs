//! Creating, redefining, modifying and deleting a job.
//!
//! A deletion leaves a tombstone with the leases of its runs. Without them, the run of a deleted
//! schedule would go on beside that of the schedule that is created again under the name. A
//! generation is drawn from the source of fences, so it never repeats; an edit expects the
//! generation that was read, and not the fence, because that grows with every claim and the edit of
//! a busy job would always come too late.

use super::{HistoryBuffer, MAX_FENCE, OpContext, Record, claim::entry, live, next_fence};
use crate::{
    backend::{
        Edit, HistoryEntry, ImportedProgress, NewSchedule, NextRun, NotRun, NotRunReason,
        Occurrence, OnExpiry, Outcome, Replan,
    },
    error::{Error, ErrorKind, Result},
    job::due_lease,
    name::{HOURS, NODE, check_free, check_name, is_key_record},
    time::{Time, whole_millis},
};
use std::time::Duration;

/// The largest data of a stored schedule, in bytes.
pub const MAX_DATA: usize = 1 << 20;

/// The lifetime of a tombstone: longer than any lease or timeout, so that a late write finds a
/// tombstone and not a free name.
pub const TOMBSTONE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The largest number of dead letters of one job. The last ones are kept.
pub const MAX_DEAD: usize = 32;

/// Creates the record of a job in code, unless the name is taken.
pub(super) fn register(
    slot: &mut Option<Record>,
    definition: &str,
    version: u64,
    first: Option<NextRun>,
    context: OpContext<'_>,
) {
    if !slot.as_ref().is_some_and(Record::is_live) {
        *slot = Some(Record::new(slot.as_ref(), definition, version, first, context));
    }
}

/// Creates a stored schedule.
pub(super) fn create(
    slot: &mut Option<Record>,
    name: &str,
    new: &NewSchedule<'_>,
    context: OpContext<'_>,
) -> Result {
    check_free(name)?;
    check_name(new.kind)?;
    check_data(new.data)?;
    check_progress(name, new)?;
    if slot.as_ref().is_some_and(Record::is_live) {
        let taken = format!("{name:?} exists already; modify it, or choose another name");
        return Err(Error::new(ErrorKind::AlreadyExists, taken));
    }
    let mut record = Record::new(slot.as_ref(), new.definition, 0, new.first, context);
    record.kind = new.kind.to_owned();
    record.due_lease = due_lease(new.definition);
    record.data = new.data.to_vec();
    let ImportedProgress { last_started, paused, counters, dead } = new.progress;
    record.last_started = last_started.map(whole_millis);
    record.paused = paused.cloned();
    record.counters = counters;
    record.dead = dead[dead.len().saturating_sub(MAX_DEAD)..].to_vec();
    *slot = Some(record);
    Ok(())
}

/// Changes kind, definition or data. Active runs continue.
pub(super) fn modify(
    slot: &mut Option<Record>,
    name: &str,
    edit: &Edit<'_>,
    context: OpContext<'_>,
    history: &mut HistoryBuffer,
) -> Result {
    let record = live(slot, name)?;
    if record.generation != edit.generation {
        let changed = format!("{name:?} was changed since it was read; read it again");
        return Err(Error::new(ErrorKind::AlreadyExists, changed));
    }
    check_data(edit.data.unwrap_or_default())?;
    if let Some(kind) = edit.kind {
        check_name(kind)?;
        if record.kind.is_empty() {
            let code = format!("{name:?} is a job in code, which has no kind; edit its code");
            return Err(Error::invalid(code));
        }
    }
    if let Some((definition, plan)) = edit.definition {
        if !record.may_replan(plan) {
            return Err(Error::invalid(format!(
                "an occurrence of {name:?} was started since its cursor was read, or the new cursor is \
                 not after the last one that was started; read the job again"
            )));
        }
        record.reap(name, context.now, history);
        record.redefine(name, definition, plan, context, history);
    }
    if let Some(data) = edit.data {
        record.data = data.to_vec();
    }
    if let Some(kind) = edit.kind {
        kind.clone_into(&mut record.kind);
    }
    if edit.data.is_some() || edit.kind.is_some() {
        record.generation = record.draw_fence(context.now);
    }
    Ok(())
}

/// Leaves a tombstone in the place of the record. Its runs are recorded as cancelled, and their leases
/// stay until they end: the nodes learn of it, and a job that is created under the name waits for them.
pub(super) fn delete(
    slot: &mut Option<Record>,
    name: &str,
    context: OpContext<'_>,
    history: &mut HistoryBuffer,
) -> Result {
    let record = live(slot, name)?;
    if record.has_outbox() {
        return Err(Error::invalid(format!(
            "{name:?} cannot be deleted yet: runs after it are about to be triggered; delete it again in a \
             moment, or delete the jobs that run after it first"
        )));
    }
    record.reap(name, context.now, history);
    let now = context.now;
    let mut leases = std::mem::take(&mut record.leases);
    for lease in leases.iter().filter(|lease| !record.is_recorded(lease)) {
        let reason = Some(NotRunReason::Deleted);
        let run = || entry(lease, name, &record.kind, now, Outcome::Cancelled);
        history.push(|| HistoryEntry { reason, ..run() });
    }
    leases.retain(|lease| lease.until > now);
    for lease in &mut leases {
        // No occurrence of the name's next record is theirs.
        (lease.on_expiry, lease.cancel_requested) = (OnExpiry::Lost, true);
    }
    record.bury(name, context);
    record.leases = leases;
    Ok(())
}

/// A new definition of a job in code.
pub(super) struct Redefinition<'a> {
    /// The generation that was read.
    pub(super) generation: i64,
    pub(super) definition: &'a str,
    pub(super) version: u64,
    pub(super) plan: Replan,
}

impl Record {
    /// Replaces the definition, if the record is the one that was read and the version is not
    /// lower.
    pub(super) fn redefine_if(
        &mut self,
        name: &str,
        new: &Redefinition<'_>,
        context: OpContext<'_>,
        history: &mut HistoryBuffer,
    ) {
        let is_current = self.generation == new.generation && new.version >= self.version;
        if is_current && self.may_replan(new.plan) {
            self.reap(name, context.now, history);
            self.redefine(name, new.definition, new.plan, context, history);
            self.version = new.version;
        }
    }

    /// `true` if it is the record with this fence and this cursor, and nothing waits in it: in that of
    /// a concurrency key no live place and no live waiter.
    pub(super) fn is_unused(
        &self,
        name: &str,
        fence: i64,
        cursor: Option<Time>,
        now: Time,
    ) -> bool {
        let is_free = match is_key_record(name) {
            true => self.is_free_key(now),
            false => self.leases.is_empty(),
        };
        self.fence == fence
            && self.cursor.map(|cursor| cursor.scheduled_at) == cursor
            && is_free
            && self.lost.is_empty()
            && self.retries.is_empty()
            && self.triggers.is_empty()
            && !self.has_outbox()
            && self.has_forgotten_triggers(now)
            && self.dead.is_empty()
            && self.paused.is_none()
    }

    /// Becomes a tombstone. That of a node's record has no fence, and neither has that of a day's counts:
    /// no node ever has the id again, no day returns, and the store keeps the highest fence of the
    /// tombstones that it removes, below which the records of an emptied store look deleted.
    pub(super) fn bury(&mut self, name: &str, context: OpContext<'_>) {
        let bare = Self::new(Some(self), "", 0, None, context);
        let never_returns = [NODE, HOURS].iter().any(|prefix| name.starts_with(prefix));
        let fence = if never_returns { 0 } else { bare.fence };
        *self = Self { deleted_at: Some(whole_millis(context.now)), fence, ..bare };
    }

    /// Replaces the definition and moves the cursor. The occurrences that the plan leaves out are
    /// recorded as missed.
    fn redefine(
        &mut self,
        name: &str,
        definition: &str,
        plan: Replan,
        context: OpContext<'_>,
        history: &mut HistoryBuffer,
    ) {
        let Replan { not_run, then, .. } = plan;
        // Without a range: only the replaced definition could count the occurrences between.
        let passed_over = self.cursor.filter(|cursor| {
            not_run.is_none()
                && cursor.scheduled_at <= context.now
                && then.is_none_or(|next| next.scheduled_at > cursor.scheduled_at)
                && self.last_started < Some(cursor.scheduled_at)
        });
        let uncounted = passed_over.map(|due| {
            let last = due.scheduled_at;
            (last, NotRun { count: None, last, reason: NotRunReason::CatchUp })
        });
        if let Some((first, range)) = not_run.or(uncounted) {
            // At least one, if the number is not known.
            let unknown = u64::from(range.count.is_none());
            self.counters.missed = self.counters.missed.saturating_add(unknown);
            self.skip(name, Occurrence::from(first), range, context, history);
        }
        self.cursor = then;
        self.definition = definition.to_owned();
        self.due_lease = due_lease(definition).filter(|_| !self.kind.is_empty());
        self.generation = self.draw_fence(context.now);
    }

    /// `true` if the plan is for this cursor, and moves neither it nor the range back to a started
    /// occurrence.
    fn may_replan(&self, plan: Replan) -> bool {
        let Replan { expected, not_run, then } = plan;
        let is_open = |at: Time| self.last_started.is_none_or(|last| at > last);
        let cursor = self.cursor.map(|cursor| cursor.scheduled_at);
        // Of a job that has never had a cursor, what had passed before it was registered.
        let is_after_cursor =
            |first: Time| cursor.map_or(self.last_started.is_none(), |cursor| cursor <= first);
        let range_fits = not_run.is_none_or(|(first, range)| {
            is_open(first)
                && is_after_cursor(first)
                && first <= range.last
                && then.is_none_or(|next| next.scheduled_at > range.last)
        });
        expected == cursor && range_fits && then.is_none_or(|next| is_open(next.scheduled_at))
    }

    /// A new record. Its fence continues after the tombstone's, and it has the leases of the runs
    /// that are being cancelled.
    pub(super) fn new(
        tombstone: Option<&Record>,
        definition: &str,
        version: u64,
        first: Option<NextRun>,
        context: OpContext<'_>,
    ) -> Self {
        // A fence that cannot be read was not drawn.
        let min_fence = Some(context.min_fence).filter(|fence| *fence <= MAX_FENCE);
        let before = tombstone.map(|record| record.fence).max(min_fence);
        let fence = next_fence(before.unwrap_or(0), context.now);
        Self {
            definition: definition.to_owned(),
            version,
            incarnation: fence,
            generation: fence,
            cursor: first,
            fence,
            leases: tombstone.map(|record| record.leases.clone()).unwrap_or_default(),
            changes: tombstone.map(|record| record.changes.clone()).unwrap_or_default(),
            chain: tombstone.and_then(|record| record.chain.clone()),
            ..Self::default()
        }
    }
}

/// A cursor on a started occurrence would never be offered.
fn check_progress(name: &str, new: &NewSchedule<'_>) -> Result {
    let nominal =
        |occurrence: &Occurrence| occurrence.trigger.is_none().then_some(occurrence.scheduled_at);
    let dead = new.progress.dead.iter().filter_map(|letter| nominal(&letter.occurrence)).max();
    match (new.first, new.progress.last_started.max(dead)) {
        (Some(first), Some(last)) if first.scheduled_at <= last => Err(Error::invalid(format!(
            "{name:?} cannot begin at {}: its occurrence of {last} was started already",
            first.scheduled_at
        ))),
        _ => Ok(()),
    }
}

fn check_data(data: &[u8]) -> Result {
    if data.len() > MAX_DATA {
        let len = data.len();
        let large = format!(
            "the data has {len} bytes, at most {MAX_DATA} can be stored; store a reference to it"
        );
        return Err(Error::invalid(large));
    }
    Ok(())
}
