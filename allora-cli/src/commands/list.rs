//! `allora list`: the schedules of a store, those that are due first at the top.

use crate::{
    declared::{Declared, without_next},
    failure::Outcome,
    output::on_one_line,
    session::{self, Described, Session, data, describe, state_json},
    store::StoreArgs,
};
use allora_core::{
    Time,
    backend::JobState,
    stored::{Condition, Filter},
};
use clap::{Args, ValueEnum};
use std::io::{self, Write};

/// Lists the stored schedules, ordered by when they run next.
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    place: StoreArgs,
    /// Only schedules of this kind.
    #[arg(long, visible_alias = "type")]
    kind: Option<String>,
    /// Only schedules whose names begin so.
    #[arg(long, default_value = "")]
    name: String,
    /// Only schedules with this tag.
    #[arg(long)]
    tag: Option<String>,
    /// Only schedules of this owner.
    #[arg(long)]
    owner: Option<String>,
    /// Only schedules in this state.
    #[arg(long)]
    state: Option<In>,
    /// The first so many.
    #[arg(long, short = 'n')]
    limit: Option<usize>,
    /// Jobs in code and in crontabs, too.
    #[arg(long)]
    all: bool,
    /// Prints JSON, one object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum In {
    /// It waits for its time.
    Waiting,
    /// A run of it is alive.
    Running,
    /// It is paused.
    Paused,
    /// It has nothing more to run.
    Ended,
    /// It has dead letters.
    Dead,
    /// Its record or its definition cannot be read.
    Broken,
    /// No live node has this line or job in code any more (with --all).
    Orphaned,
}

impl In {
    pub(crate) fn condition(self) -> Option<Condition> {
        Some(match self {
            Self::Orphaned => return None,
            Self::Waiting => Condition::Waiting,
            Self::Running => Condition::Running,
            Self::Paused => Condition::Paused,
            Self::Ended => Condition::Ended,
            Self::Dead => Condition::Dead,
            Self::Broken => Condition::Broken,
        })
    }
}

impl List {
    pub(crate) fn run(self) -> Outcome {
        let mut filter = Filter::default().prefix(&self.name);
        filter.kind = self.kind.as_deref();
        filter.tag = self.tag.as_deref();
        filter.owner = self.owner.as_deref();
        filter.condition = self.state.and_then(In::condition);
        let listed = session::with(&self.place, async |session: Session| {
            // Jobs in code are among them, and take no place of the limit when they are not shown.
            let limit = if self.all && !self.is_for_orphans() { self.limit } else { None };
            let listed = session.schedules.list_by_due(filter, limit.unwrap_or(usize::MAX)).await?;
            let listed = listed.into_iter().map(|state| (state, false));
            if !self.all {
                return Ok(listed.filter(|(state, _)| !state.kind.is_empty()).collect());
            }
            let declared = Declared::read(&session).await?;
            let marked = listed.map(|(state, _)| match declared.is_orphaned(&state) {
                true => (without_next(state), true),
                false => (state, false),
            });
            Ok(marked.collect::<Vec<_>>())
        })?;
        let wanted =
            listed.iter().filter(|(_, is_orphaned)| *is_orphaned || !self.is_for_orphans());
        let wanted: Vec<&(JobState, bool)> =
            wanted.take(self.limit.unwrap_or(usize::MAX)).collect();
        let mut out = io::BufWriter::new(io::stdout().lock());
        if self.json {
            for (state, is_orphaned) in &wanted {
                writeln!(out, "{}", state_json(state, *is_orphaned))?;
            }
        } else {
            writeln!(
                out,
                "{}",
                row([
                    "name",
                    "kind",
                    "schedule",
                    "delay",
                    "timezone",
                    "scheduled_at",
                    "due_at",
                    "data"
                ])
            )?;
            for (state, is_orphaned) in &wanted {
                writeln!(out, "{}", shown(state, *is_orphaned))?;
            }
            writeln!(out, "{} entries.", wanted.len())?;
        }
        Ok(out.flush()?)
    }
}

impl List {
    fn is_for_orphans(&self) -> bool {
        matches!(self.state, Some(In::Orphaned))
    }
}

/// The columns of PerfectSched, under the names that all commands use.
fn row([name, kind, schedule, delay, zone, at, due, data]: [&str; 8]) -> String {
    format!("{name:>30} {kind:>15} {schedule:>18} {delay:>7} {zone:>11} {at:>28} {due:>28}  {data}")
}

fn shown(state: &JobState, is_orphaned: bool) -> String {
    let Described { schedule, zone, delay, .. } = describe(state);
    let time = |at: Option<Time>| {
        at.map_or_else(|| "-".into(), |at| at.format("%Y-%m-%d %H:%M:%S +0000").to_string())
    };
    let (name, due) = (on_one_line(&state.name), time(state.due_at));
    row([
        &name,
        if state.kind.is_empty() { "-" } else { &state.kind },
        &schedule,
        &delay.as_secs_f64().to_string(),
        &zone,
        &time(state.cursor.map(|next| next.scheduled_at)),
        if is_orphaned { "orphaned" } else { &due },
        &data(state),
    ])
}
