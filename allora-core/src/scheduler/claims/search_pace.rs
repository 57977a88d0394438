//! The pace of searches while queries claim what is due, or while the node's capacity is used up.
//! It is slow, because such a search reads again what this node and others are working on.

use crate::scheduler::monotonic::later;
use std::time::{Duration, Instant};

/// The shortest time between two searches while queries claim what is due.
const AGAIN: Duration = Duration::from_millis(250);

/// Searches take at most one such part of the time while queries claim what is due. A search of a
/// backlog takes long on a busy store.
const PART: u32 = 16;

/// The shortest time from a query that other nodes have left little to a search, which would find what
/// their queries have locked and not yet claimed.
const AFTER_OTHERS: Duration = Duration::from_millis(50);

pub(in crate::scheduler) struct SearchPace {
    /// The time of the last search that began, or at which queries began to claim what it has found.
    last: Instant,
    /// The earliest time of the next search.
    not_before: Instant,
    /// The time at which the last search began, and the time that it took.
    began: Instant,
    took: Duration,
}

impl SearchPace {
    pub(in crate::scheduler) fn new(now: Instant) -> Self {
        Self { last: now, not_before: now, began: now, took: Duration::ZERO }
    }

    /// A search begins.
    pub(in crate::scheduler) fn begins(&mut self, now: Instant) {
        (self.began, self.last) = (now, now);
    }

    /// A search has replies.
    pub(in crate::scheduler) fn ends(&mut self, now: Instant) {
        self.took = self.since_begin(now);
    }

    /// The time since the last search began.
    pub(in crate::scheduler) fn since_begin(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// Queries begin to claim what a search has found.
    pub(in crate::scheduler) fn claims_begin(&mut self, now: Instant) {
        self.last = now;
    }

    /// Other nodes have claimed a part of what a query was for.
    pub(in crate::scheduler) fn was_shared(&mut self, now: Instant) {
        self.not_before = later(now, AFTER_OTHERS);
    }

    /// The earliest time of the next search, except by polling. `is_busy`: queries claim what is due,
    /// or it waits for capacity.
    pub(in crate::scheduler) fn next(&self, is_busy: bool, poll_interval: Duration) -> Instant {
        let wait = AGAIN.max(self.took.saturating_mul(PART).min(poll_interval));
        let again = is_busy.then(|| later(self.last, wait));
        again.map_or(self.not_before, |again| again.max(self.not_before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_secs(5);

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an instant has no other source")]
    fn searches_take_a_sixteenth_of_the_time_at_most() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        for (took, next) in [(1, 250), (100, 1_600), (10_000, 5_000)] {
            let mut pace = SearchPace::new(start);
            pace.begins(start);
            pace.ends(after(took));
            assert_eq!(pace.next(true, POLL), after(next), "{took}");
            assert_eq!(pace.next(false, POLL), start, "{took}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an instant has no other source")]
    fn a_search_waits_for_the_queries_of_other_nodes() {
        let start = Instant::now();
        let mut pace = SearchPace::new(start);
        pace.was_shared(start);
        assert_eq!(pace.next(false, POLL), start + AFTER_OTHERS);
        pace.claims_begin(start);
        assert_eq!(pace.next(true, POLL), start + AGAIN);
    }
}
