//! *Nodes*: which nodes live, what they can run, and what they report.

use super::{Answer, Head, answer, counted};
use crate::{
    ask::Ask,
    context::Context,
    look::{Look, look},
    shared::Shared,
    times::Moment,
    words::short_nodes,
};
use allora_core::{Health, NodeInfo};
use askama::Template;
use axum::extract::State;
use std::{collections::BTreeSet, sync::Arc};

#[derive(Debug, Template)]
#[template(path = "nodes.html")]
struct Nodes {
    head: Head,
    view: View,
}

#[derive(Clone, Debug)]
struct View {
    heading: String,
    rows: Vec<Row>,
    /// The things that live nodes should agree about, and do not; several versions are one.
    notes: Vec<String>,
    here: Option<Here>,
}

/// A node, from its record in the store.
#[derive(Clone, Debug)]
struct Row {
    name: String,
    /// The whole id.
    id: String,
    look: Look,
    version: String,
    started: Moment,
    seen: Moment,
    runs: String,
    kinds: String,
    labels: String,
    needs: String,
    jobs: String,
    problems: Vec<String>,
}

/// The node of this process.
#[derive(Clone, Debug)]
struct Here {
    name: String,
    fields: Vec<(&'static str, String)>,
    conditions: Vec<(String, String)>,
}

pub(crate) async fn page(State(shared): State<Arc<Shared>>, ask: Ask) -> Answer {
    let now = ask.reader.store_now().await?;
    let context = ask.context(now);
    let nodes = ask.reader.nodes().await?;
    let health = ask.reader.health(shared.handle.as_ref());
    let view = view(&nodes, health.as_ref(), &context);
    answer(&Nodes { head: Head::new(&shared, &ask, &context, ("nodes", "nodes"), "Nodes"), view })
}

fn view(nodes: &[NodeInfo], health: Option<&Health>, context: &Context) -> View {
    let live: Vec<&NodeInfo> = nodes.iter().filter(|node| node.is_live).collect();
    let gone = nodes.iter().filter(|node| node.is_dead()).count();
    let (runs, limit) = live
        .iter()
        .fold((0, 0), |(runs, limit), node| (runs + node.running, limit + node.concurrency));
    let runs = match context.is_limited {
        true => String::new(),
        false => format!(", {runs} of {limit} runs"),
    };
    let heading = match (live.len(), gone) {
        (0, _) => "No node is live".to_owned(),
        (live, 0) => format!("{}{runs}", counted(live, "live node")),
        (live, gone) => format!("{}, {gone} gone{runs}", counted(live, "live node")),
    };
    let mut notes = NodeInfo::disagreements(nodes);
    let versions = live.iter().map(|node| node.version.as_deref().unwrap_or("none"));
    notes.extend(mixed(versions.collect()));
    View {
        heading,
        rows: nodes.iter().map(|node| row(node, context)).collect(),
        notes,
        here: health.map(|health| here(health, context)),
    }
}

/// A line about several versions among the live nodes.
fn mixed(versions: BTreeSet<&str>) -> Option<String> {
    let all = versions.iter().copied().collect::<Vec<_>>().join(", ");
    (versions.len() > 1).then(|| format!("Live nodes have different builds: {all}."))
}

fn row(node: &NodeInfo, context: &Context) -> Row {
    let word = match (node.is_live, node.is_stopping) {
        (true, _) => "live",
        (false, true) => "stopping",
        (false, false) => "gone",
    };
    let kinds: Vec<String> = node.kinds.iter().map(ToString::to_string).collect();
    let rest = if node.is_complete { "" } else { " and more" };
    // The numbers count jobs that a limited reader may not see.
    let number = |text: String| if context.is_limited { "–".to_owned() } else { text };
    Row {
        name: short_nodes(&node.node),
        id: node.node.clone(),
        look: look(word),
        version: node.version.clone().unwrap_or_else(|| "–".to_owned()),
        started: context.moment(node.started_at),
        seen: context.moment(node.last_seen),
        runs: number(format!("{}/{}", node.running, node.concurrency)),
        kinds: kinds.join(", ") + rest,
        labels: node.labels.join(", "),
        needs: node.needed_labels.join(", "),
        jobs: number(node.jobs.to_string()),
        problems: node.problems.iter().map(|one| context.local_times(one)).collect(),
    }
}

fn here(health: &Health, context: &Context) -> Here {
    let moment = |at| {
        let moment = context.moment(at);
        format!("{}, {}", moment.text, moment.distance)
    };
    let offset = match health.clock_offset_ms {
        None => "not known yet".to_owned(),
        Some(0) => "none".to_owned(),
        Some(ms @ 1..) => format!("{ms} ms ahead of the store's"),
        Some(ms) => format!("{} ms behind the store's", ms.unsigned_abs()),
    };
    let capacity = &health.capacity;
    let fields = vec![
        (
            "last reply of the store",
            health.store.last_reply.map_or_else(|| "none yet".into(), moment),
        ),
        ("notifications", health.notifications.word().to_owned()),
        ("clock", offset),
        (
            "runs",
            format!("{} of {}, {} reserved", capacity.used, capacity.limit, capacity.reserved),
        ),
        ("jobs in code", format!("{}, {} paused", health.jobs, health.paused)),
    ];
    let conditions = health.conditions.iter().map(|active| {
        let since = context.moment(active.since);
        let text = context.local_times(&active.condition.to_string());
        let text = format!("{} since {}: {text}", active.condition.code(), since.text);
        (text, active.condition.remedy().to_owned())
    });
    Here { name: short_nodes(&health.node), fields, conditions: conditions.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_node_the_page_says_so() {
        let view = view(&[], None, &Context::of_test());
        assert_eq!((&*view.heading, view.rows.len()), ("No node is live", 0));
        assert!(view.notes.is_empty() && view.here.is_none());
    }

    #[test]
    fn several_builds_are_a_note() {
        assert_eq!(mixed(["1.2", "1.2"].into()), None);
        let note = mixed(["1.3", "1.2"].into()).unwrap();
        assert_eq!(note, "Live nodes have different builds: 1.2, 1.3.");
    }
}
