//! The concurrency key of one job: its claim, the progress of that, and its release.
//!
//! A job claims its key before the occurrence, for 5 s, so that waiting takes neither capacity nor a
//! lease, and cursor, catch-up and overlap decide when the key is free.

use crate::{
    backend::{Action, ClaimKey, Lease, Operation, Reply},
    condition::Condition,
    time::Time,
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
    Busy { ask_at: Time },
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

/// A place of a key that is released because no occurrence was claimed with it.
#[derive(Clone, Debug)]
pub(crate) struct KeyRelease {
    pub(super) claim: KeyClaim,
    /// The fence of the place; `None` while the outcome of the claim is unknown.
    pub(super) fence: Option<i64>,
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

/// The effect of a job's key on a decision.
pub(super) enum KeyStep {
    /// The decision is carried out.
    Go,
    /// The key is claimed first.
    Ask(Box<KeyClaim>),
    /// The key is busy.
    Later(Time),
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

impl KeyRelease {
    /// The release, or the claim again while its outcome is unknown.
    pub(crate) fn operation(&self) -> Operation<'_> {
        let action = match self.fence {
            Some(fence) => Action::ReleaseKey { fence },
            None => Action::ClaimKey(self.claim.operation()),
        };
        Operation::new(&self.claim.record, action)
    }

    pub(crate) fn job(&self) -> Arc<str> {
        self.claim.job.clone()
    }

    /// The release that follows the reply to the claim, if a place was given to that. A claim that comes too
    /// late finds a place whose lease has ended in the record only.
    pub(crate) fn after(mut self, reply: &Reply) -> Option<Self> {
        let fence = match reply {
            _ if self.fence.is_some() => None,
            Reply::Claimed(claimed) => Some(claimed.fence),
            Reply::State(state) => {
                let is_mine = |lease: &&Lease| lease.claim_id == self.claim.claim_id;
                state.leases.iter().find(is_mine).map(|lease| lease.fence)
            }
            _ => None,
        };
        self.fence = Some(fence?);
        Some(self)
    }
}

impl SlotKey {
    /// `true` if this node has a place, or may have one.
    pub(super) fn may_be_held(&self) -> bool {
        !matches!(self.state, KeyState::Busy { .. })
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(self.state, KeyState::Busy { .. })
    }
}
