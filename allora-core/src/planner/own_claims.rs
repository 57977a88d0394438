//! The time that the store needs for this node's own claims of an instant. Other nodes need about
//! as long for theirs, so the node gives them that time.

use crate::time::{Time, saturating_add, since};
use std::time::Duration;

/// The longest time of own claims that counts. Those of a backlog took longer, whatever the store
/// needs.
const LONGEST: Duration = Duration::from_millis(500);

/// The own claims of an instant that are on their way, and the one that was answered last, of those
/// that were slow.
#[derive(Clone, Copy, Default)]
pub(super) struct OwnClaims {
    on_way: OnWay,
    answered: Option<Answered>,
}

/// Claims without a reply, of the latest instant at which own claims were due.
#[derive(Clone, Copy, Default)]
struct OnWay {
    due_at: Time,
    claims: usize,
}

#[derive(Clone, Copy)]
struct Answered {
    due_at: Time,
    /// The time at which the reply came.
    at: Time,
    /// The time between the two.
    took: Duration,
}

impl OwnClaims {
    /// Notes that an occurrence is claimed that was due at `due_at`.
    pub(super) fn sent(&mut self, due_at: Time) {
        if due_at == self.on_way.due_at {
            self.on_way.claims += 1;
        } else if due_at > self.on_way.due_at || self.on_way.claims == 0 {
            self.on_way = OnWay { due_at, claims: 1 };
        }
    }

    /// Notes that such a claim is not on its way any more.
    pub(super) fn ended(&mut self, due_at: Time) {
        if due_at == self.on_way.due_at {
            self.on_way.claims = self.on_way.claims.saturating_sub(1);
        }
    }

    /// Notes that the reply came at `now`, late enough to count.
    pub(super) fn answered(&mut self, due_at: Time, now: Time) {
        let took = since(now, due_at);
        if took <= LONGEST {
            self.answered = Some(Answered { due_at, at: now, took });
        }
    }

    /// The time after `now` until which the second node (`backup` is 1) or the third (2) leaves an
    /// occurrence to the nodes before it: as long again as own claims took, or have taken so far, and
    /// twice as long for the third node. Claims that stay slow, or whose replies are never noted, do
    /// not extend it without end, and a reply by a clock that was ahead does not count.
    pub(super) fn others_until(&self, due_at: Time, backup: u32, now: Time) -> Option<Time> {
        let answered = self.answered.filter(|last| due_at <= last.due_at && last.at <= now);
        let answered = answered.map(|last| saturating_add(last.at, last.took * backup));
        let is_on_way = self.on_way.claims > 0 && self.on_way.due_at == due_at;
        let on_way = is_on_way.then(|| saturating_add(now, since(now, due_at) * backup));
        let until = answered.max(on_way)?.min(saturating_add(due_at, LONGEST * (backup + 1)));
        (now < until).then_some(until)
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
    fn an_occurrence_is_left_to_others_while_own_claims_are_on_their_way() {
        let mut own = OwnClaims::default();
        own.sent(at(1_000));
        own.sent(at(1_000));
        assert_eq!(own.others_until(at(1_000), 1, at(1_020)), Some(at(1_040)));
        assert_eq!(own.others_until(at(1_000), 2, at(1_040)), Some(at(1_120)));
        assert_eq!(own.others_until(at(990), 1, at(1_020)), None, "another instant");
        own.ended(at(1_000));
        assert_eq!(own.others_until(at(1_000), 1, at(1_040)), Some(at(1_080)), "one is left");
        own.ended(at(1_000));
        assert_eq!(own.others_until(at(1_000), 1, at(1_040)), None);
        own.ended(at(1_000));
        own.sent(at(2_000));
        own.sent(at(1_500));
        assert_eq!(own.others_until(at(1_500), 1, at(2_020)), None, "an earlier instant");
        assert_eq!(own.others_until(at(2_000), 1, at(2_020)), Some(at(2_040)));
    }

    #[test]
    fn claims_without_an_end_leave_an_occurrence_to_others_for_a_bounded_time() {
        for (backup, longest) in [(1, 2_000), (2, 2_500)] {
            let mut own = OwnClaims::default();
            own.sent(at(1_000));
            let (mut now, mut looks) = (at(1_020), 0);
            while let Some(until) = own.others_until(at(1_000), backup, now) {
                (now, looks) = (until, looks + 1);
            }
            assert!(now <= at(longest) && looks <= 8, "until {now}, after {looks} looks");
        }
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
