//! The turn of this node to look at a job in code: at once if it is the first by the ranking, otherwise
//! after a delay in which the first one claims.
//!
//! The second and the third node check soon after the time, so that a job whose first node has died
//! starts within that delay. All others leave it to the [watch](super::watch), half a second after the
//! time.
//!
//! The second and the third node wait for longer if the store needs longer for their own claims of the
//! same instant: the first node has as many, and its claims take as long. They do not check while their own
//! claims are on their way, nor for some time after that ([`own_claims`](super::own_claims)).

use super::{
    Planner,
    slot::{Off, Phase, Slot},
    slot_id::SlotId,
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

/// The delay of all others.
pub(super) const WATCHED: Duration = Duration::from_millis(500);

impl Planner {
    /// Applies other rankings.
    pub(crate) fn set_rankings(&mut self, rankings: Rankings) {
        let Rankings { jobs: ranking, kinds, others } = rankings;
        (self.others, self.turns.others_have_changed) = (others, true);
        self.shares.set_ranking(&kinds);
        self.due_claims.ranking = kinds;
        if self.turns.ranking != ranking {
            (self.turns.ranking, self.turns.have_changed) = (ranking, true);
        }
    }

    /// Reads the jobs again that this node has left to other builds, which may have gone: one node after the
    /// other, because one is enough to set their definitions.
    fn look_at_conflicts(&mut self, now: Time) {
        let looks_at = |(id, slot): (SlotId, &Slot)| {
            let Phase::Off(Off::Conflict(_)) = slot.phase else { return None };
            let rank = u32::try_from(self.turns.ranking.rank(&slot.name)).unwrap_or(u32::MAX);
            Some((id, saturating_add(now, STEP.saturating_mul(rank))))
        };
        let left: Vec<(SlotId, Time)> = self.slots.iter().filter_map(looks_at).collect();
        left.into_iter().for_each(|(id, at)| self.wake(id, Some(at)));
    }

    /// The time for which other nodes have a due occurrence of this job to themselves.
    pub(super) fn turn_of(&self, slot: &Slot) -> Duration {
        // A job with a claimed concurrency key has had its turn, and wakes up at once.
        if slot.is_stored() || slot.key().is_some() {
            return Duration::ZERO;
        }
        let delay = delay(self.turns.ranking.rank(&slot.name));
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

    /// Sets the wake-ups again if the delays have changed.
    pub(super) fn take_turns(&mut self, now: Time) {
        if std::mem::take(&mut self.turns.others_have_changed) {
            self.look_at_conflicts(now);
        }
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
fn delay(rank: usize) -> Duration {
    let rank = u32::try_from(rank).unwrap_or(u32::MAX);
    if rank <= BACKUPS { STEP * rank } else { WATCHED }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_node_claims_the_next_two_check_soon_and_the_others_half_a_second_later() {
        let delays = [0, 1, 2, 3, 4, 99, usize::MAX].map(|rank| delay(rank).as_millis());
        assert_eq!(delays, [0, 20, 40, 500, 500, 500, 500]);
    }
}
