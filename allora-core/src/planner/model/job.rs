//! The job of the record's model, and what nodes and clients send: planned by the functions of the product.

use crate::{
    Run,
    backend::{Action, Completion, Edit, JobState, NewSchedule, Occurrence, RetryCause},
    cron, every, job,
    job::{CatchUp, CheckedSchedule, JobSpec, Overlap, Progress, Redefinition},
    planner::job::{
        decide::{Claimant, Decision, GiveUp, completion_of, decide},
        known::Known,
    },
    time::{Time, from_millis},
};
use std::time::Duration;

/// A lease lasts for one tick and a half.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// The place of the trigger, behind those of the three instants.
pub(super) const TRIGGER: usize = 3;

/// So many seconds after the beginning.
pub(super) fn time(seconds: i64) -> Time {
    from_millis(1_767_225_600_000 + seconds * 1_000).unwrap()
}

/// So many ticks of ten seconds after the beginning.
pub(super) fn after(ticks: u8) -> Time {
    time(i64::from(ticks) * 10)
}

/// The instants of the schedule, one tick after the other, and their places.
pub(super) fn instants() -> impl Iterator<Item = (usize, Time)> {
    (0..TRIGGER).zip((1..).map(after))
}

/// The place of an occurrence; `None` if the schedule does not have it.
pub(super) fn place_of(occurrence: &Occurrence) -> Option<usize> {
    match occurrence.trigger {
        Some(_) => Some(TRIGGER),
        None => instants().find(|(_, at)| *at == occurrence.scheduled_at).map(|(place, _)| place),
    }
}

/// An operation on its way.
pub(super) type Sent = Action<'static>;

/// Delivery, and the policies that go with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Policy {
    /// At least once, and each instant is caught up with.
    AtLeastOnce,
    /// At most once, one run at a time, and the last missed instant is run.
    AtMostOnce,
    /// At most once, and runs overlap.
    Overlapping,
}

/// A change by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// For a while.
    Pause,
    Trigger,
    /// Another text of the schedule, with the same instants.
    Edit,
    /// The same, and what has come by then is not run.
    EditAndSkip,
    Delete,
    Create,
}

/// A run, as its node knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ActiveRun {
    pub(super) fence: i64,
    pub(super) until: Time,
    pub(super) attempt: u32,
    pub(super) occurrence: Occurrence,
}

/// The job, before and after an edit.
pub(super) struct Job {
    policy: Policy,
    specs: [JobSpec; 2],
    definitions: [&'static str; 2],
}

impl Job {
    pub(super) fn new(policy: Policy) -> Self {
        let first = job(every(Duration::from_secs(10)), async |_: Run| {});
        let edited = job(cron("*/10 * * * * *").unwrap(), async |_: Run| {});
        let specs =
            [first, edited].map(|spec| spec.starting(after(1)).ending(after(3))).map(|spec| {
                match policy {
                    Policy::AtLeastOnce => {
                        spec.at_least_once(LEASE).catch_up(CatchUp::All { limit: 3 })
                    }
                    Policy::AtMostOnce => spec.overlap(Overlap::Wait),
                    Policy::Overlapping => spec.overlap(Overlap::Allow),
                }
            });
        let definitions = [&specs[0], &specs[1]].map(|spec| &*spec.definition().leak());
        Self { policy, specs, definitions }
    }

    /// The operation of a node that has just read this.
    pub(super) fn decide(&self, state: &JobState, now: Time, claim_id: u128) -> Option<Sent> {
        let claimant = Claimant {
            claim_id,
            lost_after: LEASE,
            extra_attempts: 1,
            cursor_went_last: false,
            waits_since: None,
            key_is_held: true,
        };
        let spec = &self.specs[usize::from(self.is_edited(state))];
        match decide("job", spec, &Known::of(state, now), None, now, claimant).unwrap() {
            Decision::Claim { claim, .. } => Some(Action::Claim(claim)),
            Decision::Advance(advance) => Some(Action::Advance(advance)),
            Decision::GiveUp(GiveUp { fence, occurrence, then, error, .. }) => {
                Some(Action::GiveUp { fence, occurrence, then, error: error.leak() })
            }
            Decision::Reap => Some(Action::Reap),
            _ => None,
        }
    }

    /// The end of a run. At least once, one that fails is attempted twice.
    pub(super) fn end(&self, run: &ActiveRun, succeeded: bool, now: Time) -> Sent {
        let (fence, error) = (run.fence, "it failed");
        let completion = match (succeeded, self.policy, run.attempt) {
            (true, ..) => Completion::Succeeded,
            (false, Policy::AtLeastOnce, 1) => {
                return Action::Retry { fence, not_before: now, cause: RetryCause::Failed(error) };
            }
            (false, Policy::AtLeastOnce, _) => Completion::Dead(error),
            (false, ..) => Completion::Failed(error),
        };
        let then = completion_of("job", &self.specs[0], &run.occurrence, 1).unwrap();
        Action::Complete { fence, then, completion }
    }

    /// The operation of a client that has just read this, if there is anything to change.
    pub(super) fn change(
        &self,
        change: Change,
        read: Option<&JobState>,
        now: Time,
    ) -> Option<Sent> {
        let [former, new] = [0, 1].map(|i| CheckedSchedule::of("job", &self.specs[i]));
        match (change, read) {
            (Change::Create, None) => {
                let first = former.following(now, 0).unwrap();
                Some(Action::Create(NewSchedule::new("kind", self.definitions[0], first)))
            }
            (Change::Pause, Some(_)) => Some(Action::Pause { note: "", until: Some(now + LEASE) }),
            (Change::Trigger, Some(_)) => Some(Action::trigger("by hand")),
            (Change::Delete, Some(_)) => Some(Action::Delete),
            (Change::Edit | Change::EditAndSkip, Some(state)) if !self.is_edited(state) => {
                let (former, skip) = (Some(former), change == Change::EditAndSkip);
                let progress = Progress::of(state);
                let plan = Redefinition { former, new, same_schedule: false, skip, progress, now };
                let definition = Some((self.definitions[1], plan.plan().unwrap()));
                Some(Action::Modify(Edit { definition, ..Edit::of(state.generation) }))
            }
            _ => None,
        }
    }

    fn is_edited(&self, state: &JobState) -> bool {
        state.definition == self.definitions[1]
    }
}
