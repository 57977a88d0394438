//! The stored schedules that a search has found, divided among the nodes that run the same kinds.
//! The first node in the order of a schedule claims it, and the others leave it for a while.
//!
//! Where no query claims, on etcd for example, every node would otherwise find and claim the same
//! schedules. Three of four claims failed, and four nodes together ran less than one alone. To read
//! each schedule that is left, as for jobs in code, would cost as much as the failed claim. A
//! search by names would hide what the other nodes do not run.
//!
//! A schedule that is left has no slot. If its node has not claimed it, a later search finds it
//! again. Nodes whose orders differ claim the same schedules, or claim them one after the other;
//! the fence decides.

use super::delays::FOUND;
use crate::{
    backend::JobState,
    registry::Ranking,
    time::{Time, saturating_add},
};
use std::{sync::Arc, time::Duration};

/// The time beyond its [delay](FOUND) for which a node that claims many of its own leaves the others at
/// most.
const BUSY: Duration = Duration::from_secs(1);

/// The number of claims in a request from which a node is busy with its own.
const MANY: usize = 50;

/// The shortest time from a search to one for what was left.
const PACE: Duration = Duration::from_millis(100);

/// One search in so many does not prefer this node's own, so that a node which always has some takes
/// the late ones of others, too.
const OPEN: u64 = 16;

/// The most schedules of others that a search passes.
const MOST_PASSED: usize = 1_000;

#[derive(Default)]
pub(super) struct Shares {
    /// The order of the nodes that run the same kinds.
    ranking: Arc<Ranking>,
    searches: u64,
    /// Schedules of a higher rank are left, whatever their delay: the search has found better ones, and
    /// not all of them.
    most: Option<usize>,
    /// The time since which each search has left something.
    left_since: Option<Time>,
    /// The last time at which this node claimed many.
    busy_at: Option<Time>,
    /// The time at which the first of what the last search has left is to be searched again.
    again_at: Option<Time>,
    /// The number of schedules that the last search has left.
    left: usize,
}

impl Shares {
    fn is_open(&self) -> bool {
        self.searches.is_multiple_of(OPEN)
    }

    /// Applies another order of the nodes.
    pub(super) fn set_ranking(&mut self, ranking: Ranking) {
        if *self.ranking != ranking {
            self.ranking = Arc::new(ranking);
        }
    }

    /// The order of the nodes that run the same kinds.
    pub(super) fn ranking(&self) -> &Ranking {
        &self.ranking
    }

    /// The order by which a search prefers this node's own; `None` if it prefers none.
    pub(super) fn preferred(&mut self) -> Option<Arc<Ranking>> {
        self.searches += 1;
        (!self.ranking.is_alone() && !self.is_open()).then(|| self.ranking.clone())
    }

    /// Notes that this node claims so many.
    pub(super) fn claims_many(&mut self, claims: usize, now: Time) {
        if claims >= MANY {
            self.busy_at = Some(now);
        }
    }

    /// A search has found records, of which these are new to the node. `is_full`: not all that is due
    /// is among them.
    pub(super) fn divide<'a>(&mut self, new: impl Iterator<Item = &'a JobState>, is_full: bool) {
        self.left = 0;
        if self.again_at.take().is_none() {
            self.left_since = None;
        }
        let divides = is_full && !self.ranking.is_alone() && !self.is_open();
        self.most =
            divides.then(|| new.map(|state| self.ranking.rank(&state.name)).min().unwrap_or(0));
    }

    /// The time at which what the last search has left is searched again.
    pub(super) fn left_until(&self) -> Option<Time> {
        self.again_at
    }

    /// The number of left schedules by which a search extends its limit. Otherwise they would hide
    /// later ones.
    pub(super) fn passed(&self) -> usize {
        self.left.min(MOST_PASSED)
    }

    /// `true` if a found schedule is left to other nodes. `window`: the longest delay of its start.
    pub(super) fn leave_to_others(
        &mut self,
        state: &JobState,
        window: Option<Duration>,
        now: Time,
    ) -> bool {
        let rank = self.ranking.rank(&state.name);
        let ends = state.leases.iter().map(|lease| lease.until);
        let Some(due_at) = state.due_at.into_iter().chain(ends).min().filter(|_| rank > 0) else {
            return false;
        };
        // The clock may have been set back.
        let left_since = self.left_since.map_or(now, |since| since.min(now));
        self.left_since = Some(left_since);
        let since = due_at.max(left_since);
        let step = FOUND.of(rank, None);
        let idle = saturating_add(since.max(self.busy_at.unwrap_or(since)), step);
        let mut until = idle.min(saturating_add(since, BUSY + step));
        let soon = saturating_add(now, PACE);
        let mut again_at = until.max(soon);
        if self.most.is_some_and(|most| rank > most) {
            (until, again_at) = (until.max(soon), due_at.max(soon));
        }
        if let Some(window) = window {
            let half = saturating_add(due_at, window / 2);
            (until, again_at) = (until.min(half), again_at.min(half));
        }
        if until <= now {
            return false;
        }
        self.again_at = Some(self.again_at.map_or(again_at, |at| at.min(again_at)));
        self.left += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;

    const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];

    /// The node of this rank for the schedule `job`, and that schedule, due at 10 s.
    fn node(rank: usize) -> (Shares, JobState) {
        let mut shares = Shares::default();
        let rankings = NODES.iter().map(|own| Ranking::new(own, NODES));
        shares.set_ranking(rankings.into_iter().find(|one| one.rank("job") == rank).unwrap());
        let mut state = JobState::unreadable("job", "");
        (state.kind, state.due_at) = ("mail".into(), Some(at(10_000)));
        (shares, state)
    }

    fn at(ms: i64) -> Time {
        from_millis(ms).unwrap()
    }

    /// `true` if the schedule is left in a page that a search has found at this time.
    fn is_left(shares: &mut Shares, state: &JobState, is_full: bool, ms: i64) -> bool {
        shares.divide([state].into_iter(), is_full);
        shares.leave_to_others(state, None, at(ms))
    }

    #[test]
    fn each_node_waits_longer_than_those_before_it_and_none_much_longer() {
        for (rank, wait) in [(1, 200), (2, 400), (3, 600), (4, 600)] {
            let (mut shares, state) = node(rank);
            for ms in [9_000, 10_000, 10_000 + wait - 1] {
                assert!(is_left(&mut shares, &state, false, ms), "rank {rank} at {ms}");
            }
            assert!(!is_left(&mut shares, &state, false, 10_000 + wait), "rank {rank}");
        }
        let (mut first, state) = node(0);
        assert!(!is_left(&mut first, &state, false, 9_000));
    }

    #[test]
    fn a_busy_node_waits_a_second_longer_and_no_more() {
        let (mut shares, state) = node(1);
        for ms in (9_000..11_200).step_by(100) {
            shares.claims_many(MANY, at(ms));
            assert!(is_left(&mut shares, &state, false, ms), "{ms}");
        }
        shares.claims_many(MANY, at(11_200));
        assert!(!is_left(&mut shares, &state, false, 11_200));
    }

    #[test]
    fn what_has_been_due_for_long_is_left_from_the_time_at_which_it_is_first_seen() {
        let (mut shares, state) = node(1);
        for ms in [500_000, 500_100, 500_199] {
            assert!(is_left(&mut shares, &state, false, ms), "{ms}");
        }
        assert!(!is_left(&mut shares, &state, false, 500_200));
    }

    #[test]
    fn a_clock_that_was_set_back_prolongs_no_wait() {
        let (mut shares, state) = node(1);
        assert!(is_left(&mut shares, &state, false, 500_000));
        shares.claims_many(MANY, at(500_000));
        assert!(is_left(&mut shares, &state, false, 20_000));
        assert!(!is_left(&mut shares, &state, false, 21_200));
    }

    #[test]
    fn of_a_full_page_a_node_takes_only_what_it_is_the_first_for() {
        let (mut shares, state) = node(1);
        let own = (0..).map(|i| format!("own-{i}"));
        let own = own.into_iter().find(|name| shares.ranking.rank(name) == 0).unwrap();
        let page = [state.clone(), JobState { name: own, ..state.clone() }];
        for search in 1..=OPEN {
            let now = at(50_000 + 100 * search as i64);
            assert_eq!(shares.preferred().is_some(), search < OPEN);
            shares.divide(page.iter(), true);
            let is_left = shares.leave_to_others(&state, None, now);
            assert!(!shares.leave_to_others(&page[1], None, now));
            assert_eq!(is_left, search < OPEN, "search {search}");
        }
    }

    #[test]
    fn a_window_halves_the_wait() {
        let (mut shares, state) = node(3);
        let window = Some(Duration::from_millis(100));
        assert!(shares.leave_to_others(&state, window, at(10_049)));
        assert!(!shares.leave_to_others(&state, window, at(10_050)));
    }
}
