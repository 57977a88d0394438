//! The job of the model, the operations on it, and the rules that a defect removes.

use crate::{
    Run,
    backend::{Action, Claim, Completion, Cursor, Edit, Operation, Reply, RetryCause},
    error::Result,
    every, job,
    job::{CatchUp, CheckedSchedule, JobSpec, Overlap},
    planner::job::decide::GiveUp,
    record::{HistoryBuffer, OpContext, Record, apply},
    time::{Time, from_millis},
};
use std::time::Duration;

/// The instants of both definitions, in seconds: 10, 20 and 30 at first, and 15 and 30 after the edit.
pub(super) const INSTANTS: [i64; 4] = [10, 15, 20, 30];
/// The place of the trigger behind the instants.
pub(super) const TRIGGER: usize = INSTANTS.len();
/// A lease lasts for one tick and a half.
pub(super) const LEASE: Duration = Duration::from_secs(15);

/// So many seconds after the beginning.
pub(super) fn time(seconds: i64) -> Time {
    from_millis(1_767_225_600_000 + seconds * 1_000).unwrap()
}

/// The place of an occurrence.
pub(super) fn index(occurrence: &crate::backend::Occurrence) -> usize {
    let at = |seconds: &i64| time(*seconds) == occurrence.scheduled_at;
    match occurrence.trigger {
        Some(_) => TRIGGER,
        None => INSTANTS.iter().position(at).unwrap(),
    }
}

/// The bounds of a search.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) delivery: Delivery,
    /// Lost replies, late copies of requests, releases, and crashes: without a bound on releases, fences and claim
    /// ids would grow for ever.
    pub(super) faults: u8,
    /// Changes by a client.
    pub(super) changes: u8,
    pub(super) kinds: &'static [Change],
    /// Ticks of ten seconds that pass at any time. Later ones pass when nothing else can happen.
    pub(super) ticks: u8,
    pub(super) defect: Option<Defect>,
}

/// The policies of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// At least once, and each instant is caught up with.
    AtLeastOnce,
    /// At most once, one run at a time, and the last missed instant is run.
    AtMostOnce,
    /// At most once, and runs overlap.
    Shared,
}

/// A change by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Pause,
    Trigger,
    Edit,
    Delete,
    Recreate,
}

impl Change {
    pub(super) const ALL: &[Self] =
        &[Self::Pause, Self::Trigger, Self::Edit, Self::Delete, Self::Recreate];
}

/// A rule that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    /// A completion is accepted whatever its fence.
    FenceNotComparedAtTheEnd,
    /// An extension is accepted whatever its fence.
    FenceNotComparedAtAnExtension,
    /// A claim is granted whatever fence was read before it.
    FenceNotComparedAtAClaim,
    /// A claim whose reply was lost is sent again under another id.
    ClaimRepeatedWithoutItsId,
    /// An end is not remembered, so its repetition is refused.
    EndNotRemembered,
    /// A completion moves the cursor to the first instant after now.
    CursorFromNow,
    /// A completion leaves the cursor where it is.
    CursorNotMoved,
    /// At most once, the claim leaves the cursor where it is.
    ClaimWithoutCursor,
    /// A claim is granted beside a lease that lasts.
    LeaseNotRespected,
    /// An occurrence whose lease is over is not offered again.
    ExpiredNotOffered,
    /// A run that is lost has no entry in the history.
    LossNotRecorded,
    /// A paused schedule is claimed.
    PauseNotRespected,
    /// A deletion keeps nothing of the job.
    TombstoneForgotten,
    /// An edit is applied to a record that has changed since it was read.
    EditNotCompared,
}

impl Setting {
    /// The job, before or after the edit.
    pub(super) fn spec(&self, is_edited: bool) -> JobSpec {
        let period = Duration::from_secs(if is_edited { 15 } else { 10 });
        let spec = job(every(period), async |_: Run| {}).ending(time(30));
        match self.delivery {
            Delivery::AtLeastOnce => spec.at_least_once(LEASE).catch_up(CatchUp::All { limit: 3 }),
            Delivery::AtMostOnce => spec.overlap(Overlap::Wait),
            Delivery::Shared => spec.overlap(Overlap::Allow),
        }
    }

    /// `true` if the definition has this instant.
    pub(super) fn has(&self, at: Time, is_edited: bool) -> bool {
        CheckedSchedule::of("job", &self.spec(is_edited)).has(at) && at <= time(30)
    }
}

/// A request to the store.
#[derive(Clone, Debug)]
pub(super) enum Sent {
    Claim { id: u8, claim: Claim, then: Cursor },
    Advance(crate::backend::Advance),
    GiveUp(GiveUp),
    Reap,
    Extend { fence: i64 },
    End { fence: i64, then: Cursor, end: End },
    Edit { generation: i64, definition: String, plan: crate::backend::Replan },
    Create { definition: String, first: Option<crate::backend::NextRun> },
    Delete,
    Pause,
    Resume,
    Trigger,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    Succeeded,
    Failed,
    Dead,
    Retried(u8),
    /// Its code had not begun.
    Released,
}

impl Sent {
    fn action(&self) -> Action<'_> {
        match self {
            Sent::Claim { claim, .. } => Action::Claim(claim.clone()),
            Sent::Advance(advance) => Action::Advance(*advance),
            Sent::GiveUp(GiveUp { fence, occurrence, then, error, .. }) => {
                Action::GiveUp { fence: *fence, occurrence: occurrence.clone(), then: *then, error }
            }
            Sent::Reap => Action::Reap,
            Sent::Extend { fence } => Action::Extend { fence: *fence, duration: LEASE },
            Sent::End { fence, then, end } => {
                let (fence, then) = (*fence, *then);
                let completion = match end {
                    End::Succeeded => Completion::Succeeded,
                    End::Failed => Completion::Failed("it failed"),
                    End::Dead => Completion::Dead("it failed"),
                    End::Retried(tick) => {
                        let not_before = time(i64::from(*tick) * 10);
                        let cause = RetryCause::Failed("it failed");
                        return Action::Retry { fence, not_before, cause };
                    }
                    End::Released => return Action::Release { fence },
                };
                Action::Complete { fence, then, completion }
            }
            Sent::Edit { generation, definition, plan } => Action::Modify(Edit {
                definition: Some((definition, *plan)),
                ..Edit::of(*generation)
            }),
            Sent::Create { definition, first } => {
                Action::Create(crate::backend::NewSchedule::new("kind", definition, *first))
            }
            Sent::Delete => Action::Delete,
            Sent::Pause => Action::Pause { note: "", until: None },
            Sent::Resume => Action::Resume,
            Sent::Trigger => Action::trigger("by hand"),
        }
    }

    /// The store's part: the product's function, without the rule that is removed.
    pub(super) fn apply(
        &self,
        slot: &mut Option<Record>,
        now: Time,
        defect: Option<Defect>,
        history: &mut HistoryBuffer,
    ) -> Result<Reply> {
        let mut action = self.action();
        let before = slot.clone();
        let Some(defect) = defect else { return plainly(slot, action, now, history) };
        match (defect, &mut action, slot.as_mut()) {
            (Defect::FenceNotComparedAtTheEnd, Action::Complete { fence, .. }, Some(record))
            | (Defect::FenceNotComparedAtAnExtension, Action::Extend { fence, .. }, Some(record)) =>
            {
                *fence = record.leases.first().map_or(*fence, |lease| lease.fence);
            }
            (Defect::FenceNotComparedAtAClaim, Action::Claim(claim), Some(record)) => {
                claim.fence = record.fence;
            }
            (Defect::ClaimRepeatedWithoutItsId, Action::Claim(claim), Some(record)) => {
                let is_it = |lease: &crate::backend::Lease| lease.claim_id == claim.claim_id;
                claim.claim_id += if record.leases.iter().any(is_it) { 100 } else { 0 };
            }
            (
                Defect::CursorFromNow,
                Action::Complete { then: Cursor::To(next), .. },
                Some(record),
            ) => {
                let later = |next: &crate::backend::NextRun| next.scheduled_at <= now;
                let spec_of = |at: Time| (at + chrono::TimeDelta::seconds(10)).min(time(40));
                if next.as_ref().is_some_and(later) && record.is_live() {
                    *next = Some(spec_of(now)).filter(|at| *at <= time(30)).map(Into::into);
                }
            }
            (Defect::ClaimWithoutCursor, Action::Claim(claim), _) => {
                if claim.then != Cursor::Keep && claim.not_run.is_none() {
                    let (id, fence, expected) =
                        (claim.claim_id, claim.fence, claim.expected.clone());
                    *claim = Claim::at_least_once(id, fence, expected, LEASE);
                }
            }
            (Defect::LeaseNotRespected, Action::Claim(_), Some(record)) => {
                record.leases.iter_mut().for_each(|lease| lease.until = lease.until.min(now));
            }
            (Defect::ExpiredNotOffered, Action::Claim(_), Some(record))
                if !record.leases.is_empty() =>
            {
                return Ok(Reply::State(Box::new(record.state("job"))));
            }
            (Defect::PauseNotRespected, Action::Claim(_), Some(record)) => record.paused = None,
            (Defect::TombstoneForgotten, Action::Create(_), Some(_)) => *slot = None,
            (Defect::EditNotCompared, Action::Modify(edit), Some(record)) => {
                edit.generation = record.generation;
                if let Some((_, plan)) = &mut edit.definition {
                    plan.expected = record.cursor.map(|next| next.scheduled_at);
                }
            }
            _ => {}
        }
        let reply = plainly(slot, action, now, history);
        match (defect, self, slot.as_mut(), before) {
            (Defect::EndNotRemembered, _, Some(record), _) => record.ended = None,
            (Defect::CursorNotMoved, Sent::End { .. }, Some(record), Some(before)) => {
                record.cursor = before.cursor;
            }
            (Defect::PauseNotRespected, Sent::Claim { .. }, Some(record), Some(before)) => {
                record.paused = before.paused;
            }
            _ => {}
        }
        reply
    }
}

fn plainly(
    slot: &mut Option<Record>,
    action: Action<'_>,
    now: Time,
    history: &mut HistoryBuffer,
) -> Result<Reply> {
    apply(slot, &Operation::new("job", action), OpContext::new("", now), history)
}
