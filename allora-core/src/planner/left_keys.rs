//! Concurrency keys for which jobs of this node wait in vain: their holders died while the store's
//! clock was ahead, so the leases end far in the future.

use super::key::KeyClaim;
use crate::{backend::Lease, condition::Condition, event::Event, record::job_of};
use std::{collections::BTreeMap, sync::Arc};

/// The reported holders, by the record of the key.
#[derive(Debug, Default)]
pub(super) struct LeftKeys(BTreeMap<Arc<str>, Condition>);

impl LeftKeys {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes the place of such a holder that keeps this claim from being granted, if there is one.
    pub(super) fn note(&mut self, claim: &KeyClaim, left: Option<&Lease>, events: &mut Vec<Event>) {
        let reported = self.0.get(&claim.record);
        if reported.and_then(Condition::job) == left.map(job_of) {
            return;
        }
        events.extend(self.0.remove(&claim.record).map(Event::Ended));
        if let Some(lease) = left {
            let (job, key) = (job_of(lease).into(), claim.key.clone());
            let left = Condition::KeyLeft { job, key, until: lease.until };
            self.0.insert(claim.record.clone(), left.clone());
            events.push(Event::Began(left));
        }
    }
}
