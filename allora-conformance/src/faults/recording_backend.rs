//! A store that writes its operations and replies to a log, for the history checker.

use super::{Hooks, Wrapped};
use crate::history::{self, Claims, Event, Outcome, What, booked};
use allora_core::{
    Backend, Result, Time,
    backend::{
        self, Action, Advance, Applied, Batch, ClaimDue, Claimed, ClaimedDue, Completion,
        HistoryEntry, JobState, OnExpiry, Operation, Queries, Reply, TimeSource,
    },
    is_internal,
};
use async_trait::async_trait;
use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    slice,
    sync::{Arc, LazyLock, Mutex, MutexGuard},
    time::{Instant, SystemTime},
};

/// A file that several processes append to.
#[derive(Clone, Debug)]
pub struct Log(Arc<File>);

impl Log {
    /// Appends to this file, which is made if it is not there.
    ///
    /// # Panics
    /// If the file cannot be opened.
    pub fn append(path: &Path) -> Self {
        Self(Arc::new(OpenOptions::new().create(true).append(true).open(path).unwrap()))
    }

    /// Writes one event down.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn write(&self, job: &str, node: &str, at: i64, what: What) {
        let event = Event { job: job.into(), node: node.into(), at, what };
        history::write(&mut &*self.0, &event).unwrap();
    }

    /// Writes an event of the scheduler as one line, for people and tests.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn report(&self, event: &allora_core::Event) {
        (&*self.0).write_all(format!("{event:?}\n").as_bytes()).unwrap();
    }
}

/// The machine's clock, in milliseconds, as it went on since this was called first: a clock that is set meanwhile
/// must not get into what several processes write down.
#[expect(clippy::disallowed_methods, reason = "what several processes write down has one clock")]
pub fn wall() -> i64 {
    static BEGIN: LazyLock<(SystemTime, Instant)> =
        LazyLock::new(|| (SystemTime::now(), Instant::now()));
    let (wall, begin) = *BEGIN;
    Time::from(wall + begin.elapsed()).timestamp_millis()
}

/// A store that writes its operations and replies to a log.
pub type RecordingBackend = Wrapped<Recording>;

/// By job and fence: the name in the log, and the occurrence.
type Claimings = HashMap<(String, i64), (String, i64)>;

/// The hooks of a [`RecordingBackend`].
#[derive(Debug)]
pub struct Recording {
    log: Log,
    /// The occurrences of this node's runs, by job and fence, each with the name that it has in the log.
    claimed: Mutex<Claimings>,
    /// When an operation was sent for the first time. A lost reply came somewhere between then and
    /// the reply to the repetition.
    sent: Mutex<HashMap<(String, u128), i64>>,
}

impl Wrapped<Recording> {
    /// Writes the operations on this store, and its replies, to the log.
    pub fn new(store: impl Backend, log: Log) -> Self {
        let (claimed, sent) = (Mutex::default(), Mutex::default());
        Self::around(store, Recording { log, claimed, sent })
    }
}

impl Recording {
    /// When an operation was sent first, if not now.
    fn first_sent(&self, operation: &Operation<'_>) -> i64 {
        let number = match &operation.action {
            Action::Claim(claim) => claim.claim_id,
            // Fences and claim ids do not meet: claim ids are random.
            Action::Complete { fence, .. }
            | Action::Retry { fence, .. }
            | Action::Release { fence } => fence.cast_unsigned().into(),
            _ => return wall(),
        };
        let mut sent = self.sent.lock().unwrap();
        *sent.entry((operation.name.to_owned(), number)).or_insert_with(wall)
    }

    fn replied(
        &self,
        batch: Batch<'_>,
        now: Time,
        sent: i64,
        operation: &Operation<'_>,
        reply: &Reply,
    ) {
        let (node, name) = (batch.node, operation.name);
        match (&operation.action, reply) {
            // The holders of a key are triggers of its record.
            (Action::Claim(claim), Reply::Claimed(claimed))
                if claimed.occurrence.trigger.is_none() || !is_internal(name) =>
            {
                if let Some(not_run) = claim.not_run {
                    let first = claim.expected.scheduled_at.timestamp_millis();
                    let last = not_run.last.timestamp_millis();
                    self.log.write(name, node, now.timestamp_millis(), What::Skip { first, last });
                }
                // When it was granted, also if that reply was lost. A claim that was sent first long before
                // may have won nothing then.
                let at = (claimed.until - claim.lease.duration).min(now);
                // A lease that is lost on expiry keeps no later occurrence away: the cursor has moved.
                let until = (claim.lease.on_expiry == OnExpiry::Retry).then_some(claimed.until);
                self.claimed(
                    node,
                    name,
                    claimed,
                    (at, until),
                    now == batch.time.without_store_clock(),
                );
            }
            (Action::Advance(advance), Reply::State(state)) if state.next == advance.then => {
                self.skipped(node, name, now, advance);
            }
            // The lease of a claim by a query moves to a later occurrence.
            (Action::Advance(advance), Reply::Claimed(claimed)) => {
                self.skipped(node, name, now, advance);
                let left = advance.expected.timestamp_millis();
                let claims = self.locked();
                let its = claims.iter().find(|((job, _), (_, at))| job == name && *at == left);
                let fence = its.map(|((_, fence), _)| *fence);
                drop(claims);
                if let Some(fence) = fence {
                    self.ended(node, sent, name, fence, Outcome::Released);
                }
                let has_no_clock = now == batch.time.without_store_clock();
                self.claimed(node, name, claimed, (now, Some(claimed.until)), has_no_clock);
            }
            (Action::Extend { fence, .. }, Reply::Extended(until) | Reply::Completed(until)) => {
                let (fence, until) = (*fence, until.timestamp_millis());
                if let Some((name, _)) = self.occurrence_of(name, fence) {
                    self.log.write(&name, node, sent, What::Extend { fence, until });
                }
            }
            (Action::Complete { fence, completion, .. }, Reply::Accepted) => {
                let outcome = match completion {
                    Completion::Succeeded => Outcome::Succeeded,
                    Completion::Cancelled => Outcome::Cancelled,
                    Completion::Failed(_) | Completion::Dead(_) => Outcome::Failed,
                };
                self.ended(node, sent, name, *fence, outcome);
            }
            (Action::Retry { fence, .. }, Reply::Accepted) => {
                self.ended(node, sent, name, *fence, Outcome::Retry);
            }
            (Action::Release { fence }, Reply::Accepted) => {
                self.ended(node, sent, name, *fence, Outcome::Released);
            }
            _ => {}
        }
    }

    /// Writes down that these occurrences are not run.
    fn skipped(&self, node: &str, name: &str, now: Time, advance: &Advance) {
        let first = advance.expected.timestamp_millis();
        let last = advance.not_run.last.timestamp_millis();
        self.log.write(name, node, now.timestamp_millis(), What::Skip { first, last });
    }

    fn locked(&self) -> MutexGuard<'_, Claimings> {
        self.claimed.lock().unwrap()
    }

    /// Writes a claim down, that was granted then and lasts until then.
    fn claimed(
        &self,
        node: &str,
        name: &str,
        claimed: &Claimed,
        (at, until): (Time, Option<Time>),
        has_no_clock: bool,
    ) {
        let booked = booked(name, claimed.occurrence.trigger.as_deref());
        let occurrence = claimed.occurrence.scheduled_at.timestamp_millis();
        let (fence, attempt) = (claimed.fence, claimed.attempt);
        let known = (booked.clone(), occurrence);
        self.locked().insert((name.to_owned(), fence), known);
        let until = until.map(|until| until.timestamp_millis());
        let claims = Claims { occurrence, fence, attempt, until };
        self.log.write(&booked, node, at.timestamp_millis(), What::Claim(claims));
        if has_no_clock {
            self.log.write(&booked, node, wall(), What::Answered { fence });
        }
    }

    /// As [`claimed`](Self::claimed), for a claim of whatever was due.
    fn claimed_due(&self, node: &str, state: &JobState, claimed: &Claimed, has_no_clock: bool) {
        if let Some(lease) = state.leases.iter().find(|lease| lease.fence == claimed.fence) {
            let until = (lease.on_expiry == OnExpiry::Retry).then_some(lease.until);
            self.claimed(node, &state.name, claimed, (lease.started_at, until), has_no_clock);
        }
    }

    /// Writes down a run that is recorded as lost, on a store that keeps no history for that.
    fn lost(&self, entry: &HistoryEntry) {
        let job = booked(&entry.name, entry.occurrence.trigger.as_deref());
        for Event { job, node, at, what } in
            history::merge_store_history(&[], &job, slice::from_ref(entry))
        {
            self.log.write(&job, &node, at, what);
        }
    }

    fn ended(&self, node: &str, sent: i64, name: &str, fence: i64, outcome: Outcome) {
        if let Some((name, occurrence)) = self.occurrence_of(name, fence) {
            self.log.write(&name, node, sent, What::End { occurrence, fence, outcome });
        }
    }

    fn occurrence_of(&self, name: &str, fence: i64) -> Option<(String, i64)> {
        self.locked().get(&(name.to_owned(), fence)).cloned()
    }
}

#[async_trait]
impl Hooks for Recording {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        let sent: Vec<i64> =
            batch.operations.iter().map(|operation| self.first_sent(operation)).collect();
        let applied = store.reschedule(batch).await?;
        for ((operation, sent), reply) in batch.operations.iter().zip(sent).zip(&applied.replies) {
            if let Ok(reply) = reply {
                self.replied(batch, applied.now, sent, operation, reply);
            }
        }
        if store.history().is_none() {
            let lost =
                applied.lapsed.iter().filter(|entry| entry.outcome == backend::Outcome::Lost);
            lost.for_each(|entry| self.lost(entry));
        }
        Ok(applied)
    }

    async fn claim_due(
        &self,
        store: &dyn Queries,
        query: ClaimDue<'_>,
        time: TimeSource,
    ) -> Result<ClaimedDue> {
        let node = query.node;
        let due = store.claim_due(query, time).await?;
        for (state, claimed) in &due.claimed {
            self.claimed_due(node, state, claimed, due.now == time.without_store_clock());
        }
        Ok(due)
    }
}
