//! The operations of one tick: pending registrations and reads, and claims of due occurrences.

use super::{
    Planner, SlotId, WakeUp,
    congestion_window::BATCH,
    decide::{Claimant, Decision, decide},
    request::{Request, RequestAction, Tick},
    slot::Phase,
};
use crate::{
    backend::NextRun,
    error::Result,
    event::Event,
    job::{CheckedSchedule, InvalidNextAt},
    time::{Time, saturating_add},
};
use std::{cmp::Reverse, time::Duration};

impl Planner {
    /// The operations to send at `now`, with capacity for `room` more runs.
    pub(crate) fn tick(&mut self, now: Time, room: usize, events: &mut Vec<Event>) -> Tick {
        self.tick += 1;
        self.is_dirty = false;
        self.evict_idle(now);
        let mut requests = Vec::new();
        while requests.len() < BATCH
            && let Some(id) = self.pending_registrations.pop_front()
        {
            self.slots[id as usize].listed = false;
            requests.extend(self.pending_registration(id, now, events));
        }
        let most = self.window.size(room);
        let mut claims = 0;
        while claims < most && requests.len() < BATCH {
            let due = self.due_now(now, most - claims);
            if due.is_empty() {
                break;
            }
            for wake_up @ (at, _, id) in due {
                if claims >= most || requests.len() >= BATCH {
                    self.queue.push(Reverse(wake_up));
                    continue;
                }
                let request = self.ask_about(id, at, now, events);
                claims += usize::from(request.as_ref().is_some_and(Request::is_claim));
                requests.extend(request);
            }
        }
        let wake_at = self.next_up().map(|(at, ..)| at);
        let more = wake_at.is_some_and(|at| at <= now);
        Tick { requests, wake_at, more, full: more && claims >= room }
    }

    /// `true` if other nodes claim the same occurrences.
    pub(crate) fn is_losing(&self) -> bool {
        self.window.is_losing()
    }

    /// The operation for a job that was in the queue for `at`.
    fn ask_about(
        &mut self,
        id: SlotId,
        at: Time,
        now: Time,
        events: &mut Vec<Event>,
    ) -> Option<Request> {
        // It may have been in the queue twice.
        self.slots[id as usize].wake_at.take_if(|wake_at| *wake_at == at)?;
        let request = self.due(id, now, events);
        // No reply is pending that would reset the dirty flag.
        let slot = &mut self.slots[id as usize];
        if request.is_none() && std::mem::take(&mut slot.is_dirty) {
            slot.claim_id = None;
            self.mark_dirty(id);
        }
        request
    }

    /// Removes due entries from the queue that may be sent now, in this node's order.
    fn due_now(&mut self, now: Time, most: usize) -> Vec<WakeUp> {
        let choice = self.window.choice(most);
        let mut due = Vec::new();
        while due.len() < choice
            && let Some(wake_up) = self.next_up()
            && wake_up.0 <= now
        {
            self.queue.pop();
            due.push(wake_up);
        }
        self.window.order(&mut due);
        due
    }

    /// The earliest entry of the queue that its slot confirms.
    fn next_up(&mut self) -> Option<WakeUp> {
        while let Some(Reverse(wake_up @ (at, _, id))) = self.queue.peek().copied() {
            if self.slots[id as usize].wake_at == Some(at) {
                return Some(wake_up);
            }
            self.queue.pop();
        }
        None
    }

    fn pending_registration(
        &mut self,
        id: SlotId,
        now: Time,
        events: &mut Vec<Event>,
    ) -> Option<Request> {
        let slot = &self.slots[id as usize];
        let schedule = CheckedSchedule::of(&slot.name, &slot.spec);
        let version = slot.spec.settings.version;
        let planned =
            |started: u64, after: Time| -> Result<(String, Option<NextRun>), InvalidNextAt> {
                Ok((CheckedSchedule::definition(&slot.spec)?, schedule.following(after, started)?))
            };
        // An occurrence that both definitions have is kept when one replaces the other.
        let kept = |cursor: &NextRun| {
            let pending = cursor.scheduled_at <= now && now < cursor.due_at;
            let before = cursor.scheduled_at - chrono::TimeDelta::milliseconds(1);
            let both = || schedule.instant_after(before) == Ok(Some(cursor.scheduled_at));
            (pending && both()).then_some(before)
        };
        let action = match &slot.phase {
            Phase::New => planned(0, now).map(|(definition, first)| RequestAction::Register {
                definition,
                version,
                first,
            }),
            Phase::Redefine { generation, after, cursor, started } => {
                let after = cursor.as_ref().and_then(kept).unwrap_or_else(|| now.max(*after));
                let generation = *generation;
                planned(*started, after).map(|(definition, next)| RequestAction::Redefine {
                    generation,
                    definition,
                    version,
                    next,
                })
            }
            Phase::Stale => Ok(RequestAction::Read),
            Phase::Known(_) | Phase::Off => return None,
        };
        self.request(id, action, events)
    }

    fn due(&mut self, id: SlotId, now: Time, events: &mut Vec<Event>) -> Option<Request> {
        let slot = &self.slots[id as usize];
        let Phase::Known(known) = &slot.phase else {
            return self.pending_registration(id, now, events);
        };
        let claim_id = slot.claim_id.unwrap_or(self.next_claim_id);
        let claimant = Claimant { claim_id, lost_after: self.lost_after };
        match decide(&slot.name, &slot.spec, known, now, claimant) {
            Ok(Decision::Wait(None)) if known.paused && !slot.stored => {
                self.read_at(id, saturating_add(now, self.poll));
                None
            }
            Ok(Decision::Wait(wake_at)) => {
                self.wake(id, wake_at);
                None
            }
            Ok(Decision::Read) => self.request(id, Ok(RequestAction::Read), events),
            Ok(Decision::Blocked(until)) => {
                self.read_at(id, saturating_add(now, self.poll).min(until));
                None
            }
            Ok(Decision::Claim { claim, then }) => {
                self.next_claim_id = self.next_claim_id.wrapping_add(1);
                let late = known.due_at.map_or(Duration::ZERO, |due| crate::time::since(now, due));
                self.request(id, Ok(RequestAction::Claim { claim, then, late }), events)
            }
            Ok(Decision::Advance(advance)) => {
                self.request(id, Ok(RequestAction::Advance(advance)), events)
            }
            Ok(Decision::Reap) => self.request(id, Ok(RequestAction::Reap), events),
            Err(fault) => self.request(id, Err(fault), events),
        }
    }

    fn request(
        &mut self,
        id: SlotId,
        action: Result<RequestAction, InvalidNextAt>,
        events: &mut Vec<Event>,
    ) -> Option<Request> {
        let slot = &mut self.slots[id as usize];
        match action {
            Ok(action) => {
                slot.asked = true;
                let placement = slot.spec.settings.placement;
                Some(Request { slot: id, name: slot.name.clone(), placement, action })
            }
            Err(fault) => {
                slot.phase = Phase::Off;
                events
                    .push(Event::JobInvalid { name: slot.name.clone(), reason: fault.to_string() });
                None
            }
        }
    }
}
