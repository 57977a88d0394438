//! Replies of the store, and the ends of this node's runs.

use super::{
    Planner,
    decide::{GiveUp, completion_of},
    machine::not_run,
    request::{Request, RequestAction, Start, moved},
    slot::{Exchange, Off, PendingClaim, Phase},
    slot_id::SlotId,
    wake_up::NOW,
};
use crate::{
    backend::{Claimed, Cursor, JobState, OnExpiry, Reply},
    event::Event,
    job::Delivery,
    time::{Time, saturating_add},
};
use std::{collections::HashSet, sync::Arc, time::Duration};

/// The reply to a request, and the store's state when it was decided.
#[derive(Debug)]
pub(crate) struct Answer {
    reply: Reply,
    now: Time,
    /// The time at which the reply came. The store decided it before that.
    came_at: Time,
    /// The highest fence of the jobs whose tombstones the store has removed.
    min_fence: i64,
}

impl Answer {
    pub(crate) fn new(reply: Reply, now: Time) -> Self {
        Self { reply, now, came_at: now, min_fence: 0 }
    }

    pub(crate) fn came_at(mut self, came_at: Time) -> Self {
        self.came_at = came_at;
        self
    }

    pub(crate) fn min_fence(mut self, min_fence: i64) -> Self {
        self.min_fence = min_fence;
        self
    }
}

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
    /// The longest delay of a start of its job.
    pub(crate) window: Option<Duration>,
}

impl Planner {
    /// A request with this number of operations was answered.
    pub(crate) fn on_answer(&mut self, operations: usize) {
        self.window.answered(operations);
    }

    /// No reply came to these requests. `load`: the number of operations that were on their way with
    /// them, if they may have been too much for the store.
    pub(crate) fn on_timeout(&mut self, requests: &[Request], load: Option<usize>, now: Time) {
        if let Some(load) = load {
            self.window.lost(load);
        }
        for request in requests.iter().filter(|request| !request.is_about_mark()) {
            self.failing.lost(request.slot, now, requests.len());
        }
    }

    /// Applies the reply to a request. Returns the run to start, if an occurrence was claimed.
    pub(crate) fn on_reply(
        &mut self,
        request: Request,
        answer: Answer,
        events: &mut Vec<Event>,
    ) -> Option<Start> {
        let Answer { reply, now, came_at, min_fence } = answer;
        self.now = now;
        let id = request.slot;
        self.claiming.remove(&id);
        // The reply to an earlier request for the same was lost.
        let was_lost = self.repeating.remove(&id);
        let request = match request.action {
            RequestAction::ReleaseKey(release) => {
                self.failing.answered(id);
                self.on_release_reply(*release, &reply);
                return None;
            }
            RequestAction::Claimed(unplanned) => {
                return self.on_claimed_reply(*unplanned, reply, now, events);
            }
            RequestAction::Mark(action) => {
                self.on_mark(&action, Some(&reply), now);
                return None;
            }
            action => Request { action, ..request },
        };
        let slot = self.slots.get_mut(id)?;
        slot.replied_in = self.tick;
        self.failing.answered(id);
        let is_newer = slot.exchange.end();
        if let RequestAction::ClaimKey(claim) = request.action {
            let has_room = !was_lost || self.has_room_for(id);
            self.on_key_reply(id, *claim, reply, has_room, now, events);
            if is_newer {
                self.mark_dirty(id);
            }
            self.free_removed(id);
            return None;
        }
        if request.is_claim() && !matches!(reply, Reply::Claimed(_)) {
            self.release_key(id, events);
        }
        if let RequestAction::Claim(pending) = &request.action {
            self.own_claim_ended(pending.own_instant, Some(came_at));
        }
        let slot = self.slots.get_mut(id)?;
        let start = match reply {
            Reply::Absent | Reply::Deleted if slot.is_stored() && !slot.is_removed() => {
                if reply == Reply::Absent && slot.fence.is_some_and(|fence| fence > min_fence) {
                    events.push(Event::ScheduleLost { name: slot.name.clone() });
                }
                self.evict(id);
                None
            }
            // A removed job only waits for a claimed occurrence.
            Reply::Absent | Reply::Deleted | Reply::State(_) if slot.is_removed() => None,
            // The store removes tombstones, but not the highest of their fences.
            Reply::Absent if slot.fence.is_none_or(|fence| fence > min_fence) => {
                if slot.fence.take().is_some() {
                    events.push(Event::Reregistered { name: slot.name.clone() });
                }
                (slot.phase, slot.agreed) = (Phase::New(None), None);
                self.wake(id, Some(NOW));
                None
            }
            Reply::Absent | Reply::Deleted => {
                self.turn_off(id, Off::Deleted, now, events);
                None
            }
            Reply::State(state) => {
                self.on_state(id, &request.action, &state, now, events);
                None
            }
            Reply::Claimed(claimed) => match request.action {
                RequestAction::Claim(pending) => {
                    slot.was_not_refused();
                    self.contention.record(true);
                    let start = self.start(id, &pending, claimed, now, events)?;
                    let has_room = !was_lost || self.has_room_for(id);
                    if has_room {
                        self.take_room(id);
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
                    events.push(Event::GivenUp { name, kind, scheduled_at, attempts });
                }
                self.mark_dirty(id);
                None
            }
        };
        match is_newer {
            true => self.mark_dirty(id),
            false => events.extend(self.ahead.is_read(id)),
        }
        self.free_removed(id);
        start
    }

    /// Applies the record that was returned for a request.
    fn on_state(
        &mut self,
        id: SlotId,
        asked: &RequestAction,
        state: &JobState,
        now: Time,
        events: &mut Vec<Event>,
    ) {
        if let RequestAction::Claim(_) = asked {
            self.contention.record(false);
        }
        let Some(slot) = self.slots.get(id) else { return };
        if let RequestAction::Advance(advance) = asked
            && state.cursor == advance.then
        {
            events.push(not_run(
                slot.name.clone(),
                slot.spec.kind(),
                advance.expected,
                &advance.not_run,
            ));
        }
        let has_ended = slot.updated_in() >= slot.asked_in;
        self.learn(id, state, now, events);
        self.back_off(id, asked, now);
        // The state may be older than the end of a run that was recorded since.
        if has_ended {
            self.mark_dirty(id);
        }
    }

    /// Waits a little, doubling, before a request is repeated for a record that the store returns as
    /// due without granting it.
    fn back_off(&mut self, id: SlotId, asked: &RequestAction, now: Time) {
        let Some(slot) = self.slots.get_mut(id) else { return };
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
            self.wake(id, Some(saturating_add(now, wait)));
        }
    }

    /// The store answered, but not these requests: each is repeated after a wait of its own.
    pub(crate) fn on_failed_replies(
        &mut self,
        requests: Vec<Request>,
        now: Time,
        events: &mut Vec<Event>,
    ) {
        for request in requests.iter().filter(|request| !request.is_about_mark()) {
            self.failing.failed(request.slot, now);
            events.extend(self.ahead.is_read(request.slot));
            // The read that comes before the next attempt may be answered each time.
            if let Some(slot) = self.slots.get_mut(request.slot).filter(|_| request.is_write()) {
                slot.was_refused();
            }
        }
        self.on_lost_replies(requests, now, events);
    }

    /// The store answered, but not this update of a run: its job is read, after a wait of its own,
    /// before anything else is asked about it.
    pub(crate) fn on_failed_update(&mut self, slot: SlotId, name: &str, now: Time) {
        if let Some(id) = self.place_of(slot, name).filter(|id| !self.failing.contains(*id)) {
            self.failing.failed(id, now);
            self.mark_dirty(id);
        }
    }

    /// `true` if the last operation on some job has failed that is not among these. What failed long ago
    /// and is not asked again counts no more.
    pub(crate) fn is_failing_beyond(&self, requests: &[Request]) -> bool {
        let mut failing = self.failing.iter(self.now).peekable();
        if failing.peek().is_none() {
            return false;
        }
        let answered: HashSet<SlotId> = requests.iter().map(|request| request.slot).collect();
        let is_asked = |id| self.slots.get(id).is_some_and(|slot| !slot.exchange.is_idle());
        failing.any(|(id, is_recent)| !answered.contains(&id) && (is_recent || is_asked(id)))
    }

    /// `true` if the last operation on the job of this request has failed.
    pub(crate) fn has_failed(&self, request: &Request) -> bool {
        self.failing.contains(request.slot)
    }

    /// Sends nothing about the job of this place until an update of one of its runs has a reply, or
    /// this time comes.
    pub(crate) fn hold(&mut self, id: SlotId, until: Time) {
        if self.slots.get(id).is_some_and(|slot| slot.exchange.is_idle()) {
            self.failing.hold(id, until);
            self.wake(id, Some(until));
        }
    }

    /// As [`hold`](Self::hold), also if the reply to a claim of the job was lost.
    pub(crate) fn hold_all(&mut self, names: &HashSet<Arc<str>>, until: Time) {
        for name in names {
            let Some(&id) = self.by_name.get(name) else { continue };
            let slot = self.slots.get(id);
            if slot.is_some_and(|slot| matches!(slot.exchange, Exchange::Unresolved { .. })) {
                self.failing.hold(id, until);
            }
            self.hold(id, until);
        }
    }

    /// The replies to these requests were lost: they are repeated, claims with the same id.
    pub(crate) fn on_lost_replies(
        &mut self,
        requests: Vec<Request>,
        now: Time,
        events: &mut Vec<Event>,
    ) {
        for Request { slot: id, name, mut action } in requests {
            self.claiming.remove(&id);
            self.repeating.remove(&id);
            if let RequestAction::Claim(pending) = &mut action {
                self.own_claim_ended(pending.own_instant.take(), None);
            }
            let action = match action {
                RequestAction::ReleaseKey(release) => {
                    self.on_lost_release(*release);
                    continue;
                }
                RequestAction::Claimed(unplanned) => {
                    self.on_lost_claimed(*unplanned);
                    continue;
                }
                RequestAction::ClaimKey(claim) => {
                    self.on_lost_key_claim(id);
                    RequestAction::ClaimKey(claim)
                }
                RequestAction::Mark(action) => {
                    self.on_mark(&action, None, now);
                    continue;
                }
                action => action,
            };
            let Some(slot) = self.slots.get_mut(id) else { continue };
            let newer = slot.exchange.end();
            match action {
                // It is repeated until its lease would have ended, and once more.
                RequestAction::Claim(mut claim) if claim.lease_end.is_none_or(|end| now < end) => {
                    let lease = claim.claim.lease.duration;
                    claim.lease_end.get_or_insert(saturating_add(now, lease));
                    slot.exchange = Exchange::Unresolved { claim, newer };
                    self.unresolved.push_back(id);
                }
                RequestAction::Claim(pending) => {
                    let scheduled_at = pending.claim.start.scheduled_at;
                    events.push(Event::ClaimAbandoned { name, scheduled_at });
                    self.release_key(id, events);
                    self.mark_dirty(id);
                }
                RequestAction::Register { .. } | RequestAction::Redefine { .. } => {
                    self.wake(id, Some(NOW));
                }
                RequestAction::ClaimKey(_) if newer => self.mark_dirty(id),
                // Repeated until its reply comes.
                RequestAction::ClaimKey(_) => self.look_again(id),
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
        events: &mut Vec<Event>,
    ) -> Option<Start> {
        let PendingClaim { claim, then, late, started, .. } = pending;
        let (mut then, late) = (*then, *late);
        let key = self.hand_over_key(id, events);
        let slot = self.slots.get_mut(id)?;
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
            Start { slot: id, name, spec, claimed, then, late, passes, key, has_room: true };
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
            events.push(not_run(name.clone(), spec.kind(), claim.expected.scheduled_at, range));
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
    pub(crate) fn on_run_update(&mut self, run: RunUpdate<'_>, reply: &Reply) {
        // The job may have been removed and added again, or its schedule evicted, since.
        let Some(id) = self.place_of(run.slot, run.name) else {
            return self.on_unplaced_update(run, reply);
        };
        if self.failing.release(id) {
            self.mark_dirty(id);
        }
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.rare.get_or_insert_default().updated_in = self.tick;
        if let (Reply::Accepted, Some(Cursor::To(next))) = (reply, run.completed)
            && slot.leased_cursor().is_some_and(|cursor| cursor.scheduled_at == run.scheduled_at)
        {
            slot.note_cursor(next);
        }
        if *reply == Reply::Absent && slot.is_stored() && slot.exchange.is_idle() {
            return self.evict(id);
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
