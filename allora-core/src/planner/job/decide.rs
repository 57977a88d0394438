//! The decision about one job at one time: all policies, as one pure function.

use super::{
    backlog::Backlog,
    known::{Cancelled, Known},
};
use crate::{
    backend::{Advance, Claim, Cursor, NextRun, NotRun, NotRunReason, Occurrence, Sharing},
    job::{CatchUp, CheckedSchedule, Delivery, InvalidNextAt, JobSpec, Overlap},
    record::{MAX_LEASES, may_overtake},
    time::{Time, saturating_add, since},
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
    /// Request the cancellation of the active runs.
    Replace(Replacement),
    /// The lease of an at-most-once run has ended: record the run as lost.
    Reap,
    /// The attempts at an occurrence that waits for another one are used up, or it is cancelled.
    GiveUp(GiveUp),
    /// Active runs block it. The first of them ends at this time at the latest: read the record
    /// again before that.
    Blocked(Time),
    /// Its due occurrences are to be found first: the schedule computes nothing but the next one.
    Walk,
    /// Runs were active before it became due, and may have ended since: read the record.
    Read,
}

/// The request to cancel the active runs, because the cursor's occurrence is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replacement {
    pub(crate) generation: i64,
    pub(crate) expected: Time,
    /// The occurrence that would be claimed now.
    pub(crate) by: Time,
}

/// A dead letter instead of another claim, or the end of an occurrence that was to be cancelled.
#[derive(Clone, Debug)]
pub(crate) struct GiveUp {
    /// The fence of the run whose lease has ended, or else the record's.
    pub(crate) fence: i64,
    pub(crate) occurrence: Occurrence,
    pub(crate) attempts: u32,
    pub(crate) then: Cursor,
    pub(crate) error: String,
    pub(crate) is_cancelled: bool,
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
    /// The time since which the occurrence waits for its concurrency key.
    pub(crate) waits_since: Option<Time>,
    /// The job's concurrency key is held.
    pub(crate) key_is_held: bool,
}

/// Decides about one job. `backlog`: its due occurrences, if they were found.
pub(crate) fn decide(
    name: &str,
    spec: &JobSpec,
    known: &Known,
    backlog: Option<&Backlog>,
    now: Time,
    claimant: Claimant,
) -> Result<Decision, InvalidNextAt> {
    if known.next_lease_end().is_some_and(|until| until <= now) {
        return Ok(Decision::Reap);
    }
    if let Some(cancelled) = known.cancelled().filter(|one| one.until <= now) {
        return Ok(Decision::GiveUp(give_up_cancelled(name, spec, known, cancelled)?));
    }
    let Some(due_at) = known.due_at.filter(|due_at| *due_at <= now) else {
        return Ok(Decision::Wait);
    };
    let Some(head) = &known.head() else { return Ok(Decision::Wait) };
    if known.paused().is_some() && !known.is_paused(now) && !known.is_open_cursor(head) {
        // Without the pause, another occurrence may be first.
        return Ok(Decision::Read);
    }
    if let Some(error) = used_up(spec, known, claimant.extra_attempts) {
        let then = move_away(name, spec, known, head)?;
        let fence = known.leased().unwrap_or(known.fence);
        let (occurrence, attempts) = (head.clone(), known.attempts);
        let is_cancelled = false;
        let given_up = GiveUp { fence, occurrence, attempts, then, error, is_cancelled };
        return Ok(Decision::GiveUp(given_up));
    }
    let schedule = CheckedSchedule::of(name, spec);
    if known.is_open_cursor(head) {
        let first = head.scheduled_at;
        let waits_since = claimant.waits_since;
        let due = Due { schedule, spec, known, backlog, first, due_at, now, waits_since };
        return due.decide(claimant);
    }
    // Triggers do not keep the schedule waiting: one of them runs before the cursor at most, and none
    // whose run would be replaced at once.
    let goes_first = !claimant.cursor_went_last || spec.settings.overlap == Overlap::Replace;
    let may_overtake = may_overtake(head, known.leased().is_some(), known.is_paused(now));
    let cursor =
        known.open_cursor().filter(|next| may_overtake && next.due_at <= now && goes_first);
    if let Some(next) = cursor {
        let (first, due_at) = (next.scheduled_at, next.due_at);
        let waits_since = claimant.waits_since;
        let due = Due { schedule, spec, known, backlog, first, due_at, now, waits_since };
        let decision = due.decide(claimant)?;
        if matches!(decision, Decision::Claim { .. } | Decision::Walk | Decision::Replace(_)) {
            return Ok(decision);
        }
    }
    let decision = other_head(name, spec, known, (head, due_at), claimant)?;
    let replaces =
        spec.settings.overlap == Overlap::Replace && !known.is_ending() && !known.is_paused(now);
    let next = known.open_cursor().filter(|next| replaces && next.due_at > now);
    Ok(match (decision, next) {
        (Decision::Blocked(until), Some(next)) => Decision::Blocked(until.min(next.due_at)),
        (decision, _) => decision,
    })
}

/// The reason why the head, which was attempted before, is not claimed again.
fn used_up(spec: &JobSpec, known: &Known, extra_attempts: u32) -> Option<String> {
    let attempts = known.attempts;
    match spec.settings.delivery {
        Delivery::AtMostOnce if attempts > 0 => Some(format!(
            "given up after {attempts} attempts, of runs at least once: the job runs at most once \
             now, which allows no other attempt; rerun or dismiss it"
        )),
        Delivery::AtLeastOnce { .. }
            if known.leased().is_some()
                && spec.settings.retry.is_exhausted(attempts, extra_attempts) =>
        {
            Some(format!(
                "given up after {attempts} attempts: the last one ended without a result, because \
                 its process ended or its lease was not extended; correct the cause, then rerun or \
                 dismiss it"
            ))
        }
        _ => None,
    }
}

/// The end of an occurrence whose run was to be cancelled, and has sent no end.
fn give_up_cancelled(
    name: &str,
    spec: &JobSpec,
    known: &Known,
    cancelled: &Cancelled,
) -> Result<GiveUp, InvalidNextAt> {
    let Cancelled { fence, attempts, occurrence, .. } = cancelled.clone();
    let then = move_away(name, spec, known, &occurrence)?;
    let error = String::new();
    Ok(GiveUp { fence, occurrence, attempts, then, error, is_cancelled: true })
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
    // Claimed at least once, released, and now claimed at most once: the cursor is still on it.
    let cursor = move_away(name, spec, known, head)?;
    let claim = claim(spec, known, head.clone(), cursor, claimant);
    let then = completion_of(name, spec, head, known.started)?;
    Ok(Decision::Claim { claim, then })
}

/// The cursor's move away from the head.
fn move_away(
    name: &str,
    spec: &JobSpec,
    known: &Known,
    head: &Occurrence,
) -> Result<Cursor, InvalidNextAt> {
    if !known.is_at_cursor(head) {
        return Ok(Cursor::Keep);
    }
    let schedule = CheckedSchedule::of(name, spec);
    schedule.after_run(head.scheduled_at, known.started)
}

/// The cursor's move by the completion of a run, when `started` occurrences were started, including
/// this one. It is computed before the run, so that a bad `next_at` is detected early.
pub(crate) fn completion_of(
    name: &str,
    spec: &JobSpec,
    occurrence: &Occurrence,
    started: u64,
) -> Result<Cursor, InvalidNextAt> {
    let schedule = CheckedSchedule::of(name, spec);
    match spec.settings.delivery {
        _ if occurrence.trigger.is_some() => Ok(Cursor::Keep),
        Delivery::AtMostOnce if !schedule.follows_end() => Ok(Cursor::Keep),
        _ => schedule.after_run(occurrence.scheduled_at, started),
    }
}

/// A schedule whose next occurrence is due, and perhaps others after it.
struct Due<'a> {
    schedule: CheckedSchedule<'a>,
    spec: &'a JobSpec,
    known: &'a Known,
    backlog: Option<&'a Backlog>,
    first: Time,
    due_at: Time,
    now: Time,
    waits_since: Option<Time>,
}

impl Due<'_> {
    fn decide(&self, claimant: Claimant) -> Result<Decision, InvalidNextAt> {
        if self.schedule.is_excluded(self.first)? {
            return self.leave_out();
        }
        if let Some(later) = self.moved_since()? {
            return Ok(Decision::Blocked(later));
        }
        let Some(latest) = self.latest()? else { return Ok(Decision::Walk) };
        if let Some(too_late) = self.too_late(latest)? {
            return self.advance(too_late, NotRunReason::Window);
        }
        let start = match self.spec.settings.catch_up {
            CatchUp::All { limit } => self.last_of(latest, limit)?,
            CatchUp::Latest | CatchUp::None => {
                Some(self.schedule.first_moved_as(latest, self.first)?)
            }
        };
        let Some(start) = start else { return Ok(Decision::Walk) };
        if let Some(until) = no_room(self.spec, self.known) {
            return match self.spec.settings.overlap {
                _ if self.known.as_of < self.due_at => Ok(Decision::Read),
                Overlap::Skip => self.advance(latest, NotRunReason::Overlap),
                Overlap::Replace if !self.known.is_ending() => {
                    let (generation, expected) = (self.known.generation, self.first);
                    Ok(Decision::Replace(Replacement { generation, expected, by: start }))
                }
                Overlap::Allow | Overlap::Wait | Overlap::Replace => Ok(Decision::Blocked(until)),
            };
        }
        if !claimant.key_is_held && self.has_waited_long() {
            return self.advance(latest, NotRunReason::ConcurrencyKey);
        }
        let next = self.schedule.after_run(start, self.known.started + 1)?;
        let expected = Occurrence::from(self.first);
        let mut claim = claim(self.spec, self.known, expected, next, claimant);
        if start > self.first {
            let (count, last) = self.before(start)?;
            if count.is_none() && self.backlog.is_none() {
                return Ok(Decision::Walk);
            }
            let start = self.schedule.next(start).unwrap_or_else(|| start.into());
            // Without the wait, the key would have been claimed before this one came due.
            let reason = match self.waits_since.is_some_and(|since| start.due_at > since) {
                true => NotRunReason::ConcurrencyKey,
                false => NotRunReason::CatchUp,
            };
            let not_run = NotRun { count, last, reason };
            claim = claim.starting(start, not_run);
        }
        claim.not_after = self.window_end(start);
        // At most once, the claim moves the cursor.
        let then = match claim.then {
            Cursor::To(_) => Cursor::Keep,
            Cursor::Keep | Cursor::AfterEnd => next,
        };
        Ok(Decision::Claim { claim, then })
    }

    /// The time at which the cursor's occurrence is due by the present calendar, if that is later than
    /// the record has it. The client that has changed the calendar corrects the record.
    fn moved_since(&self) -> Result<Option<Time>, InvalidNextAt> {
        if self.schedule.moved(self.first)?.is_none() {
            return Ok(None);
        }
        let due_at = self.schedule.next(self.first).map(|next| next.due_at);
        Ok(due_at.filter(|due_at| *due_at > self.now))
    }

    /// The latest scheduled time that is due; `None` if the schedule must be walked.
    fn latest(&self) -> Result<Option<Time>, InvalidNextAt> {
        match self.backlog {
            Some(backlog) => Ok(Some(backlog.latest())),
            None => self.schedule.latest(self.first, self.now),
        }
    }

    /// The number of scheduled times before `start`, and the last of them.
    fn before(&self, start: Time) -> Result<(Option<u64>, Time), InvalidNextAt> {
        if let Some(backlog) = self.backlog {
            return Ok(backlog.before(start));
        }
        let count = self.schedule.count(self.first, start)?;
        let before = start - chrono::TimeDelta::milliseconds(1);
        let last = self.schedule.latest_of_chain(self.first, before)?;
        Ok((count, last.unwrap_or(self.first)))
    }

    /// The last scheduled time that is too late to run, if even the latest is.
    fn too_late(&self, latest: Time) -> Result<Option<Time>, InvalidNextAt> {
        Ok(self.window_end(latest).is_some_and(|end| end < self.now).then_some(latest))
    }

    /// The end of the window of a scheduled time.
    fn window_end(&self, at: Time) -> Option<Time> {
        let window = self.spec.settings.late_by_at_most()?;
        let due_at = self.schedule.next(at)?.due_at;
        // Without the time of waiting for the key.
        let waited =
            self.waits_since.map_or(Duration::ZERO, |from| since(self.now, from.max(due_at)));
        Some(saturating_add(due_at, window.saturating_add(waited)))
    }

    /// The longest wait for the key is over.
    fn has_waited_long(&self) -> bool {
        let longest = self.spec.settings.max_key_wait;
        let over = longest.zip(self.waits_since);
        over.is_some_and(|(longest, from)| saturating_add(from, longest) <= self.now)
    }

    /// The first of the last `limit` scheduled times up to `latest` that the window allows; `None` if
    /// the schedule must be walked.
    fn last_of(&self, latest: Time, limit: u32) -> Result<Option<Time>, InvalidNextAt> {
        let is_in_window = |at: Time| self.window_end(at).is_none_or(|end| end >= self.now);
        if let Some(backlog) = self.backlog {
            return Ok(Some(backlog.first_of(limit, is_in_window)));
        }
        if self.schedule.count(self.first, latest)?.is_none() {
            return Ok(None);
        }
        let fits = |from: Time| -> Result<bool, InvalidNextAt> {
            let after = self.schedule.count(from, latest)?;
            Ok(is_in_window(from) && after.is_some_and(|after| after < u64::from(limit)))
        };
        if fits(self.first)? {
            return Ok(Some(self.first));
        }
        // The scheduled times of the chain are ordered: halve the range until one fits while its
        // predecessor does not.
        let (mut low, mut high) = (self.first, latest);
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(at) = self.schedule.latest_of_chain(self.first, middle)? else {
                return Ok(Some(latest));
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
        Ok(Some(high))
    }

    /// Moves the cursor past everything up to `last`.
    fn advance(&self, last: Time, reason: NotRunReason) -> Result<Decision, InvalidNextAt> {
        let count = match self.backlog {
            Some(backlog) => backlog.count(),
            None => self.schedule.count(self.first, last)?.map(|count| count + 1),
        };
        if count.is_none() && self.backlog.is_none() {
            return Ok(Decision::Walk);
        }
        let then = self.after(last)?;
        let not_run = NotRun { count, last, reason };
        let excluded = match then {
            Some(next) => self.schedule.excluded(self.first, next.scheduled_at)?,
            None => None,
        };
        let advance = Advance::new(self.known.generation, self.first, not_run, then);
        Ok(Decision::Advance(advance.excluded(excluded)))
    }

    /// Moves the cursor past an occurrence that a calendar excludes since it was planned, and past the
    /// excluded ones after it.
    fn leave_out(&self) -> Result<Decision, InvalidNextAt> {
        let then = self.after(self.first)?;
        let more = match then {
            Some(next) => self.schedule.excluded(self.first, next.scheduled_at)?,
            None => None,
        };
        let (count, last) = match more {
            Some(more) => (more.count.map(|count| count + 1), more.last),
            None => (Some(1), self.first),
        };
        let not_run = NotRun { count, last, reason: NotRunReason::Calendar };
        let advance = Advance::new(self.known.generation, self.first, not_run, then);
        Ok(Decision::Advance(advance))
    }

    /// The occurrence after those up to `at` that are not run. One that follows an end counts from now.
    fn after(&self, at: Time) -> Result<Option<NextRun>, InvalidNextAt> {
        let at = if self.schedule.follows_end() { at.max(self.now) } else { at };
        self.schedule.following(at, self.known.started)
    }
}

/// The time at which the first active run ends at the latest, if the job may not start beside it.
fn no_room(spec: &JobSpec, known: &Known) -> Option<Time> {
    let limit = match (spec.settings.delivery, spec.settings.overlap) {
        (Delivery::AtMostOnce, Overlap::Allow) => MAX_LEASES,
        _ => 1,
    };
    known.next_lease_end().filter(|_| known.leases() >= limit)
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
                Overlap::Skip | Overlap::Wait | Overlap::Replace => Sharing::Exclusive,
            };
            Claim::at_most_once(claim_id, known.fence, expected, next, lost_after, sharing)
        }
    }
}
