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
    backend::{
        self, Count, Flag, HistoryEntry, HistoryQuery, JobState, NotRunReason,
        Outcome as RunOutcome,
    },
    runtime::Tokio,
    stored::Filter,
};
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
/// dead (with dead letters), paused, unreadable (the record) and orphaned, exactly up to 10,000 jobs. The
/// last runs that were lost, or cut off by the stop of their daemon, are named.
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

/// The shortest time between two looks.
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
    jobs: Count,
    /// The store, without secrets.
    store: String,
    /// The things that the live daemons should agree about, and do not.
    disagreements: Vec<String>,
    counts: Vec<Number>,
    last_lost: Option<LastRun>,
    last_cut_off: Option<LastRun>,
}

/// A number of jobs: what they do, how many they are, and one of them.
type Number = (&'static str, Count, Option<String>);

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
            again(&Tokio::current()?, pause, false, look).await
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
    let schedules = &session.schedules;
    let now = schedules.store_now().await.unwrap_or_else(|_| clock::now());
    let all = schedules.counts("").await?;
    let mut counts: Vec<Number> = Vec::new();
    for flag in [Flag::Running, Flag::Failing, Flag::Dead, Flag::Paused, Flag::Unreadable] {
        let count = all.of(flag).unwrap_or_default();
        let example = match (count.number, flag.key()) {
            (0, _) => None,
            (_, None) => all.active.iter().find(|state| flag.holds(state, now)).cloned(),
            _ => schedules.flagged(flag, backend::Page::first(1)).await?.found.pop(),
        };
        counts.push((flag.word(), count, example.map(|state| state.name)));
    }
    let is_whole = all.of(Flag::Due).is_some_and(|count| count.is_exact);
    let mut due = all.active.clone();
    due.retain(|state| Flag::Due.holds(state, now));
    let waits = key_waits(session, &due, now).await?;
    let (waiting, due): (Vec<&JobState>, Vec<&JobState>) =
        due.iter().partition(|state| waits.contains_key(&state.name));
    let due = due.into_iter().filter(|state| state.leases.is_empty());
    let due = due.filter(|state| !declared.is_orphaned(state));
    let (overdue, due): (Vec<&JobState>, Vec<&JobState>) =
        due.partition(|state| state.due_at.is_some_and(|at| at + OVERDUE <= now));
    let number = |what: &'static str, states: &[&JobState], is_whole: bool| -> Number {
        let count = Count::new(states.len() as u64, is_whole);
        (what, count, states.first().map(|state| state.name.clone()))
    };
    let of_due = [("due", due), ("overdue", overdue), ("key_waits", waiting)];
    counts.splice(1..1, of_due.map(|(what, states)| number(what, &states, is_whole)));
    let in_code = schedules.list(Filter::default().kind(""), None, usize::MAX).await?;
    let orphaned = in_code.iter().filter(|state| declared.is_orphaned(state));
    counts.push(number("orphaned", &orphaned.collect::<Vec<_>>(), true));
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
    let ((nodes, stopping), jobs) = (declared.into_nodes(), all.jobs());
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
        let jobs = match self.jobs.is_exact {
            true => counted(usize::try_from(self.jobs.number).unwrap_or(usize::MAX), "job"),
            false => format!("{} jobs", self.jobs),
        };
        let stopping = match self.stopping.len() {
            0 => String::new(),
            stopping => format!("{stopping} stopping, "),
        };
        let live = counted(self.nodes.len(), "live daemon");
        let mut lines = vec![format!("{live}, {stopping}{jobs}")];
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
            let progress = node.progress.iter();
            lines.extend(progress.map(|run| format!("    {}: {}", run.name, run.text)));
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
            "jobs": self.jobs.number,
        });
        let jobs = ("jobs", self.jobs, None);
        let at_least = self.counts.iter().chain([&jobs]).filter(|(_, count, _)| !count.is_exact);
        object["at_least"] = at_least.map(|(what, ..)| *what).collect();
        for (what, count, _) in &self.counts {
            object[*what] = count.number.into();
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
