//! `allora nodes`: the nodes and their runs.

use super::history::past;
use crate::{
    failure::Outcome,
    session::{self, Session},
    store::StoreArgs,
    table,
    values::shown,
};
use allora_core::{
    Time,
    backend::{HistoryEntry, HistoryQuery, JobState, Outcome as RunOutcome},
    stored::{Condition, Filter},
};
use clap::Args;
use serde_json::json;
use std::{
    collections::BTreeMap,
    io::{self, Write},
};

/// Lists the nodes with active runs or entries in the history, the last active one first.
///
/// A node without runs writes nothing and is not listed.
#[derive(Debug, Args)]
pub(crate) struct Nodes {
    /// Number of history entries to read.
    #[arg(long, short = 'n', default_value_t = 1_000)]
    limit: usize,
    #[command(flatten)]
    place: StoreArgs,
    /// Prints JSON, one object a line.
    #[arg(long)]
    json: bool,
}

/// The runs of one node.
#[derive(Debug, Default)]
struct Node {
    running: usize,
    succeeded: usize,
    failed: usize,
    seen: Option<Time>,
}

impl Nodes {
    pub(crate) fn run(self) -> Outcome {
        let (past, running) = session::with(&self.place, async |session: Session| {
            let past = past(&session, HistoryQuery::new(self.limit)).await?;
            let filter = Filter::default().condition(Condition::Running);
            Ok((past, session.schedules.list(filter, None, usize::MAX).await?))
        })?;
        let nodes = nodes(&past, &running);
        if self.json {
            let mut out = io::stdout().lock();
            for (name, node) in &nodes {
                let Node { running, succeeded, failed, seen } = node;
                let seen = seen.map(shown);
                writeln!(
                    out,
                    "{}",
                    json!({ "node": name, "running": running, "succeeded": succeeded, "failed": failed, "seen": seen })
                )?;
            }
            return Ok(out.flush()?);
        }
        let rows: Vec<[String; 5]> = nodes
            .into_iter()
            .map(|(name, node)| {
                let seen = node.seen.map_or_else(|| "-".into(), shown);
                [
                    name,
                    node.running.to_string(),
                    node.succeeded.to_string(),
                    node.failed.to_string(),
                    seen,
                ]
            })
            .collect();
        table::print(["NODE", "RUNNING", "SUCCEEDED", "FAILED", "SEEN"], &rows)
    }
}

fn nodes(past: &[HistoryEntry], running: &[JobState]) -> Vec<(String, Node)> {
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    for past in past.iter().filter(|past| !past.node.is_empty()) {
        let node = nodes.entry(past.node.clone()).or_default();
        node.seen = node.seen.max(past.started_at);
        // Another node recorded these.
        if !matches!(past.outcome, RunOutcome::Lost | RunOutcome::Expired) {
            node.seen = node.seen.max(past.ended_at);
        }
        node.succeeded += usize::from(past.outcome == RunOutcome::Succeeded);
        node.failed += usize::from(!past.outcome.error().is_empty());
    }
    for lease in running.iter().flat_map(|state| &state.leases) {
        nodes.entry(lease.node.clone()).or_default().running += 1;
    }
    let mut nodes: Vec<_> = nodes.into_iter().collect();
    nodes.sort_by_key(|(_, node)| std::cmp::Reverse(node.seen));
    nodes
}
