//! The state of a job in the store, as of the last reply.
//!
//! If another node has claimed an occurrence, this node does not learn when that run is complete.
//! So when the next occurrence is due, it claims that with the fence it knows, as if the run were
//! over: a completion does not change the fence. If the run is still active, the rejection shows
//! its lease.

use crate::{
    backend::{JobState, Lease, NextRun, Occurrence, OnExpiry, Pause},
    planner::wake_up::recheck,
    record::TOMBSTONE,
    time::{Time, from_millis, saturating_add},
};
use std::time::Duration;

/// The time after which a job that waits for a time of a clock that was ahead is read again: it may
/// have been reset, in a store without notifications.
const AHEAD_RECHECK: Duration = Duration::from_secs(20);

/// The interval at which a paused job with an occurrence that is held back is read again, while nothing
/// tells when it is resumed.
const HELD_BACK: Duration = Duration::from_millis(1_500);

/// The next of the times that are so far from each other: jobs that wait share their requests.
fn on_grid(after: Time, step: Duration) -> Time {
    let step = i64::try_from(step.as_millis()).unwrap_or(i64::MAX).max(1);
    let next = after.timestamp_millis().div_euclid(step).saturating_add(1).saturating_mul(step);
    from_millis(next).unwrap_or(after)
}

/// The current state as of the last reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The time of that reply, by the store's clock.
    pub(crate) as_of: Time,
    pub(crate) generation: i64,
    /// The record's fence. A different fence means a different state.
    pub(crate) fence: i64,
    /// Boxed, as the active runs: most jobs have none of it, and a node may have many.
    rare: Option<Box<Rare>>,
    /// The time from which the head is due; `None` if there is no head.
    pub(crate) due_at: Option<Time>,
    /// The number of counted attempts at the head.
    pub(crate) attempts: u32,
    pub(crate) cursor: Option<NextRun>,
    pub(crate) last_started: Option<Time>,
    pub(crate) started: u64,
    runs: Option<Box<ActiveRuns>>,
    /// The record has times of a store whose clock was ahead.
    pub(crate) is_ahead: bool,
    /// A trigger waits, and the cursor's occurrence was claimed before it.
    pub(crate) trigger_waits: bool,
}

/// The part of the state that few jobs have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rare {
    /// The head, if it is not the cursor's occurrence.
    other_head: Option<Occurrence>,
    /// The pause. One that has ended by itself is there until the record is written or read.
    paused: Option<PauseEnd>,
}

/// The end of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseEnd {
    /// When the schedule is resumed.
    Resumed,
    /// By itself at this time.
    At(Time),
}

/// The active runs of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ActiveRuns {
    /// The head is leased under this fence, and is offered again when the lease has ended.
    leased: Option<i64>,
    /// A lease that is retried on expiry, of a run whose cancellation was requested.
    cancelled: Option<Cancelled>,
    /// Fence and lease end of the runs that are lost on expiry.
    lease_ends: Vec<(i64, Time)>,
    /// The cancellation of all these runs was requested.
    is_ending: bool,
    /// The head is leased by another node. The next occurrence, and the time at which this node
    /// tries it as if that run had been completed.
    after_lease: Option<(NextRun, Time)>,
}

/// A run that was to be cancelled. If its lease ends, its occurrence is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cancelled {
    pub(crate) fence: i64,
    pub(crate) attempts: u32,
    pub(crate) occurrence: Occurrence,
    pub(crate) until: Time,
}

impl PauseEnd {
    fn of(pause: &Pause) -> Self {
        pause.until.map_or(Self::Resumed, Self::At)
    }

    /// `true` if the pause lasts at this time.
    pub(crate) fn is_after(self, now: Time) -> bool {
        match self {
            Self::Resumed => true,
            Self::At(end) => now < end,
        }
    }
}

impl Known {
    pub(crate) fn of(state: &JobState, now: Time) -> Self {
        let lost = state.leases.iter().filter(|lease| lease.on_expiry == OnExpiry::Lost);
        let is_ending = lost.clone().all(|lease| lease.cancel_requested);
        let leased = state.leases.iter().find(|lease| {
            lease.on_expiry == OnExpiry::Retry && Some(&lease.occurrence) == state.head.as_ref()
        });
        let is_cancelled =
            |lease: &&Lease| lease.on_expiry == OnExpiry::Retry && lease.cancel_requested;
        // An attempt that was cancelled while it waited has ended before the run beside it.
        let cancelled = state.leases.iter().filter(is_cancelled).min_by_key(|lease| lease.until);
        let cancelled = cancelled.map(|lease| Cancelled {
            fence: lease.fence,
            attempts: lease.attempt,
            occurrence: lease.occurrence.clone(),
            until: lease.until,
        });
        let runs = (!state.leases.is_empty()).then(|| {
            Box::new(ActiveRuns {
                leased: leased.map(|lease| lease.fence),
                cancelled,
                lease_ends: lost.map(|lease| (lease.fence, lease.until)).collect(),
                is_ending,
                after_lease: None,
            })
        });
        let mut known = Self {
            as_of: now,
            generation: state.generation,
            fence: state.fence,
            rare: None,
            due_at: state.due_at,
            attempts: state.attempts,
            cursor: state.next,
            last_started: state.last_started,
            started: state.counters.started,
            runs,
            is_ahead: false,
            trigger_waits: false,
        };
        known.set_rare(Rare { other_head: None, paused: state.paused.as_ref().map(PauseEnd::of) });
        known.set_head(state.head.as_ref());
        known
    }

    /// `true` if the schedule is paused at this time.
    pub(crate) fn is_paused(&self, now: Time) -> bool {
        self.paused().is_some_and(|end| end.is_after(now))
    }

    /// The end of the pause, which may be over.
    pub(crate) fn paused(&self) -> Option<PauseEnd> {
        self.rare.as_ref()?.paused
    }

    fn other_head(&self) -> Option<&Occurrence> {
        self.rare.as_ref()?.other_head.as_ref()
    }

    fn set_other_head(&mut self, other_head: Option<Occurrence>) {
        self.set_rare(Rare { other_head, paused: self.paused() });
    }

    fn set_rare(&mut self, rare: Rare) {
        self.rare = (rare != Rare::default()).then(|| Box::new(rare));
    }

    /// The occurrence that the record offers next.
    pub(crate) fn head(&self) -> Option<Occurrence> {
        self.due_at?;
        match self.other_head() {
            Some(head) => Some(head.clone()),
            None => self.cursor.map(|next| next.scheduled_at.into()),
        }
    }

    /// Sets the head, but not its due time. The cursor is set before.
    pub(crate) fn set_head(&mut self, head: Option<&Occurrence>) {
        let other = head.filter(|head| !self.is_at_cursor(head));
        self.set_other_head(other.cloned());
    }

    /// `true` if this is the schedule's next occurrence and was not started.
    pub(crate) fn is_open_cursor(&self, occurrence: &Occurrence) -> bool {
        self.is_at_cursor(occurrence) && self.open_cursor().is_some()
    }

    /// `true` if the cursor is at this occurrence, started or not.
    pub(crate) fn is_at_cursor(&self, occurrence: &Occurrence) -> bool {
        occurrence.trigger.is_none()
            && self.cursor.is_some_and(|next| next.scheduled_at == occurrence.scheduled_at)
    }

    /// The schedule's next occurrence, if it was not started.
    pub(crate) fn open_cursor(&self) -> Option<NextRun> {
        self.cursor.filter(|next| self.last_started < Some(next.scheduled_at))
    }

    /// The number of the schedule's occurrences that were started when this one is.
    pub(crate) fn started_with(&self, occurrence: &Occurrence) -> u64 {
        self.started + u64::from(self.is_open_cursor(occurrence))
    }

    /// The time at which the record must be read or claimed, without the schedule's next occurrence.
    pub(crate) fn run_ends_at(&self) -> Option<Time> {
        let is_other = self.other_head().is_some() || self.leased().is_some();
        let cancelled = self.cancelled().map(|cancelled| cancelled.until);
        let ends = self.next_lease_end().into_iter().chain(cancelled);
        self.due_at.filter(|_| is_other).into_iter().chain(ends).min()
    }

    /// A trigger or a retry is offered, of which nodes that were not notified may not know.
    pub(crate) fn waits_for_trigger(&self) -> bool {
        self.other_head().is_some() && self.leased().is_none()
    }

    /// The time at which the record must be read or claimed.
    pub(crate) fn wants_attention(&self) -> Option<Time> {
        let try_at = self.after_lease().map(|(_, try_at)| try_at);
        let cancelled = self.cancelled().map(|cancelled| cancelled.until);
        let ends = self.next_lease_end().into_iter().chain(cancelled);
        self.due_at.into_iter().chain(ends).chain(try_at).min()
    }

    /// The time at which the record is read again, although nothing is due by what is known: a paused
    /// schedule's when an occurrence is held back, and soon after that if `is_told` is `false`, because
    /// no notification says that it is resumed; after 20 s, or as soon, if its times are those of a
    /// clock that was ahead, which an operator may reset; any other's before a tombstone could expire
    /// unseen.
    pub(crate) fn recheck_at(&self, poll: Duration, is_told: bool) -> Time {
        if self.is_ahead {
            return match is_told {
                true => saturating_add(self.as_of, AHEAD_RECHECK),
                false => on_grid(self.as_of, HELD_BACK.min(poll)),
            };
        }
        let longest = saturating_add(self.as_of, TOMBSTONE / 2);
        let Some(next) = self.cursor.filter(|_| self.is_paused(self.as_of)) else { return longest };
        let at = match is_told || next.due_at > self.as_of {
            true => recheck(next.due_at, self.as_of, poll),
            false => on_grid(self.as_of, HELD_BACK.min(poll)),
        };
        at.min(longest)
    }

    /// The time at which the schedule's occurrence is due, if the pause lets it be due.
    pub(crate) fn due_after_pause(&self, next: NextRun) -> Option<Time> {
        match self.paused() {
            None => Some(next.due_at),
            Some(PauseEnd::At(end)) => Some(next.due_at.max(end)),
            Some(PauseEnd::Resumed) => None,
        }
    }

    /// Applies a move of the cursor, when nothing else is known to wait.
    pub(crate) fn go_to(&mut self, next: Option<NextRun>) {
        self.cursor = next;
        self.set_other_head(None);
        self.due_at = next.map(|next| self.due_after_pause(next).unwrap_or(next.due_at));
        self.attempts = 0;
        if let Some(runs) = &mut self.runs {
            (runs.leased, runs.after_lease, runs.cancelled) = (None, None, None);
        }
        self.forget_idle_runs();
    }

    /// Forgets the active runs.
    pub(crate) fn forget_runs(&mut self) {
        self.runs = None;
    }

    /// The fence under which the head is leased.
    pub(crate) fn leased(&self) -> Option<i64> {
        self.runs.as_ref()?.leased
    }

    /// The head is leased under this fence.
    pub(crate) fn set_leased(&mut self, fence: i64) {
        self.make_runs().leased = Some(fence);
    }

    /// The run that was to be cancelled, if its occurrence is offered again when its lease has ended.
    pub(crate) fn cancelled(&self) -> Option<&Cancelled> {
        self.runs.as_ref()?.cancelled.as_ref()
    }

    /// The occurrence after that which another node has leased, and the time at which this node tries
    /// it.
    pub(crate) fn after_lease(&self) -> Option<(NextRun, Time)> {
        self.runs.as_ref()?.after_lease
    }

    pub(crate) fn set_after_lease(&mut self, next: Option<(NextRun, Time)>) {
        if next.is_some() || self.runs.is_some() {
            self.make_runs().after_lease = next;
        }
    }

    /// The number of active runs that are lost on expiry.
    pub(crate) fn leases(&self) -> usize {
        self.runs.as_ref().map_or(0, |runs| runs.lease_ends.len())
    }

    /// The cancellation of all these runs was requested.
    pub(crate) fn is_ending(&self) -> bool {
        self.runs.as_ref().is_none_or(|runs| runs.is_ending)
    }

    /// A run has begun that is lost on expiry.
    pub(crate) fn add_lease(&mut self, fence: i64, until: Time) {
        let runs = self.make_runs();
        runs.lease_ends.push((fence, until));
        runs.is_ending = false;
    }

    /// The lease of the run under this fence was extended.
    pub(crate) fn extend_lease(&mut self, fence: i64, until: Time) {
        let Some(runs) = &mut self.runs else { return };
        for end in runs.lease_ends.iter_mut().filter(|end| end.0 == fence) {
            end.1 = until;
        }
    }

    /// Keeps the runs for whose fence and lease end this is `true`.
    pub(crate) fn retain_leases(&mut self, keep: impl Fn(i64, Time) -> bool) {
        let Some(runs) = &mut self.runs else { return };
        runs.lease_ends.retain(|(fence, until)| keep(*fence, *until));
        self.forget_idle_runs();
    }

    fn forget_idle_runs(&mut self) {
        let Some(runs) = &self.runs else { return };
        let is_idle = runs.lease_ends.is_empty()
            && (runs.leased, &runs.cancelled, runs.after_lease) == (None, &None, None);
        if is_idle {
            self.runs = None;
        }
    }

    fn make_runs(&mut self) -> &mut ActiveRuns {
        // Of no runs, the cancellation of all was requested.
        self.runs
            .get_or_insert_with(|| Box::new(ActiveRuns { is_ending: true, ..Default::default() }))
    }

    /// Assumes that another node's run was completed, when it is time for the occurrence after it.
    /// If it was not, the store rejects the claim and returns the record.
    pub(crate) fn assume_completed(&mut self, now: Time) {
        let leased = self.due_at.is_some_and(|until| until > now);
        if let Some((next, _)) = self.after_lease().filter(|(_, try_at)| leased && *try_at <= now) {
            self.go_to(Some(next));
        }
    }

    /// The earliest lease end of the active runs.
    pub(crate) fn next_lease_end(&self) -> Option<Time> {
        self.runs.as_ref()?.lease_ends.iter().map(|(_, until)| *until).min()
    }
}
