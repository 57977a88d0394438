//! A node's estimate of the store's time between two replies.

use crate::time::{Time, saturating_add};
use std::time::{Duration, Instant};

/// The store's time in its last reply, advanced by this node's monotonic clock, so that a step of
/// the wall clock moves no timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreClock {
    time: Time,
    at: Instant,
}

impl StoreClock {
    /// Starts with the node's own time, until the first reply.
    pub(crate) fn new(wall: Time, at: Instant) -> Self {
        Self { time: wall, at }
    }

    pub(crate) fn now(&self, at: Instant) -> Time {
        saturating_add(self.time, at.saturating_duration_since(self.at))
    }

    /// The time since the last reply, or since the start.
    pub(crate) fn age(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.at)
    }

    /// Applies a reply: the store's clock showed `time` at some moment from `sent` to `got`. The
    /// estimate changes only as far as it contradicts that.
    pub(crate) fn observe(&mut self, sent: Instant, got: Instant, time: Time) {
        let latest = saturating_add(time, got.saturating_duration_since(sent)).max(time);
        *self = Self { time: self.now(got).clamp(time, latest), at: got };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;

    /// Checks the estimate of a node whose wall clock shows 0 and that receives `shown` after
    /// `trip`.
    #[track_caller]
    fn check(shown: i64, trip: u64, believes: i64) {
        #[expect(clippy::disallowed_methods, reason = "an `Instant` cannot be made from nothing")]
        let start = Instant::now();
        let time = |ms: i64| from_millis(1_000_000 + ms).unwrap();
        let mut clock = StoreClock::new(time(0), start);
        let got = start + Duration::from_millis(trip);
        clock.observe(start, got, time(shown));
        assert_eq!(clock.now(got), time(believes));
        assert_eq!(clock.now(got + Duration::from_millis(7)), time(believes + 7));
    }

    #[test]
    fn clocks_that_agree_are_left_alone() {
        check(4, 10, 10);
    }

    #[test]
    fn a_clock_that_cannot_be_right_is_moved_as_far_as_needed() {
        check(500, 10, 500);
        check(-500, 10, -490);
    }
}
