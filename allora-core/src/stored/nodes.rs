//! The nodes of the store, for clients without a scheduler.

use super::Schedules;
use crate::{
    backend::DueQuery,
    condition::{Condition, OVERDUE},
    error::{Error, ErrorKind, Result},
    registry::{Fleet, NodeInfo, RunProgress, read_nodes},
    time::Time,
};
use std::{collections::BTreeMap, sync::Arc};

/// The largest number of due schedules of unhandled kinds that are read.
const LIMIT: usize = 100;

impl Schedules {
    /// The nodes that live, and those that died during the last day, ordered by id, from their
    /// records in the store. Two requests.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>> {
        Ok(self.fleet().await?.nodes)
    }

    /// The progress of the active runs of a job that have [set](crate::Run::set_progress) any, on all live
    /// nodes, ordered by their fences. It is as old as the last write of the node's record. Two requests.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn progress(&self, name: &str) -> Result<Vec<RunProgress>> {
        let nodes = self.fleet().await?.nodes.into_iter().filter(|node| !node.is_dead());
        let runs = nodes.flat_map(|node| node.progress).filter(|run| run.name == name);
        let mut runs: Vec<RunProgress> = runs.collect();
        runs.sort();
        Ok(runs)
    }

    /// A [`KindUnhandled`](Condition::KindUnhandled) for each kind of which stored schedules have been
    /// due for a minute and that no live node handles, ordered by kind. Reads the nodes, the kinds and
    /// at most 100 schedules.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn unhandled_kinds(&self) -> Result<Vec<Condition>> {
        let fleet = self.fleet().await?;
        let queries = self.queries()?;
        let kinds = self.within("kinds", queries.kinds()).await?;
        let kinds: Vec<&str> =
            kinds.iter().map(String::as_str).filter(|kind| !fleet.handles(kind)).collect();
        if kinds.is_empty() {
            return Ok(Vec::new());
        }
        let until = self.recent_store_time().await? - OVERDUE;
        let query = DueQuery::new(&kinds, until, LIMIT);
        let due = self.within("find_due", queries.find_due(query, self.now())).await?;
        let mut unhandled: BTreeMap<String, (Arc<str>, Time, usize)> = BTreeMap::new();
        for state in due.found {
            let Some(due_at) = state.due_at else { continue };
            let first = || (state.name.into(), due_at, 0);
            unhandled.entry(state.kind).or_insert_with(first).2 += 1;
        }
        let condition = |(kind, (example, due_at, waiting)): (String, (Arc<str>, Time, usize))| {
            Condition::KindUnhandled { kind: kind.into(), example, due_at, waiting }
        };
        Ok(unhandled.into_iter().map(condition).collect())
    }

    /// Checks that every live node reads records of this format.
    pub(super) async fn needs_format(&self, format: u32, what: &str) -> Result {
        let nodes = self.fleet().await?.nodes;
        let older = nodes.iter().find(|node| !node.is_dead() && node.format < format);
        older.map_or(Ok(()), |node| {
            let version = node.version.as_deref().unwrap_or("without a version");
            let older = format!(
                "the node {} of the build {version} cannot read {what}; update it, or stop it",
                node.node
            );
            Err(Error::new(ErrorKind::Unsupported, older))
        })
    }

    async fn fleet(&self) -> Result<Fleet> {
        Ok(self.fleet_at().await?.0)
    }

    /// The nodes, and the store's time at which they live or are dead.
    pub(super) async fn fleet_at(&self) -> Result<(Fleet, Time)> {
        let states = self.within("nodes", read_nodes(self.queries()?)).await?;
        let now = self.store_now().await?;
        Ok((Fleet::of(&states, now), now))
    }
}
