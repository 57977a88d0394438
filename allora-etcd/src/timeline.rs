//! The history that the cluster's data belong to: it changes when a backup is restored.
//!
//! Revisions start again from the backup then, so that what was read before proves nothing any
//! more. What a process remembers of a cluster has the number of its timeline, and is dropped with
//! it.

use etcd_client::ResponseHeader;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The newest state of the cluster that a reply has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    timeline: u64,
    cluster: u64,
    term: u64,
    revision: i64,
}

/// The newest state that replies to transactions have shown. These are linearizable: none may be
/// older than one that was received before its request was sent.
#[derive(Debug, Default)]
pub(crate) struct Timeline(Mutex<Observed>);

impl Timeline {
    fn seen(&self) -> MutexGuard<'_, Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the timeline.
    pub(crate) fn number(&self) -> u64 {
        self.seen().timeline
    }

    /// The state before a request is sent.
    pub(crate) fn before(&self) -> Observed {
        *self.seen()
    }

    /// Takes the reply to a request. Another cluster, or an older state, begins a new timeline.
    pub(crate) fn on_reply(&self, before: Observed, header: &ResponseHeader) {
        let shown = Observed {
            timeline: before.timeline,
            cluster: header.cluster_id(),
            term: header.raft_term(),
            revision: header.revision(),
        };
        if self.takes(before, shown) {
            tracing::warn!(
                revision = shown.revision,
                expected = before.revision,
                "etcd was restored from a backup: what came after it is forgotten, and occurrences \
                 may run again"
            );
        }
    }

    /// True if this begins a new timeline.
    fn takes(&self, before: Observed, shown: Observed) -> bool {
        let mut seen = self.seen();
        if seen.timeline != before.timeline {
            // A late reply of a former timeline, or one that another reply has begun.
            return false;
        }
        let is_known = before.cluster != 0;
        let is_same = shown.cluster == before.cluster
            && shown.term >= before.term
            && shown.revision >= before.revision;
        if is_known && !is_same {
            *seen = Observed { timeline: seen.timeline + 1, ..shown };
            return true;
        }
        let (term, revision) = (seen.term.max(shown.term), seen.revision.max(shown.revision));
        *seen = Observed { term, revision, ..shown };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply of this cluster, term and revision to a request that was sent when `before` was seen.
    fn takes(
        timeline: &Timeline,
        before: Observed,
        (cluster, term, revision): (u64, u64, i64),
    ) -> bool {
        timeline.takes(before, Observed { timeline: before.timeline, cluster, term, revision })
    }

    #[test]
    fn replies_that_overtake_each_other_are_one_timeline_and_older_states_a_new_one() {
        let timeline = Timeline::default();
        let first = timeline.before();
        assert!(!takes(&timeline, first, (7, 2, 90)));
        // Sent before that reply came.
        assert!(!takes(&timeline, first, (7, 2, 80)));
        let before = timeline.before();
        assert!(!takes(&timeline, before, (7, 2, 90)));
        for restored in [(7, 2, 89), (7, 1, 95), (8, 2, 95)] {
            let before = timeline.before();
            assert_eq!((before.cluster, before.term, before.revision), (7, 2, 90));
            assert!(takes(&timeline, before, restored), "{restored:?}");
            assert_eq!(timeline.number(), before.timeline + 1);
            // It is noticed once, and late replies are not taken for a third one.
            assert!(!takes(&timeline, before, restored));
            assert!(!takes(&timeline, before, (7, 2, 90)));
            assert_eq!(timeline.before().revision, restored.2);
            *timeline.seen() = Observed { timeline: before.timeline + 1, ..before };
        }
    }
}
