//! The concurrency keys of this node's jobs. A key is claimed before the occurrence, asked for
//! again while it is busy, and released if no occurrence was claimed with it.

use super::{
    claim_ids::ClaimIds,
    effects::Effects,
    job::decide::Decision,
    key::{ASK_AGAIN, HeldKey, KeyClaim, KeyEffect, KeyState, KeyStep, SlotKey, Wanted},
    left_keys::LeftKeys,
    release::Release,
    request::{Request, RequestAction},
    slot_id::SlotId,
    wake_up::When,
};
use crate::{
    backend::{JobState, Reply},
    condition::Condition,
    event::Event,
    record::is_left,
    time::{Time, saturating_add, since},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

#[derive(Default)]
pub(super) struct Keys {
    /// The keys that jobs hold, or wait for.
    by_job: BTreeMap<SlotId, Box<SlotKey>>,
    /// The first jobs of this node in the line for each key, in the last tick in which one was to ask
    /// again.
    lines: Option<(u64, Lines)>,
    left: LeftKeys,
}

/// The first places in the line for each key, by its record.
type Lines = HashMap<Arc<str>, Vec<(Time, Arc<str>)>>;

impl Keys {
    pub(super) fn get(&self, id: SlotId) -> Option<&SlotKey> {
        self.by_job.get(&id).map(Box::as_ref)
    }

    /// The jobs that hold a key, or wait for one.
    pub(super) fn jobs(&self) -> impl Iterator<Item = SlotId> {
        self.by_job.keys().copied()
    }

    /// `true` if the job holds its key, or may hold it.
    pub(super) fn may_hold(&self, id: SlotId) -> bool {
        self.get(id).is_some_and(|key| !key.is_busy())
    }

    /// The jobs whose keys are held, or may be held because a reply was lost (`true`), among those
    /// about which nothing is asked.
    pub(super) fn reserved(
        &self,
        is_idle: impl Fn(SlotId) -> bool,
    ) -> impl Iterator<Item = (SlotId, bool)> {
        self.by_job.iter().filter_map(move |(id, key)| match key.state {
            KeyState::Busy { .. } => None,
            _ if !is_idle(*id) => None,
            state => Some((*id, matches!(state, KeyState::Asked))),
        })
    }

    /// The wake-up of a job with regard to its key, when the job itself wants attention at `at`.
    /// `longest`: its longest wait.
    pub(super) fn wake_at(
        &self,
        id: SlotId,
        at: Option<When>,
        longest: Option<Duration>,
    ) -> Option<When> {
        let Some(key) = self.get(id) else { return at };
        match key.state {
            KeyState::Asked | KeyState::Granted { .. } => Some(When::Next),
            KeyState::Busy { ask_at } => at.map(|at| at.max(key.ask_by(ask_at, longest))),
        }
    }

    /// `true` if a busy key is to be asked for again, for the same occurrence.
    pub(super) fn asks_again(&self, id: SlotId, wanted: Wanted, now: Time) -> bool {
        self.get(id).is_some_and(|key| {
            let is_time = matches!(key.state, KeyState::Busy { ask_at } if ask_at.is_due(now));
            is_time && key.is_for(wanted)
        })
    }

    /// The job does not ask for its busy key now.
    pub(super) fn asks_later(&mut self, id: SlotId, wanted: Wanted, now: Time) -> KeyStep {
        let ask_at = When::At(saturating_add(now, ASK_AGAIN));
        let Some(key) = self.by_job.get_mut(&id) else { return KeyStep::Go };
        key.state = KeyState::Busy { ask_at };
        KeyStep::Later(key.ask_by(ask_at, wanted.longest))
    }

    /// The key's part in a decision about a job; `None` if the job has no interest in a key, or no
    /// more.
    pub(super) fn step(
        &mut self,
        id: SlotId,
        decision: &Decision,
        wanted: Wanted,
        now: Time,
        effects: &mut Effects,
    ) -> Option<KeyStep> {
        let key = self.by_job.get_mut(&id)?;
        match (key.state, decision) {
            (KeyState::Asked, _) => {}
            (KeyState::Granted { until, .. }, Decision::Claim { .. }) => {
                if since(until, now) > key.claim.headroom() {
                    return Some(KeyStep::Go);
                }
            }
            // They do not end the job's interest in the key.
            (KeyState::Granted { .. }, Decision::Advance(_))
            | (_, Decision::Walk | Decision::Read | Decision::Replace(_) | Decision::Reap) => {
                return Some(KeyStep::Go);
            }
            (KeyState::Busy { ask_at }, Decision::Claim { .. }) if key.is_for(wanted) => {
                if !ask_at.is_due(now) {
                    return Some(KeyStep::Later(key.ask_by(ask_at, wanted.longest)));
                }
            }
            _ => {
                self.release(id, effects);
                return None;
            }
        }
        key.state = KeyState::Asked;
        Some(KeyStep::Ask(Box::new(key.claim.clone())))
    }

    /// The job claims this key.
    pub(super) fn ask(&mut self, id: SlotId, claim: KeyClaim) -> KeyStep {
        let asked = Box::new(claim.clone());
        self.by_job.insert(id, Box::new(SlotKey::asked(claim)));
        KeyStep::Ask(asked)
    }

    /// The claim of a job's key as it is sent now. `until`: the last time at which the store may carry
    /// it out, by this node's estimate of the store's clock. If the store has refused the claim because
    /// that time was over, the store's own time counts.
    pub(super) fn timed(
        &mut self,
        id: SlotId,
        mut claim: Box<KeyClaim>,
        until: Time,
        timeout: Duration,
    ) -> Box<KeyClaim> {
        if let Some(key) = self.by_job.get_mut(&id) {
            let after_refusal = key.refused_at.map(|at| saturating_add(at, timeout));
            claim.not_after = after_refusal.max(Some(until));
            key.claim.not_after = claim.not_after;
        }
        claim
    }

    /// Applies the reply to a claim of a job's key. `has_room`: there is capacity for the run.
    #[expect(clippy::too_many_arguments, reason = "each is a fact of its own about the reply")]
    pub(super) fn on_reply(
        &mut self,
        id: SlotId,
        claim: KeyClaim,
        reply: Reply,
        has_room: bool,
        ids: &mut ClaimIds,
        poll: Duration,
        now: Time,
        effects: &mut Effects,
    ) -> Option<KeyEffect> {
        let key = self.by_job.get_mut(&id).filter(|key| key.claim.claim_id == claim.claim_id);
        let Some(key) = key else {
            if let Reply::Claimed(claimed) = reply {
                effects.releases.push(Release::key(claim, Some(claimed.fence)));
            }
            return None;
        };
        key.was_lost = false;
        if let Reply::State(state) = &reply
            && let Some(reason) = &state.unreadable
        {
            let (job, of, reason) = (claim.job.clone(), claim.key.clone(), reason.clone());
            let unreadable = Condition::KeyUnreadable { job, key: of, reason };
            if key.unreadable.as_ref() != Some(&unreadable) {
                effects.events.push(Event::Began(unreadable.clone()));
                key.unreadable = Some(unreadable);
            }
            key.is_busy_for(now, poll.min(ASK_AGAIN));
            return Some(KeyEffect::LookAgain);
        }
        end_unreadable(key, effects);
        let state = match reply {
            Reply::Claimed(claimed) => {
                self.left.note(&claim, None, &mut effects.events);
                key.is_granted_by(claimed, now);
                if !has_room && let Some((claim, fence)) = key.give_back(ids) {
                    effects.releases.push(Release::key(claim, Some(fence)));
                }
                return Some(KeyEffect::LookAgain);
            }
            _ if claim.not_after.is_some_and(|end| end < now) => {
                // It came too late, so nothing is known about the key. A wrong estimate of the store's
                // clock refuses a claim once.
                (key.refused_at, key.state) = (Some(now), KeyState::Busy { ask_at: When::Next });
                return Some(KeyEffect::LookAgain);
            }
            Reply::State(state) => *state,
            _ => JobState::empty(&*claim.record),
        };
        let left = state.leases.iter().find(|lease| is_left(lease, now));
        self.left.note(&claim, left, &mut effects.events);
        Some(key.is_held_by_others(&claim, &state, poll, now, &mut effects.events))
    }

    /// The reply to a claim of a job's key was lost.
    pub(super) fn claim_lost(&mut self, id: SlotId) {
        if let Some(key) = self.by_job.get_mut(&id) {
            key.was_lost = true;
        }
    }

    /// `true` unless a busy key is to be asked for again, and as many other jobs of this node as may
    /// hold it come before this one: it has its turn after them, and asking for it before changes
    /// nothing. `asks_by`: says if something can be asked about a job by this time. One of which
    /// nothing can keeps no other from asking.
    pub(super) fn is_first_in_line(
        &mut self,
        id: SlotId,
        tick: u64,
        now: Time,
        asks_by: impl Fn(SlotId, Time) -> bool,
    ) -> bool {
        let Some(key) = self.get(id).filter(|key| key.is_busy()) else { return true };
        let (record, limit, place) =
            (key.claim.record.clone(), key.claim.limit as usize, key.claim.place());
        if self.lines.as_ref().is_none_or(|(of_tick, _)| *of_tick != tick) {
            let soon = saturating_add(now, 2 * ASK_AGAIN);
            self.lines = Some((tick, self.lines(|id| asks_by(id, soon))));
        }
        let first = self.lines.as_ref().and_then(|(_, lines)| lines.get(&record));
        first.is_none_or(|first| first.iter().filter(|one| **one < place).count() < limit)
    }

    /// The first places of the jobs of this node that wait for each key, as many as may hold it.
    fn lines(&self, asks_soon: impl Fn(SlotId) -> bool) -> Lines {
        let mut lines: HashMap<Arc<str>, (u32, Vec<_>)> = HashMap::new();
        for (_, key) in self.by_job.iter().filter(|(id, key)| key.is_busy() && asks_soon(**id)) {
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

    /// A place of the key with this record, or of any key, may be free. Returns the first waiting jobs
    /// of this node, which ask for it, as many as may hold it, and the times since which they are due.
    pub(super) fn on_free(&mut self, record: Option<&str>) -> Vec<(SlotId, Time)> {
        let mut waiting = Vec::new();
        for (id, key) in self.by_job.iter().filter(|(_, key)| key.is_busy()) {
            if record.is_none_or(|record| *key.claim.record == *record) {
                waiting.push((key.claim.record.clone(), key.claim.place(), *id));
            }
        }
        waiting.sort_unstable();
        let mut first = Vec::new();
        for of_key in waiting.chunk_by(|one, other| one.0 == other.0) {
            for (i, (_, (due_at, _), id)) in of_key.iter().enumerate() {
                let Some(key) = self.by_job.get_mut(id) else { continue };
                if i >= key.claim.limit as usize {
                    break;
                }
                key.state = KeyState::Busy { ask_at: When::Next };
                first.push((*id, *due_at));
            }
        }
        first
    }

    /// Hands a job's key over to the run of the occurrence that was claimed with it.
    pub(super) fn hand_over(&mut self, id: SlotId, effects: &mut Effects) -> Option<HeldKey> {
        let SlotKey { claim, state: KeyState::Granted { fence, until }, wait, .. } =
            *self.by_job.remove(&id)?
        else {
            return None;
        };
        effects.events.extend(wait.map(Event::Ended));
        // A rate counts starts: the run neither extends its place nor gives it back.
        if claim.per.is_some() {
            return None;
        }
        Some(HeldKey { key: claim.key, record: claim.record, fence, until })
    }

    /// Ends a job's interest in its key, and releases it if it is or may be held.
    pub(super) fn release(&mut self, id: SlotId, effects: &mut Effects) {
        let Some(mut key) = self.by_job.remove(&id) else { return };
        end_unreadable(&mut key, effects);
        let is_same = |other: &SlotKey| other.claim.record == key.claim.record;
        if !self.left.is_empty() && !self.by_job.values().any(|other| is_same(other)) {
            self.left.note(&key.claim, None, &mut effects.events);
        }
        let SlotKey { claim, state, wait, .. } = *key;
        effects.events.extend(wait.map(Event::Ended));
        let fence = match state {
            KeyState::Granted { fence, .. } => Some(fence),
            KeyState::Asked => None,
            KeyState::Busy { .. } => return,
        };
        effects.releases.push(Release::key(claim, fence));
    }

    /// The clock was set back: the times at which busy keys are asked for are too far away.
    pub(super) fn ask_now(&mut self) {
        for key in self.by_job.values_mut().filter(|key| key.is_busy()) {
            key.state = KeyState::Busy { ask_at: When::Next };
        }
    }

    /// Releases all keys that are or may be held.
    pub(super) fn release_all(&mut self, effects: &mut Effects) {
        while let Some((id, _)) = self.by_job.first_key_value() {
            self.release(*id, effects);
        }
    }
}

/// Reports that the record of a key can be read again, or is not needed any more.
fn end_unreadable(key: &mut SlotKey, effects: &mut Effects) {
    effects.events.extend(key.unreadable.take().map(Event::Ended));
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
