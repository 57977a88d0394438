//! Jobs on which this node's last ballot changed nothing.
//!
//! A node that asks for a job which another node holds learns that from a ballot as well as from a
//! read. But a ballot that changes nothing overtakes one that does. Repeated without a pause, it
//! would win for ever: its node does not wait, and the node that was overtaken does. So after such
//! a ballot the node reads first, until it has changed something.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The most jobs that are remembered. A job that is dropped costs one more ballot that changes
/// nothing.
const MOST: usize = 65_536;

#[derive(Default)]
pub(crate) struct NoopProposals(Mutex<HashSet<String>>);

impl NoopProposals {
    pub(crate) fn contains(&self, job: &str) -> bool {
        self.jobs().contains(job)
    }

    pub(crate) fn record(&self, job: &str, is_changed: bool) {
        let mut jobs = self.jobs();
        if is_changed {
            jobs.remove(job);
        } else if !jobs.contains(job) {
            if jobs.len() >= MOST {
                jobs.clear();
            }
            jobs.insert(job.to_owned());
        }
    }

    fn jobs(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, NoopProposals};

    #[test]
    fn what_changed_nothing_is_remembered_until_something_changes() {
        let noop_proposals = NoopProposals::default();
        assert!(!noop_proposals.contains("a"));
        noop_proposals.record("a", false);
        assert!(noop_proposals.contains("a") && !noop_proposals.contains("b"));
        noop_proposals.record("a", true);
        assert!(!noop_proposals.contains("a"));
        (0..2 * MOST).for_each(|i| noop_proposals.record(&i.to_string(), false));
        assert!(noop_proposals.jobs().len() <= MOST);
    }
}
