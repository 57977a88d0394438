//! Defects that are planted in the nodes of a trial, on their way to the store: the trial must find each.

use super::{Hooks, Wrapped};
use allora_core::{
    Backend, Result, Time,
    backend::{
        Action, Applied, Batch, Claim, ClaimKey, Claimed, Completion, Cursor, NextRun, OnExpiry,
        Operation, Queries, Reply,
    },
};
use async_trait::async_trait;
use chrono::TimeDelta;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// One of so many operations meets a defect that would otherwise leave nothing to run.
const ONE_IN: u64 = 25;

/// The lease that is left of a [shortened](Planted::ShortLeases) one.
const SHORT: Duration = Duration::from_millis(50);

/// A mistake of a store or of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Planted {
    /// The store compares no fences: the end of a run whose lease was lost is accepted.
    StaleEnds,
    /// The store confirms some ends that it forgets.
    ForgottenEnds,
    /// The store ends leases early.
    ShortLeases,
    /// The store grants some claims without a trace of them.
    UnwrittenClaims,
    /// The store admits more holders of a key than its limit.
    WideKeys,
    /// The scheduler leaves out some occurrences of jobs at most once.
    SkippedOccurrences,
    /// The scheduler runs jobs at most once again after a crash.
    RepeatedAtMostOnce,
    /// The scheduler records some runs as succeeded that it did not start.
    EndsWithoutRuns,
    /// The scheduler triggers no job after another one.
    ForgottenFollowers,
    /// The scheduler gives back some occurrences whose runs have succeeded.
    ReleasedSuccesses,
}

impl Planted {
    /// All of them with their names, those of stores first.
    pub const ALL: [(Self, &str); 10] = [
        (Self::StaleEnds, "stale-ends"),
        (Self::ForgottenEnds, "forgotten-ends"),
        (Self::ShortLeases, "short-leases"),
        (Self::UnwrittenClaims, "unwritten-claims"),
        (Self::WideKeys, "wide-keys"),
        (Self::SkippedOccurrences, "skipped-occurrences"),
        (Self::RepeatedAtMostOnce, "repeated-at-most-once"),
        (Self::EndsWithoutRuns, "ends-without-runs"),
        (Self::ForgottenFollowers, "forgotten-followers"),
        (Self::ReleasedSuccesses, "released-successes"),
    ];

    /// Its name, as the command has it.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(planted, _)| *planted == self).map_or("", |(_, name)| name)
    }

    /// Finds a defect by its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, one)| *one == name).map(|(planted, _)| planted)
    }
}

/// A store with a [defect](Planted) on the way to it.
pub type PlantedBackend = Wrapped<Defective>;

/// The hooks of a [`PlantedBackend`].
#[derive(Debug)]
pub struct Defective {
    planted: Planted,
    operations: AtomicU64,
    /// By job and fence: the cursor's move that a completion has to make.
    moves: Mutex<HashMap<(String, i64), Cursor>>,
}

impl Wrapped<Defective> {
    /// The store with this defect.
    pub fn planted(store: impl Backend, planted: Planted) -> Self {
        let (operations, moves) = (AtomicU64::new(0), Mutex::default());
        Self::around(store, Defective { planted, operations, moves })
    }
}

/// The claim of an occurrence of the schedule by a job at most once.
fn is_once(claim: &Claim) -> bool {
    claim.lease.on_expiry == OnExpiry::Lost && claim.start.trigger.is_none()
}

/// The run has succeeded at its end.
fn is_success(action: &Action<'_>) -> bool {
    matches!(action, Action::Complete { completion: Completion::Succeeded, .. })
}

impl Defective {
    /// It is the turn of this operation to be treated badly.
    fn is_hit(&self) -> bool {
        self.operations.fetch_add(1, Ordering::Relaxed) % ONE_IN == ONE_IN - 1
    }

    /// The operation that is sent in place of this one.
    fn sent<'a>(&self, operation: &Operation<'a>) -> Operation<'a> {
        let mut sent = operation.clone();
        match (self.planted, &mut sent.action) {
            (Planted::ShortLeases, Action::Claim(claim)) => claim.lease.duration = SHORT,
            (Planted::WideKeys, Action::ClaimKey(ClaimKey { limit, .. })) => *limit += 1,
            (Planted::SkippedOccurrences, Action::Claim(claim)) if is_once(claim) => {
                if let Cursor::To(Some(next)) = &mut claim.then
                    && self.is_hit()
                {
                    *next = NextRun::from(next.scheduled_at + TimeDelta::seconds(1));
                }
            }
            (Planted::RepeatedAtMostOnce, Action::Claim(claim)) if is_once(claim) => {
                claim.lease.on_expiry = OnExpiry::Retry;
                claim.then = Cursor::Keep;
            }
            (Planted::RepeatedAtMostOnce, Action::Complete { fence, then, .. }) => {
                if let Some(moved) = self.moves().get(&(operation.name.to_owned(), *fence)) {
                    *then = *moved;
                }
            }
            (Planted::UnwrittenClaims, Action::Claim(claim)) if is_once(claim) && self.is_hit() => {
                sent.action = Action::Read;
            }
            (Planted::ForgottenEnds, action) if is_success(action) && self.is_hit() => {
                *action = Action::Read;
            }
            (Planted::ReleasedSuccesses, Action::Complete { fence, then: Cursor::To(_), .. })
                if is_success(&operation.action) && self.is_hit() =>
            {
                sent.action = Action::Release { fence: *fence };
            }
            (Planted::ForgottenFollowers, Action::FollowUp { .. }) => sent.action = Action::Read,
            // Short enough that another node is faster.
            (Planted::StaleEnds, Action::Claim(claim)) if !is_once(claim) && self.is_hit() => {
                claim.lease.duration = SHORT;
            }
            _ => {}
        }
        sent
    }

    fn moves(&self) -> std::sync::MutexGuard<'_, HashMap<(String, i64), Cursor>> {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reply to the first operation, of which the second one was sent.
    fn told(
        &self,
        operation: &Operation<'_>,
        sent: &Operation<'_>,
        reply: Reply,
        now: Time,
    ) -> Reply {
        let is_unsent = matches!(sent.action, Action::Read);
        match (self.planted, &operation.action, reply) {
            (Planted::StaleEnds, Action::Complete { .. }, Reply::LeaseLost) => Reply::Accepted,
            (
                Planted::ForgottenEnds | Planted::ForgottenFollowers,
                Action::Complete { .. } | Action::FollowUp { .. },
                Reply::State(_),
            ) if is_unsent => Reply::Accepted,
            (
                Planted::ShortLeases | Planted::StaleEnds,
                Action::Claim(claim),
                Reply::Claimed(mut claimed),
            ) => {
                claimed.until = claimed.until.max(now + claim.lease.duration);
                Reply::Claimed(claimed)
            }
            (Planted::UnwrittenClaims, Action::Claim(claim), Reply::State(state)) if is_unsent => {
                let (start, until) = (claim.start.clone(), now + claim.lease.duration);
                Reply::Claimed(Claimed::new(start, state.fence + 1, state.incarnation, until))
            }
            (Planted::RepeatedAtMostOnce, Action::Claim(claim), Reply::Claimed(claimed)) => {
                self.moves().insert((operation.name.to_owned(), claimed.fence), claim.then);
                Reply::Claimed(claimed)
            }
            (_, _, reply) => reply,
        }
    }
}

/// Records the run as succeeded; returns the record, as if another node had been faster.
async fn end_at_once(
    store: &Arc<dyn Backend>,
    batch: Batch<'_>,
    name: &str,
    fence: i64,
) -> Result<Reply> {
    let (then, completion) = (Cursor::Keep, Completion::Succeeded);
    let end = Operation::new(name, Action::Complete { fence, then, completion });
    let operations = [end, Operation::read(name)];
    store.reschedule(Batch::new(batch.node, batch.time, &operations)).await?.single()
}

#[async_trait]
impl Hooks for Defective {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        let sent: Vec<Operation<'_>> =
            batch.operations.iter().map(|operation| self.sent(operation)).collect();
        let mut applied = store.reschedule(Batch::new(batch.node, batch.time, &sent)).await?;
        let (now, pairs) = (applied.now, batch.operations.iter().zip(&sent));
        for ((operation, sent), reply) in pairs.zip(&mut applied.replies) {
            let Ok(answered) = reply else { continue };
            *reply = match (self.planted, &operation.action, answered) {
                (Planted::EndsWithoutRuns, Action::Claim(claim), Reply::Claimed(claimed))
                    if is_once(claim) && self.is_hit() =>
                {
                    end_at_once(store, batch, operation.name, claimed.fence).await
                }
                (.., answered) => Ok(self.told(operation, sent, answered.clone(), now)),
            };
        }
        Ok(applied)
    }

    /// Claims go through `reschedule`.
    fn claims_due(&self, _: &dyn Queries) -> bool {
        false
    }
}
