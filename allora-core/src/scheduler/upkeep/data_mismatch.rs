//! Data that does not fit this node's handler: the node leaves the schedule to other nodes first.
//!
//! During a roll-out the store has data of several builds. If the handler of a node cannot read the
//! data of an occurrence, the node releases that occurrence once, and leaves the schedule to other
//! nodes for a while. It does so again before each further attempt. If it gets the same occurrence
//! again nevertheless, the run has failed.

use crate::{
    backend::JobState,
    condition::{Code, Condition},
    job::Placement,
    planner::Input,
    registry::NodeInfo,
    run::Run,
    scheduler::node::Node,
    time::Time,
};
use std::collections::BTreeSet;

/// The head start of the other nodes, in poll intervals: they find the schedule within one.
const HEAD_START: u32 = 2;

impl Node {
    /// The data of this run does not fit the handler. Returns whether the occurrence is released.
    pub(in crate::scheduler) fn give_back(&self, run: &Run, error: String) -> bool {
        if run.kind().is_empty() {
            return false;
        }
        let at: Time = self.now(&self.shared());
        let is_released = self.misfits.add(run, at, self.runtime.now());
        let (kind, example) = (run.shared_kind(), run.shared_name());
        let builds = self.builds_with(&kind);
        self.begin_condition(Condition::DataMismatch { kind, example, error, builds });
        // The code for it is chosen again: none, for now. An input of this sort has no destructor of
        // the user.
        let _ = self.shared().inboxes[Placement::OneNode].push(Input::Calendars);
        self.claimers[Placement::OneNode].notify();
        is_released
    }

    /// This run has succeeded, so its data fits the handler.
    pub(in crate::scheduler) fn data_fits(&self, run: &Run) {
        if let Some(kind) = self.misfits.remove(run) {
            self.end_condition(Code::DataMismatch, &kind);
        }
    }

    /// Forgets what has not come again for a while.
    pub(in crate::scheduler) fn forget_misfits(&self) {
        for kind in self.misfits.forget(self.runtime.now()) {
            self.end_condition(Code::DataMismatch, &kind);
        }
    }

    /// `true` if this node leaves the schedule to other nodes for now.
    pub(in crate::scheduler) fn leaves_misfit(&self, state: &JobState) -> bool {
        let head_start = HEAD_START * self.config.poll_interval;
        let now = self.now(&self.shared());
        self.misfits.is_left(state, now, head_start)
    }

    /// The versions of the builds that handle this kind, as far as their nodes declare them.
    fn builds_with(&self, kind: &str) -> String {
        let version = |version: Option<&str>| version.unwrap_or("without a version").to_owned();
        let own = version(self.config.build_version.as_deref());
        let fleet = self.board.seen().fleet.clone().unwrap_or_default();
        let handles = |node: &&NodeInfo| {
            node.node != *self.id && node.kinds.iter().any(|pattern| pattern.matches(kind))
        };
        let others: BTreeSet<String> =
            fleet.live().filter(handles).map(|node| version(node.version.as_deref())).collect();
        match others.is_empty() {
            true => format!("{own} here, no other node"),
            false => {
                let others: Vec<String> = others.into_iter().collect();
                format!("{own} here, {} elsewhere", others.join(" and "))
            }
        }
    }
}
