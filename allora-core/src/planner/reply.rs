//! The store's replies, and the ends of this node's runs, applied to the jobs.

use super::{
    Output, Planner, Room, RunUpdate, Start,
    job::decide::{GiveUp, completion_of},
    job::slot::{Exchange, Off, PendingClaim, Phase},
    places::not_run,
    request::{Request, RequestAction},
    slot_id::SlotId,
    start::moved,
    wake_up::When,
};
use crate::{
    backend::{Applied, Claimed, Cursor, JobState, OnExpiry, Reply},
    event::Event,
    job::Delivery,
    time::{Time, saturating_add, whole_millis},
};
use std::time::Duration;

/// The reply to a request, and the store's state when it was decided.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) reply: Reply,
    pub(super) now: Time,
    /// The time at which the reply came. The store decided it before that.
    pub(super) came_at: Time,
    /// The highest fence of the jobs whose tombstones the store has removed.
    pub(super) min_fence: i64,
}

impl Planner {
    /// Applies the replies to the operations of one request.
    pub(super) fn on_answer(
        &mut self,
        requests: Vec<Request>,
        applied: Applied,
        room: &Room,
        output: &mut Output,
    ) {
        let (came_at, now, min_fence) = (self.now, whole_millis(applied.now), applied.min_fence);
        self.outbox.request_answered(requests.len());
        self.capacity.set_room(room);
        let mut failed = Vec::new();
        for (request, reply) in requests.into_iter().zip(applied.replies) {
            match reply {
                Ok(reply) => {
                    let id = request.slot;
                    if id.is_some() && self.outbox.is_failing(id) {
                        output.recovered.push(request.name.clone());
                    }
                    let answer = Answer { reply, now, came_at, min_fence };
                    output.starts.extend(self.on_reply(request, answer));
                    self.publish_place(id, output);
                }
                Err(error) => {
                    failed.push(request);
                    output.failure = Some(error);
                }
            }
        }
        self.on_failed_replies(failed, now);
    }

    /// Applies the reply to a request. Returns the run to start, if an occurrence was claimed.
    pub(super) fn on_reply(&mut self, request: Request, answer: Answer) -> Option<Start> {
        let Answer { reply, now, came_at, min_fence } = answer;
        self.now = now;
        let request = match request.action {
            RequestAction::Release(release) => {
                self.outbox.answered(None);
                let is_of_key = release.is_of_key();
                match release.after(&reply) {
                    Some(release) => self.effects.releases.push(release),
                    // The occurrence is due again.
                    None if !is_of_key => self.due.read_by(When::Next),
                    None => {}
                }
                return None;
            }
            RequestAction::Claimed(unplanned) => {
                return self.on_claimed_reply(*unplanned, reply, now);
            }
            RequestAction::Mark(action) => {
                self.on_mark(&action, Some(&reply), now);
                return None;
            }
            action => Request { action, ..request },
        };
        let id = request.slot?;
        // The reply to an earlier request for the same was lost.
        let was_lost = self.outbox.claim_ended(id);
        let slot = self.jobs.get_mut(id)?;
        slot.replied_in = self.tick;
        self.outbox.answered(Some(id));
        let is_newer = slot.exchange.end();
        if let RequestAction::ClaimKey(claim) = request.action {
            let has_room = !was_lost || self.has_room_for(Some(id));
            self.on_key_reply(id, *claim, reply, has_room, now);
            if is_newer {
                self.mark_dirty(id);
            }
            self.free_removed(id);
            return None;
        }
        if request.is_claim() && !matches!(reply, Reply::Claimed(_)) {
            self.keys.release(id, &mut self.effects);
        }
        if let RequestAction::Claim(pending) = &request.action {
            self.turns.own_claim_ended(pending.own_instant, Some(came_at));
        }
        let slot = self.jobs.get_mut(id)?;
        let start = match reply {
            Reply::Absent | Reply::Deleted if slot.is_stored() && !slot.is_removed() => {
                if reply == Reply::Absent && slot.fence.is_some_and(|fence| fence > min_fence) {
                    self.effects.events.push(Event::ScheduleLost { name: slot.name.clone() });
                }
                self.free(id);
                None
            }
            // A removed job only waits for a claimed occurrence.
            Reply::Absent | Reply::Deleted | Reply::State(_) if slot.is_removed() => None,
            // The store removes tombstones, but not the highest of their fences.
            Reply::Absent if slot.fence.is_none_or(|fence| fence > min_fence) => {
                if slot.fence.take().is_some() {
                    self.effects.events.push(Event::Reregistered { name: slot.name.clone() });
                }
                (slot.phase, slot.agreed) = (Phase::New(None), None);
                self.wake(id, Some(When::Next));
                None
            }
            Reply::Absent | Reply::Deleted => {
                self.turn_off(id, Off::Deleted, now);
                None
            }
            // Of no operation of a planner.
            Reply::Outbox(_) => None,
            Reply::State(state) => {
                self.on_state(id, &request.action, &state, now);
                None
            }
            Reply::Claimed(claimed) => match request.action {
                RequestAction::Claim(pending) => {
                    slot.was_not_refused();
                    self.turns.contention.record(true);
                    let start = self.start(id, &pending, claimed, now)?;
                    let has_room = !was_lost || self.has_room_for(Some(id));
                    if has_room {
                        self.take_room(Some(id));
                    }
                    Some(Start { has_room, ..start })
                }
                // Not a reply to this request: read the current state.
                _ => {
                    self.mark_dirty(id);
                    None
                }
            },
            // Read the current state. No other request of the planner has one of these replies.
            Reply::Extended(_)
            | Reply::Completed(_)
            | Reply::CancelRequested(_)
            | Reply::Accepted
            | Reply::LeaseLost
            | Reply::Triggered(_)
            | Reply::Invalid => {
                if let (RequestAction::GiveUp(given_up), Reply::Accepted) = (request.action, reply)
                    && !given_up.is_cancelled
                {
                    let GiveUp { occurrence, attempts, .. } = *given_up;
                    let (name, kind) = (slot.name.clone(), slot.spec.kind());
                    let scheduled_at = occurrence.scheduled_at;
                    self.effects.events.push(Event::GivenUp { name, kind, scheduled_at, attempts });
                }
                self.mark_dirty(id);
                None
            }
        };
        match is_newer {
            true => self.mark_dirty(id),
            false => self.effects.events.extend(self.ahead.is_read(id)),
        }
        self.free_removed(id);
        start
    }

    /// Applies the record that was returned for a request.
    fn on_state(&mut self, id: SlotId, asked: &RequestAction, state: &JobState, now: Time) {
        if let RequestAction::Claim(_) = asked {
            self.turns.contention.record(false);
        }
        let Some(slot) = self.jobs.get(id) else { return };
        if let RequestAction::Advance(advance) = asked
            && state.next == advance.then
        {
            self.effects.events.push(not_run(
                slot.name.clone(),
                slot.spec.kind(),
                advance.expected,
                &advance.not_run,
            ));
        }
        let has_ended = slot.updated_in() >= slot.asked_in;
        self.learn(id, state, now);
        self.back_off(id, asked, now);
        // The state may be older than the end of a run that was recorded since.
        if has_ended {
            self.mark_dirty(id);
        }
    }

    /// Waits a little, doubling, before a request is repeated for a record that the store returns as
    /// due without granting it.
    fn back_off(&mut self, id: SlotId, asked: &RequestAction, now: Time) {
        let Some(slot) = self.jobs.get_mut(id) else { return };
        let Phase::Known(known) = &slot.phase else { return };
        let is_replacing = matches!(asked, RequestAction::Replace(_)) && known.is_ending();
        if is_replacing || known.wants_attention().is_none_or(|at| at > now) {
            slot.was_not_refused();
            return;
        }
        let is_refused = match asked {
            // A repetition was planned before the record was known.
            RequestAction::Claim(pending) => pending.lease_end.is_none(),
            action => action.is_write(),
        };
        if is_refused {
            slot.was_refused();
        }
        // The first rejection returned the current state, which changes the next request.
        let refused = slot.rare.as_ref().map_or(0, |rare| rare.refused);
        if let Some(doublings) = refused.checked_sub(2) {
            let wait = Duration::from_millis(1 << doublings.min(10));
            self.wake(id, Some(When::At(saturating_add(now, wait))));
        }
    }

    /// The store answered, but not these requests: each is repeated after a wait of its own.
    pub(super) fn on_failed_replies(&mut self, requests: Vec<Request>, now: Time) {
        for request in requests.iter().filter(|request| !request.is_about_mark()) {
            self.outbox.failed(request.slot, now);
            let Some(id) = request.slot else { continue };
            self.effects.events.extend(self.ahead.is_read(id));
            // The read that comes before the next attempt may be answered each time.
            if let Some(slot) = self.jobs.get_mut(id).filter(|_| request.is_write()) {
                slot.was_refused();
            }
        }
        self.on_lost_replies(requests, now);
    }

    /// The store answered, but not this update of a run: its job is read, after a wait of its own,
    /// before anything else is asked about it.
    pub(super) fn on_failed_update(&mut self, slot: Option<SlotId>, name: &str, now: Time) {
        let is_new = |id: &SlotId| !self.outbox.is_failing(Some(*id));
        if let Some(id) = self.place_of(slot, name).filter(is_new) {
            self.outbox.failed(Some(id), now);
            self.mark_dirty(id);
        }
    }

    /// The replies to these requests were lost: they are repeated, claims with the same id.
    pub(super) fn on_lost_replies(&mut self, requests: Vec<Request>, now: Time) {
        for Request { slot, name, mut action } in requests {
            let action = match action {
                RequestAction::Release(release) => {
                    self.effects.releases.push(*release);
                    continue;
                }
                RequestAction::Claimed(unplanned) => {
                    self.on_lost_claimed(*unplanned);
                    continue;
                }
                RequestAction::Mark(action) => {
                    self.on_mark(&action, None, now);
                    continue;
                }
                RequestAction::Claim(ref mut pending) => {
                    self.turns.own_claim_ended(pending.own_instant.take(), None);
                    action
                }
                action => action,
            };
            let Some(id) = slot else { continue };
            self.outbox.claim_ended(id);
            let Some(slot) = self.jobs.get_mut(id) else { continue };
            let newer = slot.exchange.end();
            match action {
                // It is repeated until its lease would have ended, and once more.
                RequestAction::Claim(mut claim) if claim.lease_end.is_none_or(|end| now < end) => {
                    let lease = claim.claim.lease.duration;
                    claim.lease_end.get_or_insert(saturating_add(now, lease));
                    slot.exchange = Exchange::Unresolved { claim, newer };
                    self.outbox.claim_lost(id);
                }
                RequestAction::Claim(pending) => {
                    let scheduled_at = pending.claim.start.scheduled_at;
                    self.effects.events.push(Event::ClaimAbandoned { name, scheduled_at });
                    self.keys.release(id, &mut self.effects);
                    self.mark_dirty(id);
                }
                RequestAction::Register { .. } | RequestAction::Redefine { .. } => {
                    self.wake(id, Some(When::Next));
                }
                // Repeated until its reply comes.
                RequestAction::ClaimKey(_) => {
                    self.keys.claim_lost(id);
                    match newer {
                        true => self.mark_dirty(id),
                        false => self.look_again(id),
                    }
                }
                _ => self.mark_dirty(id),
            }
            self.free_removed(id);
        }
    }

    /// The run of a claimed occurrence, which runs in any case.
    fn start(
        &mut self,
        id: SlotId,
        pending: &PendingClaim,
        claimed: Claimed,
        now: Time,
    ) -> Option<Start> {
        let PendingClaim { claim, then, late, started, .. } = pending;
        let (mut then, late) = (*then, *late);
        let key = self.keys.hand_over(id, &mut self.effects);
        let slot = self.jobs.get_mut(id)?;
        let (name, spec) = (slot.name.clone(), slot.spec.clone());
        slot.fence = Some(claimed.fence);
        let mut passes = moved(&claim.expected, [claim.then, then]);
        // An earlier request with this claim id, whose reply was lost, claimed another one.
        let is_other = claimed.occurrence != claim.start;
        if is_other {
            let completion = completion_of(&name, &spec, &claimed.occurrence, *started);
            then = completion.unwrap_or(Cursor::Keep);
            passes = moved(&claimed.occurrence, [then, Cursor::Keep]);
        }
        let start =
            Start { slot: Some(id), name, spec, claimed, then, late, passes, key, has_room: true };
        let Start { name, spec, claimed, .. } = &start;
        let Phase::Known(known) = &mut slot.phase else {
            // Another reply has changed the state, or the job was removed.
            return Some(start);
        };
        let of_schedule = known.is_open_cursor(&claim.expected);
        let trigger_waits = of_schedule && known.head().as_ref() != Some(&claim.expected);
        (known.fence, known.as_of) = (claimed.fence, now);
        known.started += u64::from(of_schedule);
        if is_other {
            self.mark_dirty(id);
            return Some(start);
        }
        if let Some(range) = &claim.not_run {
            self.effects.events.push(not_run(
                name.clone(),
                spec.kind(),
                claim.expected.scheduled_at,
                range,
            ));
        }
        if of_schedule {
            known.last_started = Some(claimed.occurrence.scheduled_at);
            slot.rare.get_or_insert_default().cursor_claim = Some(claimed.fence);
        }
        known.trigger_waits = trigger_waits;
        match claim.lease.on_expiry {
            OnExpiry::Lost => {
                known.add_lease(claimed.fence, claimed.until);
                match claim.then {
                    Cursor::To(next) if !trigger_waits => {
                        known.go_to(next);
                        self.look_again(id);
                    }
                    Cursor::To(_) | Cursor::Keep => self.mark_dirty(id),
                }
            }
            OnExpiry::Retry => {
                if let (true, Some(next)) = (of_schedule, &mut known.cursor) {
                    next.scheduled_at = claimed.occurrence.scheduled_at;
                }
                known.set_head(Some(&claimed.occurrence));
                known.due_at = Some(claimed.until);
                known.attempts = claimed.attempt;
                known.set_leased(claimed.fence);
                if let (true, cursor @ Some(_)) = (of_schedule, known.cursor) {
                    slot.note_cursor(cursor);
                }
                self.look_again(id);
            }
        }
        Some(start)
    }

    /// Applies the store's reply to an extension or an end of a run of this node.
    pub(super) fn on_run_update(&mut self, run: &RunUpdate) {
        let reply = &run.reply;
        // The job may have been removed and added again, or its schedule evicted, since.
        let Some(id) = self.place_of(run.slot, &run.name) else {
            return self.on_unplaced_update(run);
        };
        if self.outbox.release(Some(id)) {
            self.mark_dirty(id);
        }
        let Some(slot) = self.jobs.get_mut(id) else { return };
        slot.rare.get_or_insert_default().updated_in = self.tick;
        if let (Reply::Accepted, Some(Cursor::To(next))) = (reply, run.completed)
            && slot.leased_cursor().is_some_and(|cursor| cursor.scheduled_at == run.scheduled_at)
        {
            slot.note_cursor(next);
        }
        if *reply == Reply::Absent && slot.is_stored() && slot.exchange.is_idle() {
            return drop(self.free(id));
        }
        let known = match &mut slot.phase {
            Phase::Known(known) => known,
            Phase::Stale => return self.mark_dirty(id),
            _ => return,
        };
        if let Reply::Extended(until) = reply {
            known.extend_lease(run.fence, *until);
            // The leased occurrence is the head, due when the lease ends.
            let is_head = known.fence == run.fence
                && known.head().is_some_and(|head| head.scheduled_at == run.scheduled_at);
            if is_head && matches!(slot.spec.settings.delivery, Delivery::AtLeastOnce { .. }) {
                known.due_at = Some(*until);
            }
            return;
        }
        let leases = known.leases();
        known.retain_leases(|fence, _| fence != run.fence);
        let was_known = known.leases() < leases;
        match (reply, run.completed) {
            (Reply::Accepted, Some(Cursor::To(next)))
                if !known.trigger_waits
                    && known
                        .cursor
                        .is_some_and(|cursor| cursor.scheduled_at == run.scheduled_at) =>
            {
                known.go_to(next);
                self.look_again(id);
            }
            // The lease blocked a run, or a run in this queue waits for its end.
            (Reply::Accepted, Some(Cursor::Keep)) if was_known => self.look_again(id),
            _ => self.mark_dirty(id),
        }
    }
}
