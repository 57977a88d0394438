//! `allora nodes`: who has been working.

use super::history::past;
use crate::{
    failure::Outcome,
    session::{self, Session},
    store::Place,
    table,
    values::shown,
};
use allora_core::{
    Time,
    backend::{Outcome as Ended, Past, State},
    stored::{Condition, Filter},
};
use clap::Args;
use serde_json::json;
use std::{
    collections::BTreeMap,
    io::{self, Write},
};

/// Lists the nodes that hold runs or are in the history, the one that was seen last first.
///
/// A node that has nothing to do writes nothing, and is not seen.
#[derive(Debug, Args)]
pub(crate) struct Nodes {
    /// How many entries of the history are looked at.
    #[arg(long, short = 'n', default_value_t = 1_000)]
    limit: usize,
    #[command(flatten)]
    place: Place,
    /// Prints JSON, one object a line.
    #[arg(long)]
    json: bool,
}

/// What is known of one node.
#[derive(Debug, Default)]
struct Node {
    running: usize,
    ran: usize,
    failed: usize,
    seen: Option<Time>,
}

impl Nodes {
    pub(crate) fn run(self) -> Outcome {
        let (past, running) = session::with(&self.place, async |session: Session| {
            let past = past(&session, None, None, self.limit).await?;
            let filter = Filter::default().condition(Condition::Running);
            Ok((past, session.schedules.list(filter, None, usize::MAX).await?))
        })?;
        let nodes = nodes(&past, &running);
        if self.json {
            let mut out = io::stdout().lock();
            for (name, node) in &nodes {
                let Node { running, ran, failed, seen } = node;
                let seen = seen.map(shown);
                writeln!(
                    out,
                    "{}",
                    json!({ "node": name, "running": running, "ran": ran, "failed": failed, "seen": seen })
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
                    node.ran.to_string(),
                    node.failed.to_string(),
                    seen,
                ]
            })
            .collect();
        table::print(["NODE", "RUNNING", "RAN", "FAILED", "SEEN"], &rows)
    }
}

fn nodes(past: &[Past], running: &[State]) -> Vec<(String, Node)> {
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    for past in past.iter().filter(|past| !past.node.is_empty()) {
        let node = nodes.entry(past.node.clone()).or_default();
        // Of these, another node has told.
        if !matches!(past.outcome, Ended::Lost | Ended::Abandoned) {
            node.seen = node.seen.max(Some(past.at));
        }
        node.ran += usize::from(past.outcome == Ended::Ran);
        node.failed += usize::from(!past.outcome.error().is_empty());
    }
    for held in running.iter().flat_map(|state| &state.holds) {
        nodes.entry(held.node.clone()).or_default().running += 1;
    }
    let mut nodes: Vec<_> = nodes.into_iter().collect();
    nodes.sort_by_key(|(_, node)| std::cmp::Reverse(node.seen));
    nodes
}
