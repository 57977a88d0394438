//! The concurrency key of one job: its claim, and how far that has come.
//!
//! A job claims its key before the occurrence. So while it waits for the key, it takes neither
//! capacity nor a lease, and cursor, catch-up and overlap decide when the key is free. The claim
//! holds for 5 s, in which the job claims the occurrence.

use super::{claim_ids::ClaimIds, wake_up::When};
use crate::{
    backend::{ClaimKey, Claimed, JobState, Lease},
    condition::{Condition, KeyHolder},
    event::Event,
    time::{self, Time, saturating_add},
};
use std::{mem, sync::Arc, time::Duration};

/// The longest time after which a busy key is asked for again: a third of the time for which a
/// place in its queue is kept.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(2);

/// The time after which a job is read whose occurrence another node is about to claim.
const READ_AGAIN: Duration = Duration::from_millis(200);

/// The lease of a place until the occurrence is claimed.
const LEASE: Duration = Duration::from_secs(5);

/// The part of that lease that a claim of the occurrence needs.
const HEADROOM: Duration = Duration::from_secs(1);

/// A place of a rate is asked for so long after it is free, because clocks differ a little.
const MARGIN: Duration = Duration::from_millis(5);

/// A slot's concurrency key.
#[derive(Debug)]
pub(crate) struct SlotKey {
    pub(super) claim: KeyClaim,
    pub(super) state: KeyState,
    /// The reply to the last request was lost.
    pub(super) was_lost: bool,
    /// The store's time when it refused the last claim because that came too late.
    pub(super) refused_at: Option<Time>,
    /// Its record cannot be read, which was reported.
    pub(super) unreadable: Option<Condition>,
    /// The limit of another job of the key that was reported.
    pub(super) other_limit: Option<u64>,
    /// It is busy, which was reported.
    pub(super) wait: Option<Condition>,
}

/// The progress of a slot's claim of its key.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyState {
    /// A claim is on its way, or its reply was lost.
    Asked,
    /// Refused, and asked for again at this time.
    Busy { ask_at: When },
    /// Held by this node.
    Granted { fence: i64, until: Time },
}

/// The effect of a reply about its key on a job.
pub(super) enum KeyEffect {
    LookAgain,
    ReadAt(Time),
}

/// A claim of a key, with everything to repeat it.
#[derive(Clone, Debug)]
pub(crate) struct KeyClaim {
    pub(super) key: Arc<str>,
    pub(super) record: Arc<str>,
    /// The job.
    pub(super) job: Arc<str>,
    /// The job in the record of the key: of one that runs on every node, with the node.
    pub(super) holder: Arc<str>,
    pub(super) claim_id: u128,
    pub(super) limit: u32,
    /// The time for which a place of a rate is taken, whatever becomes of the run.
    pub(super) per: Option<Duration>,
    /// The lease of the job's runs. The key has the same one.
    pub(super) lease: Duration,
    pub(super) due_at: Time,
    pub(super) since: Option<Time>,
    /// The last time at which the store may carry out what was sent last.
    pub(super) not_after: Option<Time>,
}

/// A place of a key, for the run that has it.
#[derive(Clone, Debug)]
pub(crate) struct HeldKey {
    pub(crate) key: Arc<str>,
    pub(crate) record: Arc<str>,
    pub(crate) fence: i64,
    /// The end of its lease.
    pub(crate) until: Time,
}

/// The occurrence for which a job wants its key.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) due_at: Time,
    pub(super) limit: u32,
    /// The longest wait.
    pub(super) longest: Option<Duration>,
}

/// The effect of a job's key on a decision.
pub(super) enum KeyStep {
    /// The decision is carried out.
    Go,
    /// The key is claimed first.
    Ask(Box<KeyClaim>),
    /// The key is busy.
    Later(When),
}

impl KeyClaim {
    pub(crate) fn record(&self) -> &str {
        &self.record
    }

    pub(crate) fn operation(&self) -> ClaimKey<'_> {
        let Self { claim_id, limit, holder, due_at, .. } = self;
        ClaimKey::new(*claim_id, *limit, holder, *due_at, self.per.unwrap_or(LEASE))
            .waiting_since(self.since)
            .extended_by(self.per.unwrap_or(self.lease))
            .not_after(self.not_after)
    }

    /// The part of the place's lease that a claim of the occurrence needs.
    pub(super) fn headroom(&self) -> Duration {
        self.per.map_or(HEADROOM, |per| HEADROOM.min(per / 2))
    }

    /// Its place in the order in which claims are sent.
    pub(super) fn place(&self) -> (Time, Arc<str>) {
        (self.due_at, self.holder.clone())
    }
}

impl SlotKey {
    pub(super) fn asked(claim: KeyClaim) -> Self {
        Self {
            claim,
            state: KeyState::Asked,
            was_lost: false,
            refused_at: None,
            unreadable: None,
            other_limit: None,
            wait: None,
        }
    }

    pub(super) fn is_granted(&self) -> bool {
        matches!(self.state, KeyState::Granted { .. })
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(self.state, KeyState::Busy { .. })
    }

    /// The store has granted the claim.
    pub(super) fn is_granted_by(&mut self, claimed: Claimed, now: Time) {
        let waited_since = claimed.occurrence.scheduled_at;
        self.claim.since = Some(self.claim.since.unwrap_or(now).min(waited_since));
        self.state = KeyState::Granted { fence: claimed.fence, until: claimed.until };
    }

    /// The granted claim and its fence, to be released. The key is asked for again with another id: the
    /// release may come after the next claim.
    pub(super) fn give_back(&mut self, ids: &mut ClaimIds) -> Option<(KeyClaim, i64)> {
        let KeyState::Granted { fence, .. } = self.state else { return None };
        let claim_id = mem::replace(&mut self.claim.claim_id, ids.draw());
        self.state = KeyState::Busy { ask_at: When::Next };
        Some((KeyClaim { claim_id, ..self.claim.clone() }, fence))
    }

    /// Others hold the key, as this record of it shows. Reports the wait, if it or its holders are new.
    pub(super) fn is_held_by_others(
        &mut self,
        claim: &KeyClaim,
        state: &JobState,
        poll: Duration,
        now: Time,
        events: &mut Vec<Event>,
    ) -> KeyEffect {
        let live = || state.leases.iter().filter(|lease| lease.until > now);
        let place = (claim.due_at, &*claim.holder);
        let mine = state.waiters.iter().find(|waiter| waiter.place() == place);
        let since = self.claim.since.unwrap_or(now).min(mine.map_or(now, |waiter| waiter.since));
        self.claim.since = Some(since);
        let differs = state.version != 0 && state.version != u64::from(claim.limit);
        if differs && self.other_limit != Some(state.version) {
            self.other_limit = Some(state.version);
            events.push(Event::KeyLimitsDiffer {
                name: claim.job.clone(),
                key: claim.key.clone(),
                limit: claim.limit,
                other: state.version,
            });
        }
        let is_same = |lease: &Lease| {
            lease.due_at == claim.due_at
                && lease.occurrence.trigger.as_deref() == Some(&*claim.holder)
        };
        if live().any(is_same) {
            // The place of a rate outlasts a run that was released.
            let again = claim.per.map_or(READ_AGAIN, |_| ASK_AGAIN);
            self.is_busy_for(now, 5 * READ_AGAIN.max(again));
            return KeyEffect::ReadAt(saturating_add(now, again));
        }
        let holders = live().map(KeyHolder::of);
        let (job, key, limit) = (claim.job.clone(), claim.key.clone(), claim.limit);
        let wait = Condition::KeyBusy { job, key, limit, since, holders: holders.collect() };
        if self.wait.as_ref() != Some(&wait) {
            events.push(Event::Began(wait.clone()));
            self.wait = Some(wait);
        }
        let first_end = live().map(|lease| time::since(lease.until, now) + MARGIN).min();
        let free_in = first_end.filter(|_| claim.per.is_some());
        self.is_busy_for(
            now,
            free_in.map_or(ASK_AGAIN, |free_in| free_in.min(ASK_AGAIN)).min(poll),
        );
        KeyEffect::LookAgain
    }

    /// The key is asked for again after this wait.
    pub(super) fn is_busy_for(&mut self, now: Time, wait: Duration) {
        self.state = KeyState::Busy { ask_at: When::At(saturating_add(now, wait)) };
    }

    /// `true` if its last claim was for the same.
    pub(super) fn is_for(&self, wanted: Wanted) -> bool {
        (self.claim.due_at, self.claim.limit) == (wanted.due_at, wanted.limit)
    }

    /// The time at which the key is asked for again, or the longest wait is over.
    pub(super) fn ask_by(&self, ask_at: When, longest: Option<Duration>) -> When {
        let over = self.claim.since.zip(longest);
        over.map_or(ask_at, |(since, longest)| When::At(saturating_add(since, longest)).min(ask_at))
    }
}
