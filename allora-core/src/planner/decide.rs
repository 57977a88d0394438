//! The decision about one job at one time: the policies, as one pure function.

use super::known::{Known, Leased};
use crate::{
    backend::{Advance, Claim, Cursor, NextRun, NotRun, NotRunReason, Occurrence, Sharing},
    job::{CatchUp, CheckedSchedule, Delivery, InvalidNextAt, JobSpec, Overlap},
    record::MAX_LEASES,
    time::{Time, saturating_add},
};
use std::time::Duration;

/// A decision about one job.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// Nothing is due.
    Wait,
    /// Claim this occurrence; `then` is the cursor's move by the completion.
    Claim { claim: Claim, then: Cursor },
    /// Move the cursor without a run.
    Advance(Advance),
    /// The lease of an at-most-once run has ended: record the run as lost.
    Reap,
    /// The attempts at an occurrence whose lease has ended are used up.
    GiveUp(GiveUp),
    /// Active runs block it. The first of them ends at this time at the latest: read the record
    /// again before that.
    Blocked(Time),
    /// Runs were active before it became due, and may have ended since: read the record.
    Read,
}

/// A dead letter instead of another claim.
#[derive(Clone, Debug)]
pub(crate) struct GiveUp {
    pub(crate) fence: i64,
    pub(crate) occurrence: Occurrence,
    pub(crate) attempts: u32,
    pub(crate) then: Cursor,
    pub(crate) error: String,
}

/// The claim that a node would make, as far as it does not depend on the job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant {
    /// The id of the claim.
    pub(crate) claim_id: u128,
    /// The lease of an at-most-once run.
    pub(crate) lost_after: Duration,
    /// The number of attempts beyond the retry policy for runs without a result.
    pub(crate) extra_attempts: u32,
    /// The job's last claim was one of the cursor's occurrence, by this node.
    pub(crate) cursor_went_last: bool,
}

/// Decides about one job.
pub(crate) fn decide(
    name: &str,
    spec: &JobSpec,
    known: &Known,
    now: Time,
    claimant: Claimant,
) -> Result<Decision, InvalidNextAt> {
    if known.next_lease_end().is_some_and(|until| until <= now) {
        return Ok(Decision::Reap);
    }
    let (Some(head), Some(due_at)) = (&known.head, known.due_at) else {
        return Ok(Decision::Wait);
    };
    if due_at > now {
        return Ok(Decision::Wait);
    }
    if let Some(lease) = &known.leased
        && matches!(spec.settings.delivery, Delivery::AtLeastOnce { .. })
        && spec.settings.retry.is_exhausted(lease.attempt, claimant.extra_attempts)
    {
        let then = completion_of(name, spec, head, known.started)?;
        return Ok(Decision::GiveUp(give_up(lease, head, then)));
    }
    let schedule = CheckedSchedule::of(name, spec);
    if known.is_open_cursor(head) {
        let due = Due { schedule, spec, known, first: head.scheduled_at, due_at, now };
        return due.decide(claimant);
    }
    // Triggers do not keep the schedule waiting: one of them runs before the cursor at most.
    let cursor = known.open_cursor().filter(|next| {
        head.trigger.is_some() && !known.paused && next.due_at <= now && !claimant.cursor_went_last
    });
    if let Some(next) = cursor {
        let due = Due { schedule, spec, known, first: next.scheduled_at, due_at: next.due_at, now };
        if let claim @ Decision::Claim { .. } = due.decide(claimant)? {
            return Ok(claim);
        }
    }
    other_head(name, spec, known, (head, due_at), claimant)
}

fn give_up(lease: &Leased, head: &Occurrence, then: Cursor) -> GiveUp {
    let Leased { fence, attempt } = *lease;
    let error = format!(
        "given up after {attempt} attempts: the last one ended without a result, because its \
         process ended or its lease was not extended; correct the cause, then rerun or dismiss it"
    );
    GiveUp { fence, occurrence: head.clone(), attempts: attempt, then, error }
}

/// A trigger, or the occurrence of an expired or failed run: claimed as it is.
fn other_head(
    name: &str,
    spec: &JobSpec,
    known: &Known,
    (head, due_at): (&Occurrence, Time),
    claimant: Claimant,
) -> Result<Decision, InvalidNextAt> {
    if let Some(until) = no_room(spec, known) {
        return Ok(if known.as_of < due_at { Decision::Read } else { Decision::Blocked(until) });
    }
    // Started at least once, and now claimed at most once: the cursor is still on it.
    let cursor = if known.is_at_cursor(head) {
        Cursor::To(CheckedSchedule::of(name, spec).following(head.scheduled_at, known.started)?)
    } else {
        Cursor::Keep
    };
    let claim = claim(spec, known, head.clone(), cursor, claimant);
    let then = completion_of(name, spec, head, known.started)?;
    Ok(Decision::Claim { claim, then })
}

/// The cursor's move by the completion of a run, when `started` occurrences were started, including
/// this one. It is computed before the run, so that a bad `next_at` is detected early.
pub(crate) fn completion_of(
    name: &str,
    spec: &JobSpec,
    occurrence: &Occurrence,
    started: u64,
) -> Result<Cursor, InvalidNextAt> {
    match spec.settings.delivery {
        Delivery::AtLeastOnce { .. } if occurrence.trigger.is_none() => {
            let schedule = CheckedSchedule::of(name, spec);
            Ok(Cursor::To(schedule.following(occurrence.scheduled_at, started)?))
        }
        _ => Ok(Cursor::Keep),
    }
}

/// A schedule whose next occurrence is due, and perhaps others after it.
struct Due<'a> {
    schedule: CheckedSchedule<'a>,
    spec: &'a JobSpec,
    known: &'a Known,
    first: Time,
    due_at: Time,
    now: Time,
}

impl Due<'_> {
    fn decide(&self, claimant: Claimant) -> Result<Decision, InvalidNextAt> {
        let latest = self.latest()?;
        if let Some(too_late) = self.too_late(latest)? {
            return self.advance(too_late, NotRunReason::Window);
        }
        let start = match self.spec.settings.catch_up {
            CatchUp::All { limit } => self.last_of(latest, limit)?,
            CatchUp::Latest | CatchUp::None => latest,
        };
        if let Some(until) = no_room(self.spec, self.known) {
            return match self.spec.settings.overlap {
                _ if self.known.as_of < self.due_at => Ok(Decision::Read),
                Overlap::Skip => self.advance(latest, NotRunReason::Overlap),
                Overlap::Allow | Overlap::Wait => Ok(Decision::Blocked(until)),
            };
        }
        let next = Cursor::To(self.after(start, 1)?);
        let expected = Occurrence::from(self.first);
        let mut claim = claim(self.spec, self.known, expected, next, claimant);
        if start > self.first {
            let count = self.schedule.count(self.first, start)?;
            let last = self.last_before(start)?;
            let not_run = NotRun { count, last, reason: NotRunReason::CatchUp };
            let start = self.schedule.next(start).unwrap_or_else(|| start.into());
            claim = claim.starting(start, not_run);
        }
        claim.not_after = self.window_end(start);
        // At most once, the claim moves the cursor.
        let then = if claim.then == Cursor::Keep { next } else { Cursor::Keep };
        Ok(Decision::Claim { claim, then })
    }

    /// The latest scheduled time that is due. If the search takes too long, the schedule continues
    /// from now.
    fn latest(&self) -> Result<Time, InvalidNextAt> {
        match self.schedule.latest(self.first, self.now)? {
            Some(latest) => Ok(latest),
            None => {
                let mut latest = self.first;
                // The schedule has no chain: search backwards in growing steps for a scheduled
                // time.
                for seconds in [1, 60, 3_600, 86_400, 31 * 86_400, 366 * 86_400] {
                    let back = self.now - chrono::TimeDelta::seconds(seconds);
                    if let Some(at) = self.schedule.instant_after(back.max(self.first))?
                        && self.schedule.next(at).is_some_and(|next| next.due_at <= self.now)
                    {
                        latest = at;
                        break;
                    }
                }
                Ok(self.schedule.latest(latest, self.now)?.unwrap_or(latest))
            }
        }
    }

    /// The last scheduled time that is too late to run, if even the latest is.
    fn too_late(&self, latest: Time) -> Result<Option<Time>, InvalidNextAt> {
        Ok(self.window_end(latest).is_some_and(|end| end < self.now).then_some(latest))
    }

    /// The end of the window of a scheduled time.
    fn window_end(&self, at: Time) -> Option<Time> {
        let window = self.spec.settings.late_by_at_most()?;
        Some(saturating_add(self.schedule.next(at)?.due_at, window))
    }

    /// The first of the last `limit` scheduled times up to `latest` that the window allows.
    fn last_of(&self, latest: Time, limit: u32) -> Result<Time, InvalidNextAt> {
        let fits = |from: Time| -> Result<bool, InvalidNextAt> {
            Ok(self.window_end(from).is_none_or(|end| end >= self.now)
                && self.are_few(from, latest, limit)?)
        };
        if fits(self.first)? {
            return Ok(self.first);
        }
        // The scheduled times of the chain are ordered: halve the range until one fits while its
        // predecessor does not.
        let (mut low, mut high) = (self.first, latest);
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(at) = self.schedule.latest_of_chain(self.first, middle)? else {
                return Ok(latest);
            };
            if at <= low {
                let Some(next) = self.schedule.instant_after(low)? else { break };
                if next >= high || fits(next)? {
                    high = next.min(high);
                    break;
                }
                low = next;
            } else if fits(at)? {
                high = at;
            } else {
                low = at;
            }
        }
        Ok(high)
    }

    /// `true` if at most `limit` scheduled times lie from `from` to `latest`.
    fn are_few(&self, from: Time, latest: Time, limit: u32) -> Result<bool, InvalidNextAt> {
        if let Some(after) = self.schedule.count(from, latest)? {
            return Ok(after < u64::from(limit));
        }
        let mut at = from;
        for _ in 0..limit {
            match self.schedule.instant_after(at)? {
                Some(next) if at < latest => at = next,
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Moves the cursor past everything up to `last`.
    fn advance(&self, last: Time, reason: NotRunReason) -> Result<Decision, InvalidNextAt> {
        let then = self.after(last, 0)?;
        let count = self.schedule.count(self.first, last)?.map(|count| count + 1);
        let not_run = NotRun { count, last, reason };
        Ok(Decision::Advance(Advance::new(self.known.generation, self.first, not_run, then)))
    }

    fn after(&self, at: Time, more: u64) -> Result<Option<NextRun>, InvalidNextAt> {
        self.schedule.following(at, self.known.started + more)
    }

    fn last_before(&self, start: Time) -> Result<Time, InvalidNextAt> {
        let before = start - chrono::TimeDelta::milliseconds(1);
        Ok(self.schedule.latest_of_chain(self.first, before)?.unwrap_or(self.first))
    }
}

/// The time at which the first active run ends at the latest, if the job may not start beside it.
fn no_room(spec: &JobSpec, known: &Known) -> Option<Time> {
    let limit = match (spec.settings.delivery, spec.settings.overlap) {
        (Delivery::AtMostOnce, Overlap::Allow) => MAX_LEASES,
        _ => 1,
    };
    known.next_lease_end().filter(|_| known.lease_ends.len() >= limit)
}

/// The claim of `expected`. `next` is the cursor's move if the claim makes it.
fn claim(
    spec: &JobSpec,
    known: &Known,
    expected: Occurrence,
    next: Cursor,
    claimant: Claimant,
) -> Claim {
    let Claimant { claim_id, lost_after, .. } = claimant;
    match spec.settings.delivery {
        Delivery::AtLeastOnce { lease } => {
            Claim::at_least_once(claim_id, known.fence, expected, lease)
        }
        Delivery::AtMostOnce => {
            let sharing = match spec.settings.overlap {
                Overlap::Allow => Sharing::Shared,
                Overlap::Skip | Overlap::Wait => Sharing::Exclusive,
            };
            Claim::at_most_once(claim_id, known.fence, expected, next, lost_after, sharing)
        }
    }
}
