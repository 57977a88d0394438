//! `allora status`: the daemons and the jobs of a store on one page.

use super::{again::again, history::entries, state::OVERDUE, waits::key_waits};
use crate::{
    clock,
    declared::Declared,
    failure::Outcome,
    output::{counted, on_one_line},
    session::{self, Session},
    store::StoreArgs,
    values::{duration, shown},
};
use allora_core::{
    NodeInfo, Time,
    backend::{HistoryEntry, HistoryQuery, JobState, NotRunReason, Outcome as RunOutcome},
    is_internal,
    runtime::Tokio,
    stored::{Filter, ScheduleState},
};
use chrono::TimeDelta;
use clap::Args;
use serde_json::{Value, json};
use std::{
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
    time::Duration,
};

/// Shows the live daemons, and what the jobs of the store do.
///
/// Daemons that stop are shown while they wait for their runs. Jobs are counted as running, due,
/// overdue, key_waits (due, while their concurrency key is busy), failing (the last run has failed),
/// dead (with dead letters), paused, unreadable and orphaned. The last runs that were lost, or cut off
/// by the stop of their daemon, are named.
#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    place: StoreArgs,
    /// Shows it again after this time, until it is interrupted. While the store does not answer, it
    /// is asked at the same pace.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "2s", value_parser = duration)]
    watch: Option<Duration>,
    /// Prints JSON, one object for each look.
    #[arg(long)]
    json: bool,
}

/// The shortest time between two looks, which read the whole list.
const SHORTEST: Duration = Duration::from_millis(200);

/// The number of history entries among which the last lost runs are looked for.
const LOOKED_AT: usize = 1_000;

/// The numbers of the page, and an example of each.
#[derive(Debug)]
struct Page {
    /// The time of the reading, by the store's clock.
    at: Time,
    nodes: Vec<NodeInfo>,
    /// The daemons that were stopped and wait for their runs.
    stopping: Vec<NodeInfo>,
    jobs: usize,
    /// The store, without secrets.
    store: String,
    /// The things that the live daemons should agree about, and do not.
    disagreements: Vec<String>,
    counts: Vec<(&'static str, usize, Option<String>)>,
    last_lost: Option<LastRun>,
    last_cut_off: Option<LastRun>,
}

/// A run that did not end: its job, its time and its node.
type LastRun = (String, Time, String);

impl Status {
    pub(crate) fn run(self) -> Outcome {
        session::with(&self.place, async |session: Session| {
            let pause = self.watch.unwrap_or_default().max(SHORTEST);
            let look = async || {
                let page = Page { store: self.place.shown()?, ..page(&session).await? };
                self.print(&page)?;
                Ok(match self.watch {
                    Some(_) => ControlFlow::Continue(()),
                    None => ControlFlow::Break(()),
                })
            };
            again(&Tokio::current()?, pause, look).await
        })
    }

    fn print(&self, page: &Page) -> Outcome {
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{}", page.json())?;
            return Ok(out.flush()?);
        }
        if self.watch.is_some() && out.is_terminal() {
            write!(out, "\u{1b}[H\u{1b}[2J")?;
        }
        for line in page.lines() {
            writeln!(out, "{}", on_one_line(&line))?;
        }
        Ok(out.flush()?)
    }
}

async fn page(session: &Session) -> Outcome<Page> {
    let declared = Declared::read(session).await?;
    let now = session.schedules.store_now().await.unwrap_or_else(|_| clock::now());
    let states = session.schedules.list(Filter::default(), None, usize::MAX).await?;
    let states: Vec<JobState> =
        states.into_iter().filter(|state| !is_internal(&state.name)).collect();
    let orphaned = |state: &JobState| declared.is_orphaned(state);
    let waits = key_waits(session, &states, now).await?;
    let due = |state: &JobState, since: TimeDelta| {
        state.leases.is_empty()
            && !waits.contains_key(&state.name)
            && state.due_at.is_some_and(|at| at + since <= now)
            && !orphaned(state)
    };
    let count = |what: &'static str, is_so: &dyn Fn(&JobState) -> bool| {
        let mut found = states.iter().filter(|state| is_so(state));
        let example = found.next().map(|state| state.name.clone());
        (what, usize::from(example.is_some()) + found.count(), example)
    };
    let counts = vec![
        count("running", &|state| ScheduleState::Running.holds(state)),
        count("due", &|state| due(state, TimeDelta::zero()) && !due(state, OVERDUE)),
        count("overdue", &|state| due(state, OVERDUE)),
        count("key_waits", &|state| waits.contains_key(&state.name)),
        count("failing", &|state| state.last.as_ref().is_some_and(|last| !last.error().is_empty())),
        count("dead", &|state| ScheduleState::Dead.holds(state)),
        count("paused", &|state| ScheduleState::Paused.holds(state)),
        count("unreadable", &|state| ScheduleState::Broken.holds(state)),
        count("orphaned", &orphaned),
    ];
    let entries = match session.store.history() {
        Some(_) => entries(session, HistoryQuery::new(LOOKED_AT)).await?,
        None => Vec::new(),
    };
    let last = |is_it: fn(&HistoryEntry) -> bool| -> Option<LastRun> {
        let entry = entries.iter().find(|entry| is_it(entry))?;
        Some((entry.name.clone(), entry.occurrence.scheduled_at, entry.node.clone()))
    };
    let last_lost = last(|entry| entry.outcome == RunOutcome::Lost);
    let last_cut_off = last(|entry| entry.reason == Some(NotRunReason::Shutdown));
    let ((nodes, stopping), jobs) = (declared.into_nodes(), states.len());
    let (store, disagreements) = (String::new(), NodeInfo::disagreements(&nodes));
    Ok(Page {
        at: now,
        nodes,
        stopping,
        jobs,
        store,
        disagreements,
        counts,
        last_lost,
        last_cut_off,
    })
}

impl Page {
    fn lines(&self) -> Vec<String> {
        let (many, jobs) = (self.nodes.len(), self.jobs);
        let stopping = match self.stopping.len() {
            0 => String::new(),
            stopping => format!("{stopping} stopping, "),
        };
        let live = counted(many, "live daemon");
        let mut lines = vec![format!("{live}, {stopping}{}", counted(jobs, "job"))];
        for node in self.nodes.iter().chain(&self.stopping) {
            let version = node.version.as_deref().unwrap_or("-");
            let mut line = format!(
                "  {}  version {version}, {}/{} running, {}",
                node.node,
                node.running,
                node.concurrency,
                counted(node.jobs, "line"),
            );
            if node.is_stopping {
                line += ", stopping: it starts nothing more, and waits for its runs";
            }
            if !node.labels.is_empty() {
                line += &format!(", labels {}", node.labels.join(","));
            }
            if !node.kinds.is_empty() {
                let kinds: Vec<String> = node.kinds.iter().map(ToString::to_string).collect();
                line += &format!(", kinds {}", kinds.join(","));
            }
            for problem in &node.problems {
                line += &format!("; {problem}");
            }
            lines.push(line);
        }
        lines.extend(self.disagreements.iter().map(|line| format!("  nodes-differ: {line}")));
        lines.push(format!("store      {}", self.store));
        lines.push(format!("read at    {}", shown(self.at)));
        for (what, count, example) in &self.counts {
            let example =
                example.as_ref().map(|name| format!(", such as {name}")).unwrap_or_default();
            lines.push(format!("{what:<11}{count}{example}"));
        }
        for (what, last) in [("last lost", &self.last_lost), ("cut off", &self.last_cut_off)] {
            lines.push(match last {
                Some((name, at, node)) => format!("{what:<11}{name} at {} on {node}", shown(*at)),
                None => format!("{what:<11}none in the history"),
            });
        }
        lines
    }

    fn json(&self) -> Value {
        let nodes: Vec<&NodeInfo> = self.nodes.iter().chain(&self.stopping).collect();
        let mut object = json!({
            "version": 1,
            "at": shown(self.at),
            "store": self.store,
            "nodes": nodes,
            "disagreements": self.disagreements,
            "jobs": self.jobs,
        });
        for (what, count, _) in &self.counts {
            object[*what] = (*count).into();
        }
        for (what, last) in [("last_lost", &self.last_lost), ("last_cut_off", &self.last_cut_off)] {
            object[what] = last.as_ref().map_or(
                Value::Null,
                |(name, at, node)| json!({ "name": name, "scheduled_at": shown(*at), "node": node }),
            );
        }
        object
    }
}
