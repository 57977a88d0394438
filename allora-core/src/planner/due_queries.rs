//! The queries that find and claim, what is due for them, and what they have claimed.

use super::{
    backlog::Backlog, congestion_window::CongestionWindow, decide::completion_of, known::Known,
};
use crate::{
    backend::{Action, Advance, Claimed, Cursor, JobState},
    job::JobSpec,
    registry::Ranking,
    time::{Time, saturating_add},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The distance of the queries of two nodes for what is due at one instant. Queries at the same time
/// would lock the rows in turn, each with more work than alone.
const STEP: Duration = Duration::from_millis(10);

/// The most nodes that query one after the other: an instant whose first nodes have died is late by as
/// many steps.
const MAX_RANK: u32 = 4;

/// The most instants whose turns are compared: this node may be the first for a later one.
const MAX_TURNS: usize = 8;

const MILLI: Duration = Duration::from_millis(1);

/// The time without a reply after which what a query is for is searched and claimed by other requests,
/// too: it may have been lost on its way to the store.
const LATE: Duration = Duration::from_secs(1);

/// A query that finds and claims, to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueRequest {
    pub(crate) claim_id: u128,
    pub(crate) limit: usize,
    pub(crate) is_repeated: bool,
}

/// `true` for a kind that queries claim.
pub(crate) type ClaimsKind = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The claims by queries of this node.
#[derive(Default)]
pub(super) struct DueClaims {
    /// Says which kinds are claimed by queries; `None` if the store makes no such claims.
    pub(super) claims: Option<ClaimsKind>,
    /// The order of the nodes that run the same kinds.
    pub(super) ranking: Ranking,
    /// The schedules that the last search has found, and a query claims, by their due times.
    pub(super) found: BTreeMap<Time, DueGroup>,
    /// The next occurrences of what queries have claimed before.
    pub(super) next: BTreeMap<Time, DueGroup>,
    /// The node asks for many kinds, each of which costs a query a step. Schedules have claims of their
    /// own then.
    pub(super) has_many_kinds: bool,
    /// The last search did not return all that was due.
    pub(super) is_crowded: bool,
    /// There is more than is known, and none of it was due before this time.
    pub(super) more_since: Option<Time>,
    /// The last query was for schedules that were found, or are the next ones of what was claimed.
    pub(super) is_known: bool,
    /// The searches have no reply: queries claim what they would find.
    pub(super) is_blind: bool,
    /// The store's time of the last query that claimed all that it could.
    pub(super) exhausted_at: Option<Time>,
    /// The last query claimed less than it could have, because other nodes claim, too.
    pub(super) was_shared: bool,
    /// The query that is on its way.
    pub(super) asked: Option<Asked>,
    /// Queries whose replies were lost, also those to a repetition. They reserve no capacity: what they
    /// have claimed is released.
    pub(super) lost: Vec<Asked>,
    /// The largest limit of a query: one that is lost may have been too large for the store.
    pub(super) window: CongestionWindow,
    /// The limit of the last query, and since when there has been less capacity than that.
    pub(super) last: usize,
    pub(super) gathers_since: Option<Time>,
    /// Claimed occurrences that are to be planned.
    pub(super) unplanned: Vec<Unplanned>,
    /// The number of those about which an operation is on its way.
    pub(super) sent: usize,
}

/// Schedules that are due at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DueGroup {
    pub(super) count: usize,
    /// The shortest window among them.
    window: Option<Duration>,
}

impl DueGroup {
    pub(super) fn add(&mut self, window: Option<Duration>) {
        self.count += 1;
        self.window = self.window.into_iter().chain(window).min();
    }
}

impl DueClaims {
    /// The number of schedules that are known to be due.
    pub(super) fn known(&self, now: Time) -> usize {
        let due = self.found.range(..=now).chain(self.next.range(..=now));
        due.map(|(_, group)| group.count).sum()
    }

    /// The time at which a query was sent that has no reply for long.
    pub(super) fn late_since(&self, now: Time) -> Option<Time> {
        let late = self.asked.as_ref().filter(|asked| asked.late_at() <= now);
        late.map(|asked| asked.sent_at)
    }

    /// The first time at which it is this node's turn to claim what is due.
    pub(super) fn first_turn(&self) -> Option<Time> {
        let turn = |(due_at, group): (&Time, &DueGroup)| {
            let rank = u32::try_from(self.ranking.rank_at(*due_at)).unwrap_or(MAX_RANK);
            // An occurrence that may be late only by so much is not missed because of it.
            let longest = group.window.map_or(Duration::MAX, |window| window / 2);
            saturating_add(*due_at, (STEP * rank.min(MAX_RANK)).min(longest))
        };
        let times = [&self.found, &self.next].into_iter();
        times.flat_map(|times| times.iter().take(MAX_TURNS).map(turn)).min()
    }

    /// The number of schedules for which a query with this capacity claims before anything that is due
    /// at `at`; at the same time, if `has_precedence`.
    pub(super) fn before(&self, at: Time, has_precedence: bool, room: usize) -> usize {
        let is_before = |due_at: Time| due_at < at || has_precedence && due_at == at;
        let count = match self.more_since {
            Some(since) if is_before(since) => room.div_ceil(2),
            Some(_) => 0,
            None => {
                let times = self.found.range(..=at).chain(self.next.range(..=at));
                times.filter(|(due_at, _)| is_before(**due_at)).map(|(_, group)| group.count).sum()
            }
        };
        count.min(self.window.size())
    }

    /// No query claims what is due by now and still there.
    pub(super) fn exhaust(&mut self, now: Time) {
        (self.more_since, self.exhausted_at) = (None, Some(now));
        let after = saturating_add(now, MILLI);
        self.found = self.found.split_off(&after);
        self.next = self.next.split_off(&after);
    }
}

/// The lease of an occurrence that has no run when the node stops.
pub(crate) struct LeftLease {
    pub(crate) name: Arc<str>,
    pub(crate) fence: i64,
    /// The cursor's move by a completion, if it is known.
    pub(crate) then: Option<Cursor>,
    /// The claim, if a lost request may have changed the fence.
    pub(crate) claim_id: Option<u128>,
}

/// A query without a reply.
pub(super) struct Asked {
    pub(super) request: DueRequest,
    pub(super) sent_at: Time,
    /// A search was asked for because it is late.
    pub(super) was_late: bool,
    /// The time at which it is repeated, if its reply was lost.
    pub(super) repeat_at: Time,
    pub(super) wait: Duration,
    /// The number of times that it was among the lost ones.
    pub(super) losses: u32,
}

impl Asked {
    /// The time from which it is late.
    pub(super) fn late_at(&self) -> Time {
        saturating_add(self.sent_at, LATE)
    }

    pub(super) fn is_doubtful(&self) -> bool {
        self.losses > 0
    }
}

/// A claimed occurrence that is not run as it is, or whose plan is not ready.
#[derive(Debug)]
pub(super) struct Unplanned {
    /// The record, after the claim.
    pub(super) state: JobState,
    pub(super) spec: Option<JobSpec>,
    pub(super) claimed: Claimed,
    /// The times of the schedule that were walked.
    pub(super) backlog: Option<Box<Backlog>>,
    pub(super) step: Step,
}

/// The next operation on a claimed occurrence.
#[derive(Debug)]
pub(super) enum Step {
    Undecided,
    /// The policies leave it out.
    Advance(Advance),
    /// It is run: its lease may have become short.
    Extend(Duration),
    /// This node cannot run it.
    Release,
}

impl Unplanned {
    pub(super) fn action(&self) -> Action<'_> {
        let fence = self.claimed.fence;
        match self.step {
            Step::Advance(advance) => Action::Advance(advance),
            Step::Extend(duration) => Action::Extend { fence, duration },
            Step::Undecided | Step::Release => Action::Release { fence },
        }
    }

    /// The lease, when the node stops.
    pub(super) fn left(self) -> LeftLease {
        let (name, fence) = (self.name(), self.claimed.fence);
        let then = self.spec.as_ref().and_then(|spec| {
            let started = self.state.counters.started;
            completion_of(&name, spec, &self.claimed.occurrence, started).ok()
        });
        let lease = self.state.leases.iter().find(|lease| lease.fence == fence);
        LeftLease { name, fence, then, claim_id: lease.map(|lease| lease.claim_id) }
    }

    pub(super) fn name(&self) -> Arc<str> {
        self.state.name.as_str().into()
    }

    /// The record as it was before the claim.
    pub(super) fn before(&self, now: Time) -> Known {
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
}
