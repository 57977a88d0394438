//! One node's requests to the store, of which some kinds fail: each in one of four ways, for some jobs,
//! once, now and then, or always.

use allora_conformance::{
    faults::Hooks,
    history::{Delays, Seen, Trace},
};
use allora_core::{
    Backend, Error, ErrorKind, Result, Runtime, Time,
    backend::{
        Action, Applied, Batch, ClaimDue, ClaimedDue, Due, DueQuery, JobState, Operation, Page,
        Queries, Reply, TimeSource,
    },
};
use async_trait::async_trait;
use chrono::TimeDelta;
use futures::future::pending;
use std::sync::{Arc, Mutex};

/// The kinds of requests that a node sends: the operations by their actions, then the others.
pub(super) const KINDS: &[&str] = &[
    "Read",
    "Register",
    "Redefine",
    "Claim",
    "ClaimKey",
    "ReleaseKey",
    "Advance",
    "Reap",
    "Extend",
    "Complete",
    "GiveUp",
    "Release",
    "Replace",
    "every operation",
    "clock",
    "find_due",
    "claim_due",
    "registry",
    "calendars",
];

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Not done, and without an answer.
    Hung,
    /// Answered as if it was done, or as if another node had come first.
    NotDone,
    /// Done, without an answer.
    Unanswered,
    /// Not done; the answer is an error.
    Refused,
}

/// The requests that fail.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) kind: &'static str,
    pub(super) fate: Fate,
    /// The thousandths of the requests that fail.
    pub(super) share: u64,
    /// The number of requests that fail yet; `None` for all.
    pub(super) left: Option<u64>,
    /// Of so many shards, only this one fails.
    pub(super) shard: Option<(u64, u64)>,
    /// An operation fails alone, or with its request.
    pub(super) is_alone: bool,
}

impl Failure {
    /// All requests of this kind fail, alike.
    pub(super) fn of(kind: &'static str, fate: Fate) -> Self {
        Self { kind, fate, share: 1_000, left: None, shard: None, is_alone: false }
    }
}

/// The failures of one node's requests. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    requests: Arc<Mutex<Vec<Failure>>>,
    end: Arc<Mutex<Option<RejectedEnd>>>,
}

/// A run whose end is refused, each time and to the end of the world.
#[derive(Clone, Debug)]
struct RejectedEnd {
    job: String,
    /// `None` until a run has ended.
    fence: Option<i64>,
}

impl Failures {
    pub(super) fn add(&self, failure: Failure) {
        self.requests.lock().unwrap().push(failure);
    }

    pub(super) fn end(&self) {
        self.requests.lock().unwrap().clear();
    }

    /// The end of the next run of this job is refused, each time.
    pub(super) fn reject_end(&self, job: &str) {
        *self.end.lock().unwrap() = Some(RejectedEnd { job: job.to_owned(), fence: None });
    }

    /// `true` if this is the end of a run that is refused.
    fn rejects(&self, operation: &Operation<'_>) -> bool {
        let mut end = self.end.lock().unwrap();
        let rejected = end.as_mut().filter(|end| end.job == operation.name);
        match (rejected, &operation.action) {
            (Some(end), Action::Complete { fence, .. } | Action::Retry { fence, .. }) => {
                *end.fence.get_or_insert(*fence) == *fence
            }
            _ => false,
        }
    }

    /// The fate of a request about this record.
    fn draw(&self, node: &dyn Runtime, kind: &str, name: &str) -> Option<(Fate, bool)> {
        let mut failures = self.requests.lock().unwrap();
        let hit = |one: &mut Failure| {
            let is_kind = one.kind == kind
                || one.kind == "every operation" && kind.starts_with(char::is_uppercase);
            let is_shard = one.shard.is_none_or(|(of, only)| shard(name, of) == only);
            let hits = is_kind
                && is_shard
                && one.left != Some(0)
                && (one.share >= 1_000 || node.random() % 1_000 < one.share);
            if let Some(left) = one.left.as_mut().filter(|_| hits) {
                *left -= 1;
            }
            hits
        };
        failures.iter_mut().find_map(|one| hit(one).then_some((one.fate, one.is_alone)))
    }
}

/// The shard of a record.
pub(super) fn shard(name: &str, of: u64) -> u64 {
    name.bytes().fold(7, |hash: u64, byte| hash.wrapping_mul(31) ^ u64::from(byte)) % of
}

/// A node's way to the store.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) node: Arc<dyn Runtime>,
    pub(super) failures: Failures,
    pub(super) trace: Trace,
}

impl Requests {
    fn draw(&self, kind: &str, name: &str) -> Option<(Fate, bool)> {
        self.failures.draw(&*self.node, kind, name)
    }

    /// Notes that this work waits, although the request was answered.
    fn not_done(&self, node: &str, delays: Delays) {
        self.trace.write(Seen::Request { node: node.into(), answered: true, found: 0, delays });
    }

    /// Applies the operations but those that fail alone.
    async fn partly(
        &self,
        store: &dyn Backend,
        batch: Batch<'_>,
        fates: &[Option<(Fate, bool)>],
    ) -> Result<Applied> {
        let mut operations = batch.operations.to_vec();
        for (operation, fate) in operations.iter_mut().zip(fates) {
            if matches!(fate, Some((Fate::NotDone | Fate::Refused, _))) {
                operation.action = Action::Read;
            }
        }
        let read = Batch::new(batch.node, batch.time, &operations);
        let mut applied = store.reschedule(read).await?;
        let now = applied.now;
        let replies = applied.replies.iter_mut().zip(batch.operations).zip(fates);
        for ((reply, operation), fate) in replies {
            match fate {
                None | Some((Fate::Hung, _)) => {}
                Some((Fate::NotDone, _)) => {
                    let job = match &operation.action {
                        Action::ClaimKey(claim) => claim.job,
                        _ => operation.name,
                    };
                    self.not_done(batch.node, Delays::Jobs([job.into()].into()));
                    pretend(reply, operation, now);
                }
                Some((Fate::Refused, _)) => *reply = Err(refusal()),
                Some((Fate::Unanswered, _)) => {
                    *reply = Err(Error::new(ErrorKind::Unavailable, "its reply was lost"));
                }
            }
        }
        Ok(applied)
    }
}

/// Answers as if the operation was done, where the answer does not start a run.
fn pretend(reply: &mut Result<Reply>, operation: &Operation<'_>, now: Time) {
    if matches!(reply, Ok(Reply::Absent | Reply::Deleted)) {
        return;
    }
    *reply = match operation.action {
        Action::Extend { duration, .. } => {
            Ok(Reply::Extended(now + TimeDelta::from_std(duration).unwrap()))
        }
        Action::Complete { .. }
        | Action::Retry { .. }
        | Action::Release { .. }
        | Action::ReleaseKey { .. }
        | Action::GiveUp { .. } => Ok(Reply::Accepted),
        // The record as it is.
        _ => return,
    };
}

fn refusal() -> Error {
    Error::new(ErrorKind::Other, "this role may not do that")
}

/// The kind of an operation.
fn kind_of(operation: &Operation<'_>) -> &'static str {
    let name = operation.name;
    if name.starts_with("allora:node:") {
        return "registry";
    }
    if name.starts_with("allora:calendar:") {
        return "calendars";
    }
    match operation.action {
        Action::Read => "Read",
        Action::Register { .. } => "Register",
        Action::Redefine { .. } => "Redefine",
        Action::Claim(_) => "Claim",
        Action::ClaimKey(_) => "ClaimKey",
        Action::ReleaseKey { .. } => "ReleaseKey",
        Action::Advance(_) => "Advance",
        Action::Reap => "Reap",
        Action::Extend { .. } => "Extend",
        Action::Complete { .. } | Action::Retry { .. } => "Complete",
        Action::GiveUp { .. } => "GiveUp",
        Action::Release { .. } => "Release",
        Action::Replace { .. } => "Replace",
        _ => "Other",
    }
}

#[async_trait]
impl Hooks for Requests {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        let operations = batch.operations;
        let fate = |one| match self.failures.rejects(one) {
            true => Some((Fate::Refused, true)),
            false => self.draw(kind_of(one), one.name),
        };
        let mut fates: Vec<_> = operations.iter().map(fate).collect();
        if operations.is_empty() {
            fates.extend([self.draw("clock", "")]);
        }
        let has = |wanted: Fate| fates.iter().flatten().any(|(fate, _)| *fate == wanted);
        if has(Fate::Hung) {
            return pending().await;
        }
        if fates.iter().flatten().any(|(fate, alone)| *fate == Fate::Unanswered && !alone) {
            drop(store.reschedule(batch).await);
            return pending().await;
        }
        if fates.iter().flatten().any(|(fate, alone)| *fate == Fate::Refused && !alone) {
            return Err(refusal());
        }
        if operations.is_empty() || fates.iter().all(Option::is_none) {
            return store.reschedule(batch).await;
        }
        self.partly(store, batch, &fates).await
    }

    async fn find_due(
        &self,
        store: &dyn Queries,
        query: DueQuery<'_>,
        time: TimeSource,
    ) -> Result<Due> {
        match self.draw("find_due", "").map(|(fate, _)| fate) {
            Some(Fate::Hung | Fate::Unanswered) => pending().await,
            Some(Fate::Refused) => Err(refusal()),
            Some(Fate::NotDone) => {
                self.not_done(query.node, Delays::Found);
                let due = store.find_due(query, time).await?;
                Ok(Due::new(due.now, Vec::new(), None))
            }
            None => store.find_due(query, time).await,
        }
    }

    async fn claim_due(
        &self,
        store: &dyn Queries,
        query: ClaimDue<'_>,
        time: TimeSource,
    ) -> Result<ClaimedDue> {
        match self.draw("claim_due", "").map(|(fate, _)| fate) {
            Some(Fate::Hung) => pending().await,
            Some(Fate::Unanswered) => {
                drop(store.claim_due(query, time).await);
                pending().await
            }
            Some(Fate::Refused) => Err(refusal()),
            Some(Fate::NotDone) => {
                self.not_done(query.node, Delays::Found);
                let mut query = query;
                query.limit = if query.is_repeated { query.limit } else { 0 };
                store.claim_due(query, time).await
            }
            None => store.claim_due(query, time).await,
        }
    }

    async fn list(&self, store: &dyn Queries, page: Page<'_>) -> Result<Vec<JobState>> {
        let is_registry = page.prefix.starts_with("allora:node:");
        let drawn = is_registry.then(|| self.draw("registry", "")).flatten();
        match drawn.map(|(fate, _)| fate) {
            Some(Fate::Hung | Fate::Unanswered) => pending().await,
            Some(Fate::Refused) => Err(refusal()),
            Some(Fate::NotDone) => Ok(Vec::new()),
            None => store.list(page).await,
        }
    }
}
