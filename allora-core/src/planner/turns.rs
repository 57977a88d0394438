//! The turns of the nodes: how long this node leaves due work to other nodes.
//!
//! If every node looked at once, all but one would look in vain, and the load on the store would
//! grow with the nodes. So the registry gives each node a rank for each piece of work, and one
//! table says how long a node of that rank waits ([`delays`](super::delays)). If the nodes before
//! it have died, the work is late by that delay, and no longer.
//!
//! How busy a node is tells it how long the others need, so it waits longer then:
//!
//! - The second and third node for a job in code watch the claims that they make themselves at the
//!   same instant. The first node has about as many, so its claims take about as long. While their
//!   own are on their way, and for about as long after that, they do not check the job
//!   ([`own_claims`](super::own_claims)).
//! - A node that claims many stored schedules of its own leaves those of other nodes for longer
//!   ([`shares`](super::shares)).

use super::{
    Planner,
    contention::Contention,
    delays::{CONFLICT, JOB, QUERY},
    job::slot::{Off, Phase, Slot},
    own_claims::OwnClaims,
    shares::Shares,
    slot_id::SlotId,
    wake_up::When,
};
use crate::{
    backend::JobState,
    registry::{OtherBuilds, Ranking, Rankings},
    time::{Time, saturating_add, since},
};
use chrono::DateTime;
use std::{mem, time::Duration};

/// The time from the first node's check of an instant, or of a job that was left to other builds, to the last
/// one's.
const SPREAD: Duration = Duration::from_secs(1);

/// The nodes with the same jobs, as this node last saw them, and what shows how busy they are.
#[derive(Default)]
pub(super) struct Turns {
    jobs: Ranking,
    /// The jobs that other live nodes can run; `None` if that is not known.
    others: Option<OtherBuilds>,
    changes: Changes,
    own_claims: OwnClaims,
    pub(super) contention: Contention,
    pub(super) shares: Shares,
}

/// The changes since the last tick.
#[derive(Clone, Copy, Default)]
pub(super) struct Changes {
    /// The delays have changed.
    pub(super) delays: bool,
    /// The registry was read.
    pub(super) others: bool,
}

impl Turns {
    /// Applies other rankings.
    pub(super) fn set_rankings(&mut self, rankings: Rankings) {
        let Rankings { jobs, kinds, others } = rankings;
        (self.others, self.changes.others) = (others, true);
        self.shares.set_ranking(kinds);
        if self.jobs != jobs {
            (self.jobs, self.changes.delays) = (jobs, true);
        }
    }

    pub(super) fn take_changes(&mut self) -> Changes {
        mem::take(&mut self.changes)
    }

    /// `true` if a live node has not said that its build cannot run the job by its stored definition.
    /// That node may be busy.
    pub(super) fn others_may_run(&self, state: &JobState) -> bool {
        let defined_at = DateTime::from_timestamp_micros(state.generation).unwrap_or_default();
        self.others.as_ref().is_some_and(|others| others.may_run(&state.name, defined_at))
    }

    /// The time for which other nodes have a due occurrence of this job in code to themselves.
    pub(super) fn of_job(&self, name: &str, window: Option<Duration>) -> Duration {
        JOB.of(self.jobs.rank(name), window)
    }

    /// The time for which other nodes have a job to themselves that was left to other builds. Shorter than the
    /// time between two reads of the registry, each of which begins it again.
    pub(super) fn of_conflict(&self, name: &str) -> Duration {
        let rank = self.jobs.rank(name);
        CONFLICT.of(rank, None).min(self.spread(rank))
    }

    /// The time of this rank if all nodes follow each other within a second.
    fn spread(&self, rank: usize) -> Duration {
        SPREAD.mul_f64(rank as f64 / self.jobs.nodes() as f64)
    }

    /// The time at which this node queries what is due at an instant.
    pub(super) fn of_query(&self, due_at: Time, window: Option<Duration>) -> Time {
        saturating_add(due_at, QUERY.of(self.shares.ranking().rank_at(due_at), window))
    }

    /// The time after [`WATCHED`] at which this node checks what is due at an instant.
    pub(super) fn of_check(&self, due_at: Time) -> Duration {
        self.spread(self.jobs.rank_at(due_at))
    }

    /// The time of the next look at a job in code that is due at `due_at`, if it is left to another
    /// node for longer than `turn`: the store is slow.
    pub(super) fn stays_until(&self, due_at: Time, turn: Duration, now: Time) -> Option<Time> {
        let backup = JOB.rank_of(turn)?;
        self.own_claims.others_until(due_at, backup, now)
    }

    /// Notes that this node claims an occurrence of that instant for which it is the first one.
    pub(super) fn own_claim_sent(&mut self, instant: Option<Time>) {
        if let Some(instant) = instant {
            self.own_claims.sent(instant);
        }
    }

    /// Notes that such a claim is not on its way any more. `came_at`: the time of the reply, if one
    /// came.
    pub(super) fn own_claim_ended(&mut self, instant: Option<Time>, came_at: Option<Time>) {
        let Some(instant) = instant else { return };
        self.own_claims.ended(instant);
        // Others wait as long as that in any case.
        if let Some(came_at) = came_at.filter(|at| since(*at, instant) > JOB.of(1, None) / 2) {
            self.own_claims.answered(instant, came_at);
        }
    }
}

impl Planner {
    /// The time for which other nodes have a due occurrence of this job to themselves.
    pub(super) fn turn_of(&self, id: SlotId, slot: &Slot) -> Duration {
        // A job with a claimed concurrency key has had its turn, and wakes up at once.
        if slot.is_stored() || self.keys.get(id).is_some() {
            return Duration::ZERO;
        }
        self.turns.of_job(&slot.name, slot.spec.settings.late_by_at_most())
    }

    /// The time of the next look at a job whose occurrence is left to another node for longer.
    pub(super) fn stays_with_others_until(
        &self,
        id: SlotId,
        turn: Duration,
        now: Time,
    ) -> Option<Time> {
        let slot = self.jobs.get(id).filter(|_| !turn.is_zero())?;
        let Phase::Known(known) = &slot.phase else { return None };
        if slot.spec.settings.late_by_at_most().is_some() {
            return None;
        }
        self.turns.stays_until(known.wants_attention()?, turn, now)
    }

    /// Sets wake-ups again if the order of the nodes has changed.
    pub(super) fn take_turns(&mut self, now: Time) {
        let changes = self.turns.take_changes();
        if changes.others {
            let looks_at = |(id, slot): (SlotId, &Slot)| {
                let Phase::Off(Off::Conflict(_)) = slot.phase else { return None };
                Some((id, saturating_add(now, self.turns.of_conflict(&slot.name))))
            };
            let left: Vec<(SlotId, Time)> = self.jobs.iter().filter_map(looks_at).collect();
            left.into_iter().for_each(|(id, at)| self.wake(id, Some(When::At(at))));
        }
        if changes.delays {
            let is_known = |(id, slot): (SlotId, &Slot)| {
                let is_known = matches!(slot.phase, Phase::Known(_));
                (is_known && !slot.is_stored() && slot.exchange.is_idle()).then_some(id)
            };
            let ids: Vec<SlotId> = self.jobs.iter().filter_map(is_known).collect();
            ids.into_iter().for_each(|id| self.look_again(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{planner::delays::WATCHED, time::from_millis};

    /// A registry may list nodes that do not exist: then the first of those that do must not wait for them.
    #[test]
    fn no_node_waits_longer_than_a_second_for_nodes_that_the_registry_lists_however_many_these_are()
    {
        for nodes in [0, 1, 2, 9, 100, 20_000] {
            let ghosts: Vec<String> = (0..nodes).map(|number| format!("ghost {number}")).collect();
            let ranking = Ranking::new("this node", ghosts.iter().map(String::as_str));
            let mut turns = Turns::default();
            let (jobs, kinds, others) = (ranking.clone(), ranking, None);
            turns.set_rankings(Rankings { jobs, kinds, others });
            for number in 0..50 {
                let (name, at) = (format!("job {number}"), from_millis(number * 1_000).unwrap());
                let waits = [
                    (turns.of_job(&name, None), WATCHED),
                    (turns.of_check(at), SPREAD),
                    (turns.of_conflict(&name), SPREAD),
                    (since(turns.of_query(at, None), at), QUERY.of(usize::MAX, None)),
                ];
                assert!(waits.iter().all(|(wait, bound)| wait <= bound), "{nodes}: {waits:?}");
            }
        }
    }
}
