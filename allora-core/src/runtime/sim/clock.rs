//! A simulated node's clocks. All times are nanoseconds of virtual time since the start.

use chrono::TimeDelta;

/// The deviation of a node's clocks from virtual time.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// The lag of the monotonic clock: the sum of the past suspensions.
    lag: u64,
    suspended_at: Option<u64>,
    /// The lead of the wall clock at `drift_since`.
    skew: TimeDelta,
    drift_ppm: i32,
    drift_since: u64,
}

impl Clock {
    pub(super) fn monotonic(&self, time: u64) -> u64 {
        self.suspended_at.unwrap_or(time) - self.lag
    }

    /// The time at which the monotonic clock will show `at` if it is not suspended before.
    pub(super) fn due(&self, at: u64) -> u64 {
        at.saturating_add(self.lag)
    }

    /// The lead of the wall clock over virtual time.
    pub(super) fn skew(&self, time: u64) -> TimeDelta {
        let drift = i128::from(time - self.drift_since) * i128::from(self.drift_ppm) / 1_000_000;
        self.skew.checked_add(&delta(drift)).unwrap_or(self.skew)
    }

    pub(super) fn set_skew(&mut self, time: u64, skew: TimeDelta) {
        (self.skew, self.drift_since) = (skew, time);
    }

    pub(super) fn set_drift(&mut self, time: u64, ppm: i32) {
        self.set_skew(time, self.skew(time));
        self.drift_ppm = ppm;
    }

    pub(super) fn suspend(&mut self, time: u64) {
        self.suspended_at.get_or_insert(time);
    }

    pub(super) fn resume(&mut self, time: u64) {
        if let Some(since) = self.suspended_at.take() {
            self.lag += time - since;
        }
    }
}

/// A number of nanoseconds; fewer than an `i64` of seconds.
pub(super) fn delta(nanos: i128) -> TimeDelta {
    const SECOND: i128 = 1_000_000_000;
    let (seconds, rest) = (nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND));
    TimeDelta::new(seconds as i64, rest as u32).unwrap_or(TimeDelta::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn drift_adds_up_from_when_it_was_set_and_stays_when_it_ends() {
        let mut clock = Clock::default();
        clock.set_drift(10 * SECOND, -100);
        assert_eq!(clock.skew(20 * SECOND), TimeDelta::milliseconds(-1));
        clock.set_drift(20 * SECOND, 0);
        assert_eq!(clock.skew(30 * SECOND), TimeDelta::milliseconds(-1));
    }

    #[test]
    fn a_step_replaces_the_skew_and_the_drift_goes_on() {
        let mut clock = Clock::default();
        clock.set_drift(0, 1000);
        clock.set_skew(5 * SECOND, TimeDelta::zero());
        assert_eq!(clock.skew(6 * SECOND), TimeDelta::milliseconds(1));
    }

    #[test]
    fn the_monotonic_clock_stands_still_while_suspended() {
        let mut clock = Clock::default();
        clock.suspend(3);
        clock.suspend(4);
        assert_eq!(clock.monotonic(10), 3);
        clock.resume(10);
        assert_eq!(clock.monotonic(11), 4);
        assert_eq!(clock.due(4), 11);
    }
}
