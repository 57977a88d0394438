//! The jobs in code that live nodes have, and the records that none of them has any more.

use crate::{failure::Outcome, kinds, output::complain, session::Session};
use allora_core::{NodeInfo, Time, backend::JobState};
use chrono::DateTime;
use std::collections::BTreeSet;

/// The jobs and kinds that the live nodes declare.
pub(crate) struct Declared {
    live: Vec<NodeInfo>,
    /// Those that were stopped and wait for their runs.
    stopping: Vec<NodeInfo>,
}

impl Declared {
    pub(crate) async fn read(session: &Session) -> Outcome<Self> {
        let nodes = session.schedules.nodes().await?;
        Ok(Self::of(&nodes))
    }

    /// The declarations of the live ones among these nodes.
    pub(crate) fn of(nodes: &[NodeInfo]) -> Self {
        let those = |are: fn(&NodeInfo) -> bool| -> Vec<NodeInfo> {
            nodes.iter().filter(|node| are(node)).cloned().collect()
        };
        Self { live: those(|node| node.is_live), stopping: those(|node| node.is_stopping) }
    }

    /// True if a node lives: without one, it is not known which records have a use.
    pub(crate) fn is_known(&self) -> bool {
        !self.live.is_empty()
    }

    /// The live nodes, and those that stop.
    pub(crate) fn into_nodes(self) -> (Vec<NodeInfo>, Vec<NodeInfo>) {
        (self.live, self.stopping)
    }

    /// True if a live node may run stored schedules of this kind.
    pub(crate) fn handles(&self, kind: &str) -> bool {
        self.live.iter().any(|node| node.handles(kind))
    }

    /// The live nodes whose crontabs or code may have this job.
    pub(crate) fn nodes(&self, name: &str) -> Vec<&str> {
        let declare = self.live.iter().filter(|node| node.may_declare(name));
        declare.map(|node| node.node.as_str()).collect()
    }

    /// The live nodes' conditions and disagreements, each with its node or nodes.
    pub(crate) fn conditions(&self) -> Vec<String> {
        let of_node = |node: &NodeInfo| -> Vec<String> {
            node.problems.iter().map(|problem| format!("{}: {problem}", node.node)).collect()
        };
        let problems = self.live.iter().flat_map(of_node);
        let differ = NodeInfo::disagreements(&self.live).into_iter();
        problems.chain(differ.map(|what| format!("nodes-differ: {what}"))).collect()
    }

    /// True if it is the record of a line or job that no live node has any more.
    pub(crate) fn is_orphaned(&self, state: &JobState) -> bool {
        NodeInfo::is_orphan(&self.live, state)
    }
}

/// Warns of those of these kinds that no live node handles. Without a live node, none is known,
/// and nothing is said.
pub(crate) async fn warn_of_unhandled<'a>(
    session: &Session,
    kinds: impl IntoIterator<Item = &'a str>,
) {
    // The schedules are stored already: an error here is none of theirs.
    let Ok(declared) = Declared::read(session).await else { return };
    // A job in code has none.
    let kinds: BTreeSet<&str> = kinds.into_iter().filter(|kind| !kind.is_empty()).collect();
    for kind in kinds.into_iter().filter(|kind| declared.is_known() && !declared.handles(kind)) {
        let remedy = kinds::remedy(kind);
        complain("warning", &format!("no live node handles the kind {kind:?}; {remedy}"));
    }
}

/// The time of the last claim or definition, by the store's clock: fences are drawn from it.
pub(crate) fn written_at(state: &JobState) -> Option<Time> {
    DateTime::from_timestamp_micros(state.fence)
}

/// The state as it is shown: an orphan has no next time, since no node runs it.
pub(crate) fn without_next(mut state: JobState) -> JobState {
    (state.next, state.due_at, state.head) = (None, None, None);
    state
}
