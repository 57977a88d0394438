//! Replies of the store, and the ends of this node's runs.

use super::{
    Planner, SlotId,
    decide::completion_of,
    not_run,
    request::{Request, RequestAction, Start},
    slot::Phase,
};
use crate::{
    backend::{Claim, Claimed, Cursor, OnExpiry, Reply},
    event::Event,
    time::{Time, saturating_add},
};
use std::time::Duration;

/// A run of this node whose lease was extended, or whose end was sent to the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunUpdate<'a> {
    /// The job's place when the run was claimed.
    pub(crate) slot: SlotId,
    pub(crate) name: &'a str,
    pub(crate) fence: i64,
    pub(crate) scheduled_at: Time,
    /// The cursor's move by the completion; `None` if the operation was no completion.
    pub(crate) completed: Option<Cursor>,
}

impl Planner {
    /// Applies the reply to a request, decided at `now`. Returns the run to start, if an occurrence
    /// was claimed.
    pub(crate) fn on_reply(
        &mut self,
        request: Request,
        reply: Reply,
        now: Time,
        events: &mut Vec<Event>,
    ) -> Option<Start> {
        let id = request.slot;
        let slot = &mut self.slots[id as usize];
        slot.claim_id = None;
        slot.asked = false;
        let was_dirty = std::mem::take(&mut slot.is_dirty);
        let start = match reply {
            Reply::Absent | Reply::Deleted if slot.stored => {
                self.evict(id);
                None
            }
            // A removed job only waits for a claimed occurrence.
            Reply::Absent | Reply::Deleted | Reply::State(_) if slot.removed => None,
            Reply::Absent => {
                if matches!(slot.phase, Phase::Known(_) | Phase::Stale) {
                    events.push(Event::Reregistered { name: slot.name.clone() });
                }
                slot.phase = Phase::New;
                slot.agreed = None;
                self.enqueue_registration(id);
                None
            }
            Reply::Deleted => {
                slot.phase = Phase::Off;
                events.push(Event::Deleted { name: slot.name.clone() });
                None
            }
            Reply::State(state) => {
                if let RequestAction::Claim { .. } = &request.action {
                    self.window.record(false);
                }
                if let RequestAction::Advance(advance) = &request.action
                    && state.cursor == advance.then
                {
                    let name = slot.name.clone();
                    events.push(not_run(name, advance.expected, &advance.not_run));
                }
                let has_ended = slot.ended_in == self.tick;
                self.learn(id, &state, now, events);
                self.back_off(id, &request.action, now);
                // The state may be older than the end of a run that was recorded since.
                if has_ended {
                    self.mark_dirty(id);
                }
                None
            }
            Reply::Claimed(claimed) => match request.action {
                RequestAction::Claim { claim, then, late } => {
                    slot.refused = 0;
                    self.window.record(true);
                    Some(self.start(id, &claim, then, late, claimed, events))
                }
                // Not a reply to this request: read the current state.
                _ => {
                    self.mark_dirty(id);
                    None
                }
            },
            // Not replies to requests of the planner: read the current state.
            Reply::Extended(_) | Reply::Accepted | Reply::LeaseLost | Reply::Invalid => {
                self.mark_dirty(id);
                None
            }
        };
        if self.slots[id as usize].removed {
            self.slots[id as usize].phase = Phase::Off;
        } else if was_dirty {
            self.mark_dirty(id);
        }
        start
    }

    /// Waits a little, doubling, before a request is repeated for a record that the store returns as
    /// due without granting it.
    fn back_off(&mut self, id: SlotId, asked: &RequestAction, now: Time) {
        let slot = &mut self.slots[id as usize];
        let Phase::Known(known) = &slot.phase else { return };
        if known.wants_attention().is_none_or(|at| at > now) {
            slot.refused = 0;
            return;
        }
        let is_write = matches!(
            asked,
            RequestAction::Claim { .. } | RequestAction::Advance(_) | RequestAction::Reap
        );
        if is_write {
            slot.refused = slot.refused.saturating_add(1);
        }
        // The first rejection returned the current state, which changes the next request.
        if let Some(doublings) = slot.refused.checked_sub(2) {
            let wait = Duration::from_millis(1 << doublings.min(10));
            self.wake(id, Some(saturating_add(now, wait)));
        }
    }

    /// The replies to these requests were lost: they are repeated, claims with the same id.
    pub(crate) fn on_lost_replies(&mut self, requests: Vec<Request>, now: Time) {
        for request in requests {
            let id = request.slot;
            let slot = &mut self.slots[id as usize];
            slot.asked = false;
            if let RequestAction::Claim { claim, .. } = &request.action {
                slot.claim_id = Some(claim.claim_id);
            }
            // The claim is repeated before a notification is followed: a read would show the
            // claim's own run as another node's.
            if slot.claim_id.is_some() {
                self.wake(id, Some(now));
                continue;
            }
            slot.is_dirty = false;
            match request.action {
                RequestAction::Register { .. } | RequestAction::Redefine { .. } => {
                    self.enqueue_registration(id);
                }
                _ => self.mark_dirty(id),
            }
        }
    }

    fn start(
        &mut self,
        id: SlotId,
        claim: &Claim,
        then: Cursor,
        late: Duration,
        claimed: Claimed,
        events: &mut Vec<Event>,
    ) -> Start {
        let slot = &mut self.slots[id as usize];
        let (name, spec) = (slot.name.clone(), slot.spec.clone());
        // A job stays known while a request is under way; and a claimed occurrence runs in any case.
        let Phase::Known(known) = &mut slot.phase else {
            return Start { slot: id, name, spec, claimed, then, late };
        };
        known.fence = claimed.fence;
        let of_schedule = known.head_is_cursor();
        known.started += u64::from(of_schedule);
        if claimed.occurrence != claim.start {
            // An earlier request with this claim id, whose reply was lost, claimed another one.
            let started = known.started;
            let then = completion_of(&name, &spec, &claimed.occurrence, started);
            let then = then.unwrap_or(Cursor::Keep);
            self.mark_dirty(id);
            return Start { slot: id, name, spec, claimed, then, late };
        }
        if let Some(range) = &claim.not_run {
            events.push(not_run(name.clone(), claim.expected.scheduled_at, range));
        }
        if of_schedule {
            known.last_started = Some(claimed.occurrence.scheduled_at);
        }
        match claim.lease.on_expiry {
            OnExpiry::Lost => {
                known.lease_ends.push((claimed.fence, claimed.until));
                match claim.then {
                    Cursor::To(next) => {
                        known.go_to(next);
                        let wake_at = known.due_at;
                        self.wake(id, wake_at);
                    }
                    Cursor::Keep => self.mark_dirty(id),
                }
            }
            OnExpiry::Retry => {
                if let (true, Some(next)) = (of_schedule, &mut known.cursor) {
                    next.scheduled_at = claimed.occurrence.scheduled_at;
                }
                known.head = Some(claimed.occurrence.clone());
                known.due_at = Some(claimed.until);
            }
        }
        Start { slot: id, name, spec, claimed, then, late }
    }

    /// Applies the store's reply to an extension or an end of a run of this node.
    pub(crate) fn on_run_update(&mut self, run: RunUpdate<'_>, reply: &Reply) {
        // A stored schedule may have left its slot meanwhile, and have another one now.
        let Some(id) = self.place_of(run.slot, run.name) else {
            return self.on_unplaced_update(run.completed, reply);
        };
        let slot = &mut self.slots[id as usize];
        slot.ended_in = self.tick;
        let known = match &mut slot.phase {
            Phase::Known(known) => known,
            Phase::Stale => return self.mark_dirty(id),
            _ => return,
        };
        if let Reply::Extended(until) = reply {
            for end in known.lease_ends.iter_mut().filter(|end| end.0 == run.fence) {
                end.1 = *until;
            }
            return;
        }
        let leases = known.lease_ends.len();
        known.lease_ends.retain(|end| end.0 != run.fence);
        let was_known = known.lease_ends.len() < leases;
        match (reply, run.completed) {
            (Reply::Accepted, Some(Cursor::To(next)))
                if known.cursor.is_some_and(|cursor| cursor.scheduled_at == run.scheduled_at) =>
            {
                known.go_to(next);
                let wake_at = known.due_at;
                self.wake(id, wake_at);
            }
            // The lease blocked a run, or a run in this queue waits for its end.
            (Reply::Accepted, Some(Cursor::Keep)) if was_known => {
                let wake_at = known.wants_attention();
                self.wake(id, wake_at);
            }
            _ => self.mark_dirty(id),
        }
    }
}
