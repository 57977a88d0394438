//! The concurrency keys of this node's jobs: claimed before the occurrences, asked for again while
//! they are busy, and released if no occurrence was claimed with them.

use super::{
    Planner,
    decide::{Claimant, Decision},
    key::{HeldKey, KeyClaim, KeyRelease, KeyState, KeyStep, SlotKey},
    key_lines::KeyLines,
    request::{Request, RequestAction},
    slot::{Phase, Slot},
    slot_id::SlotId,
    wake_up::NOW,
};
use crate::{
    backend::{JobState, Lease, NotRunReason, Reply},
    condition::{Condition, KeyHolder},
    event::Event,
    job::Delivery,
    name::key_record,
    record::{is_left, job_of, on},
    time::{Time, saturating_add, since},
};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// The part of that lease that a claim of the occurrence needs.
const HEADROOM: Duration = Duration::from_secs(1);

/// The longest time after which a busy key is asked for again: a third of the time for which a
/// place in its queue is kept.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// The time after which a job is read whose occurrence another node is about to claim.
const READ_AGAIN: Duration = Duration::from_millis(200);

impl Slot {
    /// The claim that this node would make of its job, whose record has this fence.
    pub(super) fn claimant(
        &self,
        claim_id: u128,
        fence: i64,
        lost_after: Duration,
        extra_attempts: u32,
    ) -> Claimant {
        let key = self.key();
        Claimant {
            claim_id,
            lost_after,
            extra_attempts,
            cursor_went_last: self.rare.as_ref().and_then(|rare| rare.cursor_claim) == Some(fence),
            waits_since: key.and_then(|key| key.claim.since),
            key_is_held: key.is_some_and(|key| matches!(key.state, KeyState::Granted { .. })),
        }
    }

    /// The wake-up with regard to the key, when the job itself wants attention at `at`.
    pub(super) fn with_key(&self, at: Option<Time>) -> Option<Time> {
        let Some(key) = self.key() else { return at };
        match key.state {
            KeyState::Asked | KeyState::Granted { .. } => Some(NOW),
            KeyState::Busy { ask_at } => at.map(|at| at.max(self.ask_by(ask_at))),
        }
    }

    /// `true` if a busy key is to be asked for again, for the same occurrence.
    fn asks_again(&self, due_at: Time, limit: u32, now: Time) -> bool {
        self.key().is_some_and(|key| {
            let is_time = matches!(key.state, KeyState::Busy { ask_at } if ask_at <= now);
            is_time && (key.claim.due_at, key.claim.limit) == (due_at, limit)
        })
    }

    /// The time at which the key is asked for again, or the longest wait is over.
    fn ask_by(&self, ask_at: Time) -> Time {
        let since = self.key().and_then(|key| key.claim.since);
        let over = since.zip(self.spec.settings.max_key_wait);
        over.map_or(ask_at, |(since, longest)| saturating_add(since, longest).min(ask_at))
    }
}

impl Planner {
    /// The key's part in a decision about a job whose head is due since `due_at`.
    pub(super) fn key_step(
        &mut self,
        id: SlotId,
        decision: &Decision,
        due_at: Option<Time>,
        now: Time,
        events: &mut Vec<Event>,
    ) -> KeyStep {
        let claim_id = self.next_claim_id.wrapping_add(1);
        let Some(slot) = self.slots.get_mut(id) else { return KeyStep::Go };
        let setting = slot.spec.settings.concurrency_key.clone();
        let (Some(setting), Some(due_at)) = (setting, due_at) else {
            self.release_key(id, events);
            return KeyStep::Go;
        };
        let is_claim = matches!(decision, Decision::Claim { .. });
        if is_claim
            && slot.asks_again(due_at, setting.limit, now)
            && !self.is_first_in_line(id, now)
        {
            let ask_at = saturating_add(now, ASK_AGAIN);
            let Some(slot) = self.slots.get_mut(id) else { return KeyStep::Go };
            if let Some(key) = slot.key_mut() {
                key.state = KeyState::Busy { ask_at };
            }
            return KeyStep::Later(slot.ask_by(ask_at));
        }
        let Some(slot) = self.slots.get_mut(id) else { return KeyStep::Go };
        if let Some(key) = slot.key_mut() {
            let limit = key.claim.limit;
            match (key.state, decision) {
                (KeyState::Asked, _) => return KeyStep::Ask(Box::new(key.claim.clone())),
                (KeyState::Granted { until, .. }, Decision::Claim { .. }) => {
                    if since(until, now) > HEADROOM {
                        return KeyStep::Go;
                    }
                    key.state = KeyState::Asked;
                    return KeyStep::Ask(Box::new(key.claim.clone()));
                }
                // They do not end the job's interest in the key.
                (KeyState::Granted { .. }, Decision::Advance(_))
                | (_, Decision::Walk | Decision::Read | Decision::Replace(_) | Decision::Reap) => {
                    return KeyStep::Go;
                }
                (KeyState::Busy { ask_at }, Decision::Claim { .. })
                    if key.claim.due_at == due_at && limit == setting.limit =>
                {
                    if now < ask_at {
                        let ask_at = slot.ask_by(ask_at);
                        return KeyStep::Later(ask_at);
                    }
                    key.state = KeyState::Asked;
                    return KeyStep::Ask(Box::new(key.claim.clone()));
                }
                _ => self.release_key(id, events),
            }
        }
        let Some(slot) = self.slots.get_mut(id) else { return KeyStep::Go };
        // Another node may know that it has waited, which moves its window.
        let may_have_waited = matches!(
            decision,
            Decision::Advance(advance) if advance.not_run.reason == NotRunReason::Window
        );
        if !is_claim && !may_have_waited {
            return KeyStep::Go;
        }
        self.next_claim_id = claim_id;
        let claim = KeyClaim {
            record: key_record(&setting.key),
            key: setting.key,
            job: slot.name.clone(),
            holder: match &self.every_node {
                Some(node) => format!("{}{}", slot.name, on(node)).into(),
                None => slot.name.clone(),
            },
            claim_id: claim_id.wrapping_sub(1),
            limit: setting.limit,
            lease: match slot.spec.settings.delivery {
                Delivery::AtLeastOnce { lease } => lease,
                Delivery::AtMostOnce => self.lost_after,
            },
            due_at,
            since: None,
            not_after: None,
        };
        let asked = Box::new(claim.clone());
        let (state, other_limit, wait) = (KeyState::Asked, None, None);
        let (was_lost, refused_at, unreadable) = (false, None, None);
        let key = SlotKey { claim, state, was_lost, refused_at, unreadable, other_limit, wait };
        slot.rare.get_or_insert_default().key = Some(Box::new(key));
        self.keyed.insert(id);
        KeyStep::Ask(asked)
    }

    /// The claim of a slot's key as it is sent now.
    pub(super) fn timed_key_claim(
        &mut self,
        id: SlotId,
        mut claim: Box<KeyClaim>,
        now: Time,
    ) -> Box<KeyClaim> {
        let timeout = self.store_timeout;
        if let Some(slot) = self.slots.get_mut(id) {
            let until = slot.claim_until(now, timeout);
            if let Some(key) = slot.key_mut() {
                let after_refusal = key.refused_at.map(|at| saturating_add(at, timeout));
                claim.not_after = after_refusal.max(Some(until));
                key.claim.not_after = claim.not_after;
            }
        }
        claim
    }

    /// Applies the reply to a claim of a slot's key. `has_room`: there is capacity for the run.
    pub(super) fn on_key_reply(
        &mut self,
        id: SlotId,
        claim: KeyClaim,
        reply: Reply,
        has_room: bool,
        now: Time,
        events: &mut Vec<Event>,
    ) {
        let poll = self.poll;
        let next_claim_id = self.next_claim_id;
        let Some(slot) = self.slots.get_mut(id) else { return };
        let Some(key) = slot.key_mut().filter(|key| key.claim.claim_id == claim.claim_id) else {
            if let Reply::Claimed(claimed) = reply {
                self.push_release(claim, Some(claimed.fence));
            }
            return;
        };
        key.was_lost = false;
        if let Reply::State(state) = &reply
            && let Some(reason) = &state.unreadable
        {
            let (job, of, reason) = (claim.job.clone(), claim.key.clone(), reason.clone());
            let unreadable = Condition::KeyUnreadable { job, key: of, reason };
            if key.unreadable.as_ref() != Some(&unreadable) {
                events.push(Event::Began(unreadable.clone()));
                key.unreadable = Some(unreadable);
            }
            key.state = KeyState::Busy { ask_at: saturating_add(now, poll.min(ASK_AGAIN)) };
            return self.look_again(id);
        }
        end_unreadable(key, events);
        let state = match reply {
            Reply::Claimed(claimed) => {
                self.left_keys.note(&claim, None, events);
                let waited_since = claimed.occurrence.scheduled_at;
                key.claim.since = Some(key.claim.since.unwrap_or(now).min(waited_since));
                if !has_room {
                    // Another id: the release may come after the next claim.
                    let claim_id = next_claim_id;
                    let left = std::mem::replace(&mut key.claim.claim_id, claim_id);
                    let left = KeyClaim { claim_id: left, ..key.claim.clone() };
                    key.state = KeyState::Busy { ask_at: NOW };
                    self.next_claim_id = claim_id.wrapping_add(1);
                    self.push_release(left, Some(claimed.fence));
                    return self.look_again(id);
                }
                key.state = KeyState::Granted { fence: claimed.fence, until: claimed.until };
                return self.look_again(id);
            }
            _ if claim.not_after.is_some_and(|end| end < now) => {
                // It came too late, so nothing is known about the key. A wrong estimate of the store's
                // clock refuses a claim once.
                (key.refused_at, key.state) = (Some(now), KeyState::Busy { ask_at: NOW });
                return self.look_again(id);
            }
            Reply::State(state) => *state,
            _ => JobState::empty(&*claim.record),
        };
        let live = state.leases.iter().filter(|lease| lease.until > now);
        let holders = live.map(|lease| KeyHolder {
            job: job_of(lease).to_owned(),
            node: lease.node.clone(),
            since: lease.started_at,
        });
        let holders: Vec<KeyHolder> = holders.collect();
        let left = state.leases.iter().find(|lease| is_left(lease, now));
        self.left_keys.note(&claim, left, events);
        let is_same = |lease: &Lease| {
            lease.due_at == claim.due_at
                && lease.occurrence.trigger.as_deref() == Some(&*claim.holder)
                && lease.until > now
        };
        let is_claimed_elsewhere = state.leases.iter().any(is_same);
        let place = (claim.due_at, &*claim.holder);
        let mine = state.waiters.iter().find(|waiter| waiter.place() == place);
        let waits_since = mine.map_or(now, |waiter| waiter.since);
        let waits_since = key.claim.since.unwrap_or(now).min(waits_since);
        key.claim.since = Some(waits_since);
        let differs = state.version != 0 && state.version != u64::from(claim.limit);
        if differs && key.other_limit != Some(state.version) {
            key.other_limit = Some(state.version);
            events.push(Event::KeyLimitsDiffer {
                name: claim.job.clone(),
                key: claim.key.clone(),
                limit: claim.limit,
                other: state.version,
            });
        }
        if is_claimed_elsewhere {
            key.state = KeyState::Busy { ask_at: saturating_add(now, 5 * READ_AGAIN) };
            return self.read_at(id, saturating_add(now, READ_AGAIN));
        }
        let (job, of) = (claim.job.clone(), claim.key.clone());
        let (limit, since) = (claim.limit, waits_since);
        let wait = Condition::KeyBusy { job, key: of, limit, since, holders };
        if key.wait.as_ref() != Some(&wait) {
            // It is new, or its holders are.
            events.push(Event::Began(wait.clone()));
            key.wait = Some(wait);
        }
        key.state = KeyState::Busy { ask_at: saturating_add(now, poll.min(ASK_AGAIN)) };
        self.look_again(id);
    }

    /// `true` unless a busy key is to be asked for again, and as many other jobs of this node as may hold
    /// it come before this one: it has its turn after them, and asking for it before changes nothing.
    fn is_first_in_line(&mut self, id: SlotId, now: Time) -> bool {
        let key = self.slots.get(id).and_then(Slot::key).filter(|key| key.is_busy());
        let Some(KeyClaim { record, limit, .. }) = key.map(|key| &key.claim) else { return true };
        let (record, limit) = (record.clone(), *limit as usize);
        let Some(place) = key.map(|key| key.claim.place()) else { return true };
        if self.key_lines.tick != self.tick {
            self.key_lines = KeyLines { tick: self.tick, first: self.first_in_lines(now) };
        }
        let first = self.key_lines.first.get(&record);
        first.is_none_or(|first| first.iter().filter(|one| **one < place).count() < limit)
    }

    /// The first places of the jobs of this node that wait for each key, as many as may hold it. Those
    /// about which nothing can be asked soon keep no other from asking.
    fn first_in_lines(&self, now: Time) -> HashMap<Arc<str>, Vec<(Time, Arc<str>)>> {
        let soon = saturating_add(now, 2 * ASK_AGAIN);
        let mut lines: HashMap<Arc<str>, (u32, Vec<_>)> = HashMap::new();
        for id in &self.keyed {
            let asks_soon = |slot: &&Slot| {
                slot.exchange.is_idle()
                    && matches!(slot.phase, Phase::Known(_))
                    && slot.wake_at.is_some_and(|at| at <= soon)
                    && !self.failing.contains(*id)
            };
            let slot = self.slots.get(*id).filter(asks_soon);
            let Some(key) = slot.and_then(Slot::key).filter(|key| key.is_busy()) else { continue };
            let (limit, line) = lines.entry(key.claim.record.clone()).or_default();
            *limit = key.claim.limit.max(*limit);
            line.push(key.claim.place());
        }
        let first = lines.into_iter().map(|(record, (limit, mut line))| {
            line.sort_unstable();
            line.truncate(limit as usize);
            (record, line)
        });
        first.collect()
    }

    /// A place of the key with this record may be free: the first waiting jobs of this node ask for
    /// it, as many as may hold it.
    pub(crate) fn on_key_free(&mut self, record: Option<&str>) {
        let mut waiting = Vec::new();
        for id in &self.keyed {
            let Some(slot) = self.slots.get(*id) else { continue };
            let Some(key) = slot.key().filter(|key| key.is_busy()) else { continue };
            if record.is_none_or(|record| *key.claim.record == *record) {
                waiting.push((key.claim.record.clone(), key.claim.place(), *id));
            }
        }
        waiting.sort_unstable();
        for of_key in waiting.chunk_by(|one, other| one.0 == other.0) {
            for (i, (_, (due_at, _), id)) in of_key.iter().enumerate() {
                let Some(slot) = self.slots.get_mut(*id) else { continue };
                let Some(key) = slot.key_mut() else { continue };
                if i >= key.claim.limit as usize {
                    break;
                }
                key.state = KeyState::Busy { ask_at: NOW };
                // Not with the reads, which need no capacity.
                let due_at = *due_at;
                if matches!(slot.phase, Phase::Known(_)) {
                    self.wake(*id, Some(due_at));
                }
            }
        }
    }

    /// Hands a slot's key over to the run of the occurrence that was claimed with it.
    pub(super) fn hand_over_key(&mut self, id: SlotId, events: &mut Vec<Event>) -> Option<HeldKey> {
        let slot = self.slots.get_mut(id)?;
        let SlotKey { claim, state: KeyState::Granted { fence, until }, wait, .. } =
            *slot.take_key()?
        else {
            return None;
        };
        self.keyed.remove(&id);
        events.extend(wait.map(Event::Ended));
        Some(HeldKey { key: claim.key, record: claim.record, fence, until })
    }

    /// Ends a slot's interest in its key, and releases it if it is or may be held.
    pub(super) fn release_key(&mut self, id: SlotId, events: &mut Vec<Event>) {
        let Some(mut key) = self.slots.get_mut(id).and_then(Slot::take_key) else { return };
        self.keyed.remove(&id);
        end_unreadable(&mut key, events);
        let is_same = |id: &SlotId| {
            let other = self.slots.get(*id).and_then(Slot::key);
            other.is_some_and(|other| other.claim.record == key.claim.record)
        };
        if !self.left_keys.is_empty() && !self.keyed.iter().any(is_same) {
            self.left_keys.note(&key.claim, None, events);
        }
        let SlotKey { claim, state, wait, .. } = *key;
        events.extend(wait.map(Event::Ended));
        match state {
            KeyState::Granted { fence, .. } => self.push_release(claim, Some(fence)),
            KeyState::Asked => self.push_release(claim, None),
            KeyState::Busy { .. } => {}
        }
    }

    /// As [`release_key`](Self::release_key), where no events are at hand. The next tick
    /// reports the end of the wait.
    pub(super) fn forget_key(&mut self, id: SlotId) {
        let mut ended = std::mem::take(&mut self.ended_waits);
        self.release_key(id, &mut ended);
        self.ended_waits = ended;
    }

    fn push_release(&mut self, claim: KeyClaim, fence: Option<i64>) {
        self.releases.push(KeyRelease { claim, fence });
    }

    /// The releases to send now, at most so many.
    pub(super) fn release_requests(&mut self, most: usize) -> Vec<KeyRelease> {
        let most = most.min(self.releases.len());
        self.releases.drain(..most).collect()
    }

    /// Applies the reply to a release, or to the claim that is repeated because its outcome is
    /// unknown.
    pub(super) fn on_release_reply(&mut self, release: KeyRelease, reply: &Reply) {
        self.releases.extend(release.after(reply));
    }

    /// The reply to a claim of a slot's key was lost.
    pub(super) fn on_lost_key_claim(&mut self, id: SlotId) {
        if let Some(key) = self.slots.get_mut(id).and_then(Slot::key_mut) {
            key.was_lost = true;
        }
    }

    /// The reply to a release was lost.
    pub(super) fn on_lost_release(&mut self, release: KeyRelease) {
        self.releases.push(release);
    }

    /// The clock was set back: the times at which busy keys are asked for are too far away.
    pub(super) fn ask_for_keys_now(&mut self) {
        for id in &self.keyed {
            let key = self.slots.get_mut(*id).and_then(Slot::key_mut);
            if let Some(key) = key.filter(|key| key.is_busy()) {
                key.state = KeyState::Busy { ask_at: NOW };
            }
        }
    }

    /// Hands over all keys that are or may be held. The planner is not used after that.
    pub(crate) fn take_keys(&mut self) -> Vec<KeyRelease> {
        for id in std::mem::take(&mut self.keyed) {
            self.forget_key(id);
        }
        std::mem::take(&mut self.releases)
    }
}

/// Reports that the record of a key can be read again, or is not needed any more.
fn end_unreadable(key: &mut SlotKey, events: &mut Vec<Event>) {
    events.extend(key.unreadable.take().map(Event::Ended));
}

/// Sorts the claims of keys among these requests by their places in the queues. Others stay in
/// front of them.
pub(super) fn sort_claims(requests: &mut [Request]) {
    let place = |request: &Request| match &request.action {
        RequestAction::ClaimKey(claim) => Some(claim.place()),
        _ => None,
    };
    if requests.iter().filter(|request| place(request).is_some()).count() > 1 {
        requests.sort_by_cached_key(place);
    }
}
