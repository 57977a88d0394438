//! The concurrency key of one job: its claim, and how far that has come.
//!
//! A job claims its key before the occurrence. So while it waits for the key, it takes neither
//! capacity nor a lease, and cursor, catch-up and overlap decide when the key is free. The claim
//! holds for 5 s, in which the job claims the occurrence.

use super::wake_up::When;
use crate::{
    backend::ClaimKey,
    condition::Condition,
    time::{Time, saturating_add},
};
use std::{sync::Arc, time::Duration};

/// The lease of a place until the occurrence is claimed.
const LEASE: Duration = Duration::from_secs(5);

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
        ClaimKey::new(*claim_id, *limit, holder, *due_at, LEASE)
            .waiting_since(self.since)
            .extended_by(self.lease)
            .not_after(self.not_after)
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
