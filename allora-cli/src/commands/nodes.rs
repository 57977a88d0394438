//! `allora nodes`: the nodes and their runs.

use super::history::entries;
use crate::{
    failure::Outcome,
    session::{self, Session},
    store::StoreArgs,
    table,
    values::shown,
};
use allora_core::{
    NodeInfo, Time,
    backend::{HistoryEntry, HistoryQuery, JobState, Outcome as RunOutcome},
    stored::{Filter, ScheduleState},
};
use clap::Args;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{self, Write},
};

/// Lists the nodes, the live ones first.
///
/// Beside the live nodes, shows those that stop and wait for their runs, those that died during the
/// last day, and those with entries in the history, the last active one first.
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

/// One node: what its record shows, if it has one, and its runs.
#[derive(Debug, Default)]
struct Node {
    info: Option<NodeInfo>,
    running: usize,
    succeeded: usize,
    failed: usize,
    seen: Option<Time>,
}

impl Node {
    /// `left` if it has no record: it was stopped, or has been dead for more than a day.
    fn state(&self) -> &'static str {
        match &self.info {
            Some(info) if info.is_idle() => "idle",
            Some(info) if info.is_live => "live",
            Some(info) if info.is_stopping => "stopping",
            Some(_) => "dead",
            None => "left",
        }
    }

    fn is_live(&self) -> bool {
        self.info.as_ref().is_some_and(|info| info.is_live)
    }

    fn json(&self, name: &str) -> Value {
        let mut object = match &self.info {
            Some(info) => json!(info),
            None => json!({ "node": name, "is_live": false }),
        };
        let Self { running, succeeded, failed, seen, .. } = self;
        object["state"] = self.state().into();
        object["running"] = (*running).into();
        object["succeeded"] = (*succeeded).into();
        object["failed"] = (*failed).into();
        object["seen"] = seen.map(shown).into();
        object
    }

    fn row(self, name: String) -> [String; 10] {
        let state = self.state().to_owned();
        let seen = self.seen.map_or_else(|| "-".into(), shown);
        let Self { info, running, succeeded, failed, .. } = self;
        let column = |read: fn(&NodeInfo) -> String| {
            info.as_ref().map(read).filter(|text| !text.is_empty()).unwrap_or_else(|| "-".into())
        };
        let runs = match &info {
            Some(info) => format!("{running}/{}", info.concurrency),
            None => running.to_string(),
        };
        let kinds = |info: &NodeInfo| {
            info.kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        [
            name,
            state,
            column(|info| info.version.clone().unwrap_or_default()),
            runs,
            column(|info| info.jobs.to_string()),
            column(kinds),
            column(|info| info.labels.join(",")),
            succeeded.to_string(),
            failed.to_string(),
            seen,
        ]
    }
}

impl Nodes {
    pub(crate) fn run(self) -> Outcome {
        let (entries, running, infos) = session::with(&self.place, async |session: Session| {
            let entries = entries(&session, HistoryQuery::new(self.limit)).await?;
            let filter = Filter::default().state(ScheduleState::Running);
            let running = session.schedules.list(filter, None, usize::MAX).await?;
            Ok((entries, running, session.schedules.nodes().await?))
        })?;
        let nodes = nodes(&entries, &running, infos);
        if self.json {
            let mut out = io::stdout().lock();
            for (name, node) in &nodes {
                writeln!(out, "{}", node.json(name))?;
            }
            return Ok(out.flush()?);
        }
        let rows: Vec<[String; 10]> =
            nodes.into_iter().map(|(name, node)| node.row(name)).collect();
        let header = [
            "NODE",
            "STATE",
            "VERSION",
            "RUNS",
            "JOBS",
            "KINDS",
            "LABELS",
            "SUCCEEDED",
            "FAILED",
            "SEEN",
        ];
        table::print(header, &rows)
    }
}

fn nodes(
    entries: &[HistoryEntry],
    running: &[JobState],
    infos: Vec<NodeInfo>,
) -> Vec<(String, Node)> {
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| !entry.node.is_empty()) {
        let node = nodes.entry(entry.node.clone()).or_default();
        node.seen = node.seen.max(entry.started_at);
        // Another node recorded these.
        if !matches!(entry.outcome, RunOutcome::Lost | RunOutcome::Expired) {
            node.seen = node.seen.max(entry.ended_at);
        }
        node.succeeded += usize::from(entry.outcome == RunOutcome::Succeeded);
        node.failed += usize::from(!entry.outcome.error().is_empty());
    }
    for lease in running.iter().flat_map(|state| &state.leases) {
        nodes.entry(lease.node.clone()).or_default().running += 1;
    }
    for info in infos {
        let node = nodes.entry(info.node.clone()).or_default();
        node.seen = node.seen.max(Some(info.last_seen));
        node.info = Some(info);
    }
    let mut nodes: Vec<_> = nodes.into_iter().collect();
    nodes.sort_by_key(|(_, node)| std::cmp::Reverse((node.is_live(), node.seen)));
    nodes
}
