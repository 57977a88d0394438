//! Claims that are given back: of occurrences that get no run, and of concurrency keys with which
//! no occurrence was claimed.
//!
//! If the reply to a claim was lost, its outcome is unknown. So the claim is repeated with the same
//! id first, and the reply says what there is to give back.

use super::key::KeyClaim;
use crate::backend::{Action, Claim, Completion, Cursor, JobState, Lease, Operation, Reply};
use std::sync::Arc;

/// A claim that is given back.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// The job.
    pub(crate) name: Arc<str>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// It may have succeeded. With the cursor's move by a completion.
    Unknown(Box<Claim>, Cursor),
    /// It has succeeded, and a later request may have changed the fence: the record is read.
    Changed(Held),
    /// The occurrence is to be released.
    Claimed(Held),
    /// An operator has cancelled it: it is completed, because no attempt follows.
    Cancelled { fence: i64, then: Cursor },
    /// A place of a concurrency key may be held.
    KeyUnknown(Box<KeyClaim>),
    /// A place of the key with this record is held.
    Key { record: Arc<str>, fence: i64 },
}

/// The lease of a claimed occurrence.
#[derive(Clone, Copy, Debug)]
struct Held {
    fence: i64,
    /// The cursor's move by a completion, if it is known.
    then: Option<Cursor>,
    claim_id: Option<u128>,
}

impl Held {
    /// The lease in a record that has changed since.
    fn found_in(self, state: &JobState) -> Option<Self> {
        let fence = fence_of(state, self.claim_id?)?;
        // Under another fence it may be for another occurrence.
        let then = self.then.filter(|_| fence == self.fence);
        Some(Self { fence, then, ..self })
    }
}

impl Release {
    /// An occurrence that is or may be claimed. `then`: the cursor's move by its completion.
    pub(super) fn unresolved(name: Arc<str>, claim: Claim, then: Cursor) -> Self {
        Self { name, state: State::Unknown(Box::new(claim), then) }
    }

    /// A claimed occurrence. `then`: the cursor's move by its completion, if it is known; `claim_id`:
    /// its claim, if another request may change the fence.
    pub(crate) fn claimed(
        name: Arc<str>,
        fence: i64,
        then: Option<Cursor>,
        claim_id: Option<u128>,
    ) -> Self {
        Self { name, state: State::Claimed(Held { fence, then, claim_id }) }
    }

    /// A place of a key. `fence`: `None` if the outcome of its claim is unknown.
    pub(super) fn key(claim: KeyClaim, fence: Option<i64>) -> Self {
        let name = claim.job.clone();
        let state = match fence {
            Some(fence) => State::Key { record: claim.record, fence },
            None => State::KeyUnknown(Box::new(claim)),
        };
        Self { name, state }
    }

    pub(super) fn is_of_key(&self) -> bool {
        matches!(self.state, State::KeyUnknown(_) | State::Key { .. })
    }

    /// The record is read before a claimed occurrence is released: requests may have changed its fence
    /// whose replies were lost.
    pub(super) fn read_first(mut self) -> Self {
        if let State::Claimed(held) = self.state
            && held.claim_id.is_some()
        {
            self.state = State::Changed(held);
        }
        self
    }

    pub(crate) fn operation(&self) -> Operation<'_> {
        let action = match &self.state {
            State::Unknown(claim, _) => Action::Claim(Claim::clone(claim)),
            State::Changed(_) => return Operation::read(&self.name),
            State::Claimed(Held { fence, .. }) => Action::Release { fence: *fence },
            State::Cancelled { fence, then } => {
                let (fence, then, completion) = (*fence, *then, Completion::Cancelled);
                Action::Complete { fence, then, completion }
            }
            State::KeyUnknown(claim) => {
                return Operation::new(&claim.record, Action::ClaimKey(claim.operation()));
            }
            State::Key { record, fence } => {
                return Operation::new(record, Action::ReleaseKey { fence: *fence });
            }
        };
        Operation::new(&self.name, action)
    }

    /// The next step after this reply; `None` if nothing is left to do.
    pub(crate) fn after(self, reply: &Reply) -> Option<Self> {
        let state = match (self.state, reply) {
            (State::Unknown(claim, then), Reply::Claimed(claimed)) => {
                // An earlier request with this claim id may have claimed another occurrence.
                let then = Some(then).filter(|_| claimed.occurrence == claim.start);
                State::Claimed(Held { fence: claimed.fence, then, claim_id: None })
            }
            (State::Changed(held) | State::Claimed(held), Reply::State(state)) => {
                State::Claimed(held.found_in(state)?)
            }
            // Without the cursor's move, the end of the lease completes it.
            (State::Claimed(Held { fence, then, .. }), Reply::CancelRequested(_)) => {
                State::Cancelled { fence, then: then? }
            }
            (State::KeyUnknown(claim), Reply::Claimed(claimed)) => {
                State::Key { record: claim.record, fence: claimed.fence }
            }
            // A claim that comes too late finds a place whose lease has ended in the record only.
            (State::KeyUnknown(claim), Reply::State(state)) => {
                State::Key { fence: fence_of(state, claim.claim_id)?, record: claim.record }
            }
            _ => return None,
        };
        Some(Self { state, ..self })
    }
}

/// The fence of the lease of this claim.
fn fence_of(state: &JobState, claim_id: u128) -> Option<i64> {
    let is_mine = |lease: &&Lease| lease.claim_id == claim_id;
    state.leases.iter().find(is_mine).map(|lease| lease.fence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{backend::OnExpiry, record::Record, time::from_millis};

    /// The record with the lease of this claim.
    fn leased(claim_id: u128, fence: i64) -> Reply {
        let at = from_millis(1_000).unwrap();
        let lease = Lease::new("n", claim_id, fence, at.into(), at, OnExpiry::Lost);
        Reply::State(Box::new(Record { leases: vec![lease], ..Record::default() }.state("job")))
    }

    fn fence_released(release: &Release) -> Option<i64> {
        match release.operation().action {
            Action::Release { fence } => Some(fence),
            _ => None,
        }
    }

    #[test]
    fn a_claim_whose_fence_has_changed_is_released_under_the_new_one() {
        let held = || Release::claimed("job".into(), 5, Some(Cursor::To(None)), Some(7));
        assert_eq!(fence_released(&held()), Some(5));
        let read = held().read_first();
        assert!(matches!(read.operation().action, Action::Read));
        let found = read.after(&leased(7, 9)).unwrap();
        assert_eq!(fence_released(&found), Some(9));
        // Its completion would be that of the occurrence under the former fence.
        let cancelled = |release: Release| {
            let until = from_millis(1_000).unwrap();
            release.after(&Reply::CancelRequested(until)).is_some()
        };
        assert!(!cancelled(found));
        assert!(cancelled(held()));
        assert!(held().read_first().after(&leased(8, 9)).is_none(), "another one's lease");
    }
}
