//! The delays of nodes that may do the same work, by their ranks: the first node begins at once.

use std::time::Duration;

/// The delays of the nodes for one sort of work. The first node has none.
pub(super) struct Delays {
    /// The delay of the second node, and the distance of each further one from the one before it.
    step: Duration,
    /// The last rank with a delay of its own.
    last: u32,
    /// The delay of all others.
    others: Duration,
}

/// For an occurrence of a job in code: to look at it. The second and the third node check soon after
/// the time, so that a job whose first node has died starts within that delay. All others leave it to
/// the [watch](super::watch).
pub(super) const JOB: Delays = Delays { step: millis(20), last: 2, others: WATCHED };

/// For a stored schedule that a search has found: to claim it.
pub(super) const FOUND: Delays = Delays { step: millis(200), last: 3, others: millis(600) };

/// For the stored schedules that are due at one instant: to query and claim them. Queries at the same
/// time would lock the rows in turn, each with more work than alone.
pub(super) const QUERY: Delays = Delays { step: millis(10), last: 4, others: millis(40) };

/// For a job that was left to other builds, which may have gone: to read it again. One node is enough
/// to set its definition.
pub(super) const CONFLICT: Delays =
    Delays { step: millis(20), last: u32::MAX, others: Duration::MAX };

/// The delay of all nodes but the first three for a job in code.
pub(super) const WATCHED: Duration = millis(500);

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Delays {
    /// The delay of the node of this rank. `window`: the longest delay of a start.
    pub(super) fn of(&self, rank: usize, window: Option<Duration>) -> Duration {
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        let delay = if rank <= self.last { self.step.saturating_mul(rank) } else { self.others };
        // An occurrence that may be late only by so much is not missed because of it.
        window.map_or(delay, |window| delay.min(window / 2))
    }

    /// The rank that has this delay of its own; `None` for that of the first node, and of all others.
    pub(super) fn rank_of(&self, delay: Duration) -> Option<u32> {
        (1..=self.last).find(|rank| self.step * *rank == delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_node_claims_the_next_two_check_soon_and_the_others_half_a_second_later() {
        let delays = [0, 1, 2, 3, 4, 99, usize::MAX].map(|rank| JOB.of(rank, None).as_millis());
        assert_eq!(delays, [0, 20, 40, 500, 500, 500, 500]);
    }

    #[test]
    fn queries_and_claims_of_what_was_found_follow_each_other_up_to_a_last_node() {
        let of = |delays: &Delays| [0, 1, 3, 4, 9].map(|rank| delays.of(rank, None).as_millis());
        assert_eq!(of(&QUERY), [0, 10, 30, 40, 40]);
        assert_eq!(of(&FOUND), [0, 200, 600, 600, 600]);
        assert_eq!(of(&CONFLICT), [0, 20, 60, 80, 180]);
        assert_eq!(QUERY.of(9, Some(millis(30))), millis(15), "half of a window");
    }
}
