//! One occurrence that a query has claimed before any policy was asked. The plan that follows runs
//! it, or moves or ends its lease.

use super::{
    job::backlog::Backlog,
    job::decide::{Claimant, Decision, completion_of},
    job::known::Known,
    job::walk::walk_and_decide,
    places::not_run,
    release::Release,
    start::{Start, moved},
};
use crate::{
    backend::{Action, Advance, Claimed, Cursor, JobState, NextRun, Occurrence, Reply},
    event::Event,
    job::{CheckedSchedule, Delivery, JobSpec},
    time::{Time, since},
};
use std::{sync::Arc, time::Duration};

/// A claimed occurrence that is not run as it is, or whose plan is not ready.
#[derive(Debug)]
pub(super) struct Unplanned {
    /// The record, after the claim.
    pub(super) state: JobState,
    spec: Option<JobSpec>,
    claimed: Claimed,
    /// The times of the schedule that were walked.
    backlog: Option<Box<Backlog>>,
    /// The operation that was planned last.
    step: Option<Step>,
}

/// The decision about a claimed occurrence.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each claim")]
pub(super) enum Plan {
    /// It is run as it was claimed.
    Run(Start),
    /// An operation comes first.
    Ask,
    /// Its schedule must be walked further.
    Walk,
    /// This node cannot run it.
    Release,
}

/// An operation on a claimed occurrence.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The policies leave it out.
    Advance(Advance),
    /// It is run: its lease may have become short.
    Extend(Duration),
}

impl Unplanned {
    pub(super) fn new(state: JobState, claimed: Claimed, spec: Option<JobSpec>) -> Self {
        Self { state, spec, claimed, backlog: None, step: None }
    }

    pub(super) fn name(&self) -> Arc<str> {
        self.state.name.as_str().into()
    }

    /// The operation that was planned.
    pub(super) fn action(&self) -> Action<'_> {
        let fence = self.claimed.fence;
        match self.step {
            None => Action::Read,
            Some(Step::Advance(advance)) => Action::Advance(advance),
            Some(Step::Extend(duration)) => Action::Extend { fence, duration },
        }
    }

    /// The occurrences that the operation has left out, if this is the reply to it.
    pub(super) fn left_out(&self, reply: &Reply) -> Option<Event> {
        let Some(Step::Advance(advance)) = &self.step else { return None };
        let is_moved = match reply {
            Reply::State(state) => state.next == advance.then,
            reply => matches!(reply, Reply::Claimed(_)),
        };
        let kind = self.state.kind.as_str().into();
        is_moved.then(|| not_run(self.name(), kind, advance.expected, &advance.not_run))
    }

    /// Gives the occurrence back.
    pub(super) fn release(self) -> Release {
        let claim_id = claim_of(&self.state, self.claimed.fence);
        Release::claimed(self.name(), self.claimed.fence, self.then(), claim_id)
    }

    /// The cursor's move by the completion of its run; `None` if its schedule is faulty.
    fn then(&self) -> Option<Cursor> {
        let started = self.state.counters.started;
        completion_of(&self.state.name, self.spec.as_ref()?, &self.claimed.occurrence, started).ok()
    }

    /// The record as it was before the claim.
    fn before(&self, now: Time) -> Known {
        let mut known = Known::of(&self.state, now);
        let lease = self.state.leases.iter().find(|lease| lease.fence == self.claimed.fence);
        known.due_at = lease.map(|lease| lease.due_at);
        known.set_head(Some(&self.claimed.occurrence));
        known.attempts = self.claimed.attempt.saturating_sub(1);
        known.last_started = None;
        known.started = known.started.saturating_sub(1);
        known.forget_runs();
        known
    }

    /// The run of the claimed occurrence.
    fn run(&self, spec: JobSpec, then: Cursor, late: Duration) -> Start {
        let (name, claimed) = (self.name(), self.claimed.clone());
        let passes = moved(&claimed.occurrence, [then, Cursor::Keep]);
        let (slot, key, has_room) = (None, None, true);
        Start { slot, name, spec, claimed, then, late, passes, key, has_room }
    }

    /// The run of the claimed occurrence, after a reply; `None` if its schedule is faulty.
    pub(super) fn start(&self, now: Time) -> Option<Start> {
        let due_at = self.claimed.occurrence.scheduled_at;
        Some(self.run(self.spec.clone()?, self.then()?, since(now, due_at)))
    }

    /// Decides about a claimed occurrence.
    pub(super) fn plan(&mut self, claimant: Claimant, now: Time) -> Plan {
        let known = self.before(now);
        let Self { state, spec, backlog, claimed, .. } = self;
        let Some(spec) = spec.as_ref() else { return Plan::Release };
        let was_walked = backlog.is_some();
        let decision = walk_and_decide(&state.name, spec, &known, backlog, now, claimant, 1);
        let fence = claimed.fence;
        let step = match decision {
            Ok(Decision::Walk) => return Plan::Walk,
            Ok(Decision::Claim { claim, then }) => match claim.not_run {
                Some(not_run) => {
                    let scheduled_at = claim.start.scheduled_at;
                    let due_at = claim.start_due_at.unwrap_or(scheduled_at);
                    let then = Some(NextRun { scheduled_at, due_at });
                    let expected = claim.expected.scheduled_at;
                    let schedule = CheckedSchedule::of(&state.name, spec);
                    let excluded = schedule.excluded(expected, scheduled_at).ok().flatten();
                    let advance = Advance::new(state.generation, expected, not_run, then);
                    Step::Advance(advance.excluded(excluded).by_holder(fence))
                }
                None if was_walked => Step::Extend(lease_of(spec)),
                None => {
                    let late = known.due_at.map_or(Duration::ZERO, |due_at| since(now, due_at));
                    let spec = spec.clone();
                    return Plan::Run(self.run(spec, then, late));
                }
            },
            Ok(Decision::Advance(advance)) => Step::Advance(advance.by_holder(fence)),
            // The general way decides, and reports what is wrong.
            Ok(_) | Err(_) => return Plan::Release,
        };
        self.step = Some(step);
        Plan::Ask
    }

    /// Its lease is extended first, and its run begins with the reply.
    pub(super) fn extend(&mut self, start: &Start) {
        self.step = Some(Step::Extend(lease_of(&start.spec)));
    }

    /// The record has changed. Returns whether its occurrence still is this node's.
    pub(super) fn is_still_claimed(&mut self, state: JobState) -> bool {
        let claim_id = claim_of(&self.state, self.claimed.fence);
        let mut leases = state.leases.iter();
        let Some(lease) = leases.find(|lease| Some(lease.claim_id) == claim_id) else {
            return false;
        };
        self.claimed.fence = lease.fence;
        self.claimed.occurrence = Occurrence::clone(&lease.occurrence);
        (self.state, self.backlog) = (state, None);
        true
    }

    /// The store has moved the lease.
    pub(super) fn is_claimed(&mut self, claimed: Claimed) {
        self.claimed = claimed;
    }

    /// The store has extended the lease.
    pub(super) fn is_extended(&mut self, until: Time) {
        self.claimed.until = until;
    }
}

/// The id of the claim under this fence.
fn claim_of(state: &JobState, fence: i64) -> Option<u128> {
    state.leases.iter().find(|lease| lease.fence == fence).map(|lease| lease.claim_id)
}

fn lease_of(spec: &JobSpec) -> Duration {
    match spec.settings.delivery {
        Delivery::AtLeastOnce { lease } => lease,
        Delivery::AtMostOnce => Duration::ZERO,
    }
}
