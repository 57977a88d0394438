//! The operations of one tick: registrations and reads, claims of due occurrences, and claims whose
//! replies were lost.

use super::{
    Planner, SlotId, WakeUp,
    decide::{Claimant, Decision, decide},
    machine::NOW,
    recheck,
    request::{PendingClaim, Request, RequestAction, Tick},
    slot::{Exchange, Off, Origin, Phase, Slot},
};
use crate::{
    backend::NextRun,
    event::Event,
    job::{CheckedSchedule, InvalidNextAt},
    time::{Time, since},
};
use std::{cmp::Reverse, time::Duration};

impl Planner {
    /// The operations to send at `now`, with capacity for `room` more runs.
    ///
    /// Claims whose replies were lost come first, in a request of their own. If that is lost, too,
    /// other operations have their turn before it is repeated.
    pub(crate) fn tick(&mut self, now: Time, room: usize, events: &mut Vec<Event>) -> Tick {
        self.tick += 1;
        self.evict_idle(now);
        // An unresolved claim may have won.
        let room = room.saturating_sub(self.unresolved());
        let mut requests = Vec::new();
        let mut claims = 0;
        let repeats = self.unresolved() > 0;
        if !repeats || std::mem::take(&mut self.has_repeated) {
            claims = self.ask(now, room, &mut requests, events);
        }
        if repeats && requests.is_empty() {
            requests = self.repeat_claims(now);
            self.has_repeated = true;
        }
        let wake_at = match self.unresolved.is_empty() {
            true => self.next_up().map(|(at, ..)| at),
            false => Some(now),
        };
        let more = wake_at.is_some_and(|at| at <= now);
        let full = more && self.unresolved.is_empty() && claims >= room;
        Tick { requests, wake_at, more, full, removed: std::mem::take(&mut self.removed) }
    }

    /// `true` if other nodes claim the same occurrences.
    pub(crate) fn is_losing(&self) -> bool {
        self.contention.is_losing()
    }

    /// Adds operations about jobs whose time has come. Returns the number of claims.
    fn ask(
        &mut self,
        now: Time,
        room: usize,
        requests: &mut Vec<Request>,
        events: &mut Vec<Event>,
    ) -> usize {
        let size = self.window.size();
        while requests.len() < size
            && let Some((at, _, id)) = self.next_up()
            && at == NOW
        {
            self.queue.pop();
            requests.extend(self.ask_about(id, at, now, events));
        }
        let most = self.contention.size(room);
        let mut claims = 0;
        while claims < most && requests.len() < size {
            let due = self.due_now(now, (most - claims).min(size - requests.len()));
            if due.is_empty() {
                break;
            }
            for wake_up @ (at, _, id) in due {
                if claims >= most || requests.len() >= size {
                    self.queue.push(Reverse(wake_up));
                    continue;
                }
                let request = self.ask_about(id, at, now, events);
                claims += usize::from(request.as_ref().is_some_and(Request::is_claim));
                requests.extend(request);
            }
        }
        claims
    }

    /// The claims whose replies were lost. They have their capacity already.
    fn repeat_claims(&mut self, now: Time) -> Vec<Request> {
        let most = self.unresolved.len().min(self.window.size());
        let ids: Vec<SlotId> = self.unresolved.drain(..most).collect();
        ids.into_iter().filter_map(|id| self.repeat_claim(id, now)).collect()
    }

    /// The claim is decided again, for the time of now. If nothing is to be claimed any more, it is
    /// sent as it was, because its reply must come.
    fn repeat_claim(&mut self, id: SlotId, now: Time) -> Option<Request> {
        let (lost_after, extra_attempts) = (self.lost_after, self.extra_attempts);
        let slot = self.slots.get_mut(id)?;
        let Exchange::Unresolved { claim, newer } =
            std::mem::replace(&mut slot.exchange, Exchange::Idle)
        else {
            return None;
        };
        slot.exchange = Exchange::Asked { newer };
        let mut pending = claim;
        if let Phase::Known(known) = &slot.phase {
            let mut known = known.clone();
            // The claim itself records these runs as lost.
            known.lease_ends.retain(|(_, until)| *until > now);
            let cursor_went_last = slot.cursor_claim == Some(known.fence);
            let claim_id = pending.claim.claim_id;
            let claimant = Claimant { claim_id, lost_after, extra_attempts, cursor_went_last };
            if let Ok(Decision::Claim { claim, then }) =
                decide(&slot.name, &slot.spec, &known, now, claimant)
            {
                (pending.claim, pending.then) = (claim, then);
            }
        }
        Some(request(id, slot, RequestAction::Claim(pending)))
    }

    /// The operation for a job that was in the queue for `at`.
    fn ask_about(
        &mut self,
        id: SlotId,
        at: Time,
        now: Time,
        events: &mut Vec<Event>,
    ) -> Option<Request> {
        let slot = self.slots.get_mut(id)?;
        // It may have been in the queue twice.
        slot.wake_at.take_if(|wake_at| *wake_at == at)?;
        let action = match slot.phase {
            Phase::Known(_) => self.due(id, now, events),
            _ => registration(slot, now),
        };
        match action {
            Ok(None) => None,
            Ok(Some(action)) => {
                let slot = self.slots.get_mut(id)?;
                slot.exchange = Exchange::Asked { newer: false };
                Some(request(id, slot, action))
            }
            Err(fault) => {
                self.turn_off(id, Off::Invalid(fault.to_string()), now, events);
                None
            }
        }
    }

    /// Removes due entries from the queue that may be sent now, in this node's order.
    fn due_now(&mut self, now: Time, most: usize) -> Vec<WakeUp> {
        let choice = self.contention.choice(most);
        let mut due = Vec::new();
        while due.len() < choice
            && let Some(wake_up) = self.next_up()
            && wake_up.0 <= now
        {
            self.queue.pop();
            due.push(wake_up);
        }
        self.contention.order(&mut due);
        due
    }

    /// The earliest entry of the queue that its slot confirms.
    fn next_up(&mut self) -> Option<WakeUp> {
        while let Some(Reverse(wake_up @ (at, _, id))) = self.queue.peek().copied() {
            if self.slots.get(id).is_some_and(|slot| slot.wake_at == Some(at)) {
                return Some(wake_up);
            }
            self.queue.pop();
        }
        None
    }

    /// The operation for a job whose state is known.
    fn due(
        &mut self,
        id: SlotId,
        now: Time,
        events: &mut Vec<Event>,
    ) -> Result<Option<RequestAction>, InvalidNextAt> {
        let Self { poll, lost_after, extra_attempts, .. } = *self;
        let claim_id = self.next_claim_id;
        let Some(slot) = self.slots.get_mut(id) else { return Ok(None) };
        let Phase::Known(known) = &mut slot.phase else { return Ok(None) };
        known.assume_completed(now);
        let cursor_went_last = slot.cursor_claim == Some(known.fence);
        let claimant = Claimant { claim_id, lost_after, extra_attempts, cursor_went_last };
        let decision = decide(&slot.name, &slot.spec, known, now, claimant)?;
        let due_at = known.due_at;
        let is_old = !matches!(slot.origin, Origin::Stored) && known.recheck_at(poll) <= now;
        if matches!(slot.reported.as_deref(), Some(Off::Invalid(_))) {
            self.turn_on(id, events);
        }
        Ok(Some(match decision {
            Decision::Wait if is_old => RequestAction::Read,
            Decision::Wait => {
                self.look_again(id);
                return Ok(None);
            }
            Decision::Read => RequestAction::Read,
            Decision::Blocked(until) => {
                self.read_at(id, recheck(due_at.unwrap_or(now), now, poll).min(until));
                return Ok(None);
            }
            Decision::Claim { claim, then } => {
                self.next_claim_id = self.next_claim_id.wrapping_add(1);
                let late = due_at.map_or(Duration::ZERO, |due| since(now, due));
                RequestAction::Claim(Box::new(PendingClaim { claim, then, late, lease_end: None }))
            }
            Decision::Advance(advance) => RequestAction::Advance(advance),
            Decision::Reap => RequestAction::Reap,
            Decision::GiveUp(give_up) => RequestAction::GiveUp(Box::new(give_up)),
        }))
    }
}

/// The registration or the read of a job whose state is not known.
fn registration(slot: &Slot, now: Time) -> Result<Option<RequestAction>, InvalidNextAt> {
    let schedule = CheckedSchedule::of(&slot.name, &slot.spec);
    let version = slot.spec.settings.version;
    let definition = || match &slot.origin {
        Origin::Code(definition) => definition.clone(),
        Origin::Stored => Ok(Box::default()),
    };
    // An occurrence that both definitions have is kept when one replaces the other.
    let kept = |cursor: &NextRun| {
        let pending = cursor.scheduled_at <= now && now < cursor.due_at;
        let before = cursor.scheduled_at - chrono::TimeDelta::milliseconds(1);
        let both = || schedule.instant_after(before) == Ok(Some(cursor.scheduled_at));
        (pending && both()).then_some(before)
    };
    Ok(Some(match &slot.phase {
        Phase::Known(_) | Phase::Off(Off::Removed) => return Ok(None),
        Phase::Redefine { generation, after, cursor, started } => {
            let after = cursor.as_ref().and_then(kept).unwrap_or_else(|| now.max(*after));
            let next = schedule.following(after, *started)?;
            let (generation, definition) = (*generation, definition()?);
            RequestAction::Redefine { generation, definition, version, next }
        }
        Phase::Stale => RequestAction::Read,
        // The reason may be over.
        Phase::Off(_) if slot.is_stored() || slot.fence.is_some() => RequestAction::Read,
        Phase::New | Phase::Off(_) => {
            let first = schedule.following(now, 0)?;
            RequestAction::Register { definition: definition()?, version, first }
        }
    }))
}

fn request(id: SlotId, slot: &Slot, action: RequestAction) -> Request {
    Request { slot: id, name: slot.name.clone(), action }
}
