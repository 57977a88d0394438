//! Occurrences that queries have claimed. The planner decides about each after the claim: it is
//! run, or its lease moves to another occurrence, or the lease ends.

use super::{
    Planner, Start,
    job::decide::Claimant,
    request::{Request, RequestAction},
    unplanned::{Plan, Unplanned},
    wake_up::When,
};
use crate::{
    backend::{Claimed, ClaimedDue, JobState, Reply},
    time::{Time, whole_millis},
};

impl Planner {
    /// Applies the reply to the query that is on its way. Returns the runs to start.
    pub(super) fn on_claimed_due(&mut self, reply: ClaimedDue) -> Vec<Start> {
        let ClaimedDue { claimed, now, .. } = reply;
        let now = whole_millis(now);
        self.now = now;
        let due_at = |(state, claimed): &(JobState, Claimed)| {
            state.leases.iter().find(|lease| lease.fence == claimed.fence).map(|one| one.due_at)
        };
        let last = claimed.iter().filter_map(due_at).max();
        let is_alone = self.turns.shares.ranking().is_alone();
        let Some(runs) = self.due.claimed(claimed.len(), last, is_alone, now) else {
            return Vec::new();
        };
        let claimant = self.claimant_of_query();
        let mut starts = Vec::with_capacity(claimed.len());
        for (state, claimed) in claimed {
            let slot = self.jobs.named(&state.name);
            let is_in_code = match slot.and_then(|id| self.jobs.get(id)) {
                Some(slot) => !slot.is_stored(),
                None => self.jobs.has_finished(&state.name),
            };
            if let Some(id) = slot.filter(|_| !is_in_code) {
                match self.jobs.get(id).is_some_and(|slot| slot.exchange.is_idle()) {
                    true => drop(self.free(id)),
                    false => self.mark_dirty(id),
                }
            }
            let spec = match is_in_code {
                true => None,
                false => self.due.code_of(&state, &mut self.effects.events),
            };
            let mut unplanned = Unplanned::new(state, claimed, spec);
            let plan = if runs { unplanned.plan(claimant, now) } else { Plan::Release };
            match plan {
                Plan::Run(start) => starts.push(start),
                Plan::Ask | Plan::Walk => self.due.plan_later(unplanned),
                Plan::Release => self.effects.releases.push(unplanned.release()),
            }
        }
        starts
    }

    fn claimant_of_query(&self) -> Claimant {
        Claimant { key_is_held: true, ..self.config.claimant(0) }
    }

    /// Operations on claimed occurrences that are not run as they are, at most so many.
    pub(super) fn ask_about_claimed(&mut self, now: Time, most: usize) -> Vec<Request> {
        let claimant = self.claimant_of_query();
        let mut requests = Vec::new();
        for mut unplanned in self.due.take_unplanned(most) {
            match unplanned.plan(claimant, now) {
                // Only a reply starts a run.
                Plan::Run(start) => unplanned.extend(&start),
                Plan::Ask => {}
                Plan::Walk => {
                    self.due.plan_later(unplanned);
                    continue;
                }
                Plan::Release => {
                    requests.push(Request::release(unplanned.release()));
                    continue;
                }
            }
            self.due.operation_sent();
            let (slot, name) = (None, unplanned.name());
            let action = RequestAction::Claimed(Box::new(unplanned));
            requests.push(Request { slot, name, action });
        }
        requests
    }

    /// Applies the reply to an operation on a claimed occurrence. Returns its run.
    pub(super) fn on_claimed_reply(
        &mut self,
        mut unplanned: Unplanned,
        reply: Reply,
        now: Time,
    ) -> Option<Start> {
        self.due.operation_ended();
        self.outbox.answered(None);
        self.effects.events.extend(unplanned.left_out(&reply));
        match reply {
            Reply::Claimed(claimed) => unplanned.is_claimed(claimed),
            Reply::Extended(until) | Reply::CancelRequested(until) => unplanned.is_extended(until),
            Reply::State(state) => {
                let due_at = state.due_at.map_or(When::Next, When::At);
                match unplanned.is_still_claimed(*state) {
                    true => self.due.plan_later(unplanned),
                    false => self.due.read_by(due_at),
                }
                return None;
            }
            _ => {
                self.due.read_by(When::Next);
                return None;
            }
        }
        let start = unplanned.start(now).filter(|_| self.has_room_for(None));
        match &start {
            Some(_) => self.take_room(None),
            None => self.effects.releases.push(unplanned.release()),
        }
        start
    }

    /// The reply to an operation on a claimed occurrence was lost. It is decided again.
    pub(super) fn on_lost_claimed(&mut self, unplanned: Unplanned) {
        self.due.operation_ended();
        self.due.plan_later(unplanned);
    }
}
