//! The turn of this node to look at a job in code: at once if it is the first by the ranking, otherwise
//! after a delay in which the first one claims.
//!
//! The second and the third node check soon after the time, so that a job whose first node has died
//! starts within that delay. All others check after the poll interval.
//!
//! A node that has seen no reason to doubt the ranking for two minutes checks less: the fourth node
//! waits for the poll interval, and each further one four times as long as the one before it. So the
//! number of checks for an occurrence does not grow with the number of nodes. Reasons are a change of
//! the ranking, an occurrence that the first two nodes have left, and a lack of capacity, which other
//! nodes may have, too.
//!
//! The second and the third node wait for longer if the store needs longer for their own claims of the
//! same instant: the first node has as many, and its claims take as long. They do not check while their own
//! claims are on their way, nor for some time after that ([`own_claims`](super::own_claims)).

use super::{
    Planner,
    machine::Turns,
    slot::{Phase, Slot},
    slot_id::SlotId,
    wake_up::MINUTE,
};
use crate::{
    registry::Rankings,
    time::{Time, saturating_add, since},
};
use std::time::Duration;

/// The delay of the second node, and the distance of the third from it.
const STEP: Duration = Duration::from_millis(20);

/// The number of nodes that check within milliseconds, after the first one.
const BACKUPS: u32 = 2;

/// The time for which the ranking is doubted.
const DOUBT: Duration = MINUTE.saturating_mul(2);

impl Turns {
    fn is_doubted(&self, now: Time) -> bool {
        self.trusted_from.is_none_or(|from| now < from)
    }
}

impl Planner {
    /// Applies other rankings.
    pub(crate) fn set_rankings(&mut self, rankings: Rankings) {
        let Rankings { jobs: ranking, kinds } = rankings;
        self.shares.set_ranking(&kinds);
        self.due_claims.ranking = kinds;
        if self.turns.ranking != ranking {
            (self.turns.ranking, self.turns.trusted_from) = (ranking, None);
            self.turns.have_changed = true;
        }
    }

    /// The time for which other nodes have a due occurrence of this job to themselves.
    pub(super) fn turn_of(&self, slot: &Slot) -> Duration {
        // A job with a claimed concurrency key has had its turn, and wakes up at once.
        if slot.is_stored() || slot.key().is_some() {
            return Duration::ZERO;
        }
        let Turns { ranking, .. } = &self.turns;
        let rank = ranking.rank(&slot.name);
        let mut delay = delay(rank, self.poll);
        if self.turns.is_doubted(self.now) {
            delay = delay.min(self.poll);
        }
        // An occurrence that may be late only by so much is not missed because of it.
        let window = slot.spec.settings.late_by_at_most();
        window.map_or(delay, |window| delay.min(window / 2))
    }

    /// The time of the next look at a job whose occurrence is left to another node for longer.
    pub(super) fn stays_with_others_until(
        &self,
        id: SlotId,
        turn: Duration,
        now: Time,
    ) -> Option<Time> {
        if turn.is_zero() {
            return None;
        }
        let slot = self.slots.get(id)?;
        let Phase::Known(known) = &slot.phase else { return None };
        if slot.spec.settings.late_by_at_most().is_some() {
            return None;
        }
        let backup = (1..=BACKUPS).find(|backup| STEP * *backup == turn)?;
        self.turns.own_claims.others_until(known.wants_attention()?, backup, now)
    }

    /// Notes that this node claims an occurrence of that instant for which it is the first one.
    pub(super) fn own_claim_sent(&mut self, instant: Option<Time>) {
        if let Some(instant) = instant {
            self.turns.own_claims.sent(instant);
        }
    }

    /// Notes that such a claim is not on its way any more. `came_at`: the time of the reply, if one came.
    pub(super) fn own_claim_ended(&mut self, instant: Option<Time>, came_at: Option<Time>) {
        let Some(instant) = instant else { return };
        self.turns.own_claims.ended(instant);
        // Others wait as long as that in any case.
        if let Some(came_at) = came_at.filter(|at| since(*at, instant) > STEP / 2) {
            self.turns.own_claims.answered(instant, came_at);
        }
    }

    /// Notes that this node claims an occurrence for which it waited so long. A single node that left
    /// it may only be slow.
    pub(super) fn took_turn(&mut self, waited: Duration, now: Time) {
        if waited >= STEP * BACKUPS {
            self.doubt(now);
        }
    }

    /// Doubts the ranking for a while.
    pub(super) fn doubt(&mut self, now: Time) {
        self.turns.have_changed |= !self.turns.is_doubted(now);
        self.turns.trusted_from = Some(saturating_add(now, DOUBT));
    }

    /// Sets the wake-ups again if the delays have changed.
    pub(super) fn take_turns(&mut self, now: Time) {
        self.turns.trusted_from.get_or_insert(saturating_add(now, DOUBT));
        if !std::mem::take(&mut self.turns.have_changed) {
            return;
        }
        let is_known = |(id, slot): (SlotId, &Slot)| {
            let is_known = matches!(slot.phase, Phase::Known(_));
            (is_known && !slot.is_stored() && slot.exchange.is_idle()).then_some(id)
        };
        let ids: Vec<SlotId> = self.slots.iter().filter_map(is_known).collect();
        ids.into_iter().for_each(|id| self.look_again(id));
    }
}

/// The delay of the node of this rank.
fn delay(rank: usize, poll: Duration) -> Duration {
    let rank = u32::try_from(rank).unwrap_or(u32::MAX);
    match rank.checked_sub(BACKUPS + 1) {
        None => (STEP * rank).min(poll),
        Some(further) => poll.saturating_mul(1 << (2 * further.min(10))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_node_claims_the_next_two_check_soon_and_the_others_later_and_later() {
        let delays: Vec<f64> =
            (0..7).map(|rank| delay(rank, Duration::from_secs(5)).as_secs_f64()).collect();
        assert_eq!(delays, [0., 0.02, 0.04, 5., 20., 80., 320.]);
        assert!(delay(usize::MAX, Duration::from_secs(3_600)) > Duration::from_hours(24));
    }
}
