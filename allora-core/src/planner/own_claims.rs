//! The time that the store needed for a node's own claims of an instant. Other nodes need about as long for
//! theirs.

use crate::time::{Time, saturating_add, since};
use std::time::Duration;

/// The longest time of own claims that counts. Those of a backlog took longer, whatever the store needs.
const LONGEST: Duration = Duration::from_millis(500);

/// The own claim that was answered last, of those that were slow.
#[derive(Clone, Copy, Default)]
pub(super) struct OwnClaims {
    /// The instant at which it was due.
    due_at: Time,
    /// The time of the reply.
    answered_at: Time,
    /// The time between the two.
    took: Duration,
}

impl OwnClaims {
    /// Notes a claim of an occurrence that was due at `due_at`, and answered at `now`.
    pub(super) fn answered(&mut self, due_at: Time, now: Time) {
        let took = since(now, due_at);
        if took <= LONGEST {
            *self = Self { due_at, answered_at: now, took };
        }
    }

    /// The time after `now` until which the second node (`backup` is 1) or the third (2) leaves an
    /// occurrence to the nodes before it. Later claims that are slow, too, do not extend it without end, and
    /// a reply by a clock that was ahead does not count.
    pub(super) fn others_until(&self, due_at: Time, backup: u32, now: Time) -> Option<Time> {
        let counts = due_at <= self.due_at && self.answered_at <= now;
        let until = saturating_add(self.answered_at, self.took * backup);
        let until = until.min(saturating_add(due_at, LONGEST * (backup + 1)));
        (counts && now < until).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;

    fn at(ms: i64) -> Time {
        from_millis(ms).unwrap()
    }

    #[test]
    fn an_occurrence_is_left_to_others_for_as_long_as_own_claims_took() {
        let mut own = OwnClaims::default();
        own.answered(at(1_000), at(1_060));
        assert_eq!(own.others_until(at(1_000), 1, at(1_070)), Some(at(1_120)));
        assert_eq!(own.others_until(at(1_000), 2, at(1_070)), Some(at(1_180)));
        assert_eq!(own.others_until(at(1_000), 1, at(1_120)), None, "that time is over");
        assert_eq!(own.others_until(at(2_000), 1, at(1_070)), None, "a later instant");
        // Behind by more than a slow store explains.
        let mut own = OwnClaims::default();
        own.answered(at(1_000), at(9_000));
        assert_eq!(own.others_until(at(1_000), 1, at(9_001)), None);
    }

    #[test]
    fn claims_that_are_slow_all_the_time_leave_an_occurrence_to_others_for_a_bounded_time() {
        let mut own = OwnClaims::default();
        let mut now = 1_020;
        while now < 10_000 {
            own.answered(at(now - 300), at(now));
            if own.others_until(at(1_000), 1, at(now)).is_none() && now > 1_300 {
                break;
            }
            now += 20;
        }
        assert!(now <= 2_100, "left to others until {now}");
    }

    #[test]
    fn a_clock_that_was_ahead_leaves_nothing_to_others() {
        let mut own = OwnClaims::default();
        own.answered(at(3_600_000), at(3_600_100));
        assert_eq!(own.others_until(at(1_000), 1, at(1_020)), None);
        own.answered(at(2_000), at(2_050));
        assert_eq!(own.others_until(at(2_000), 1, at(2_060)), Some(at(2_100)));
    }
}
