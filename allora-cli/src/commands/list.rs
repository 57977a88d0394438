//! `allora list`: the schedules of a store, those that are due first at the top.

use crate::{
    failure::Outcome,
    output::on_one_line,
    session::{self, Session, Told, data, state_json, told},
    store::Place,
};
use allora_core::{
    Time,
    backend::State,
    stored::{Condition, Filter},
};
use clap::{Args, ValueEnum};
use std::io::{self, Write};

/// Lists the stored schedules, ordered by when they run next.
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    place: Place,
    /// Only schedules of this type.
    #[arg(long = "type", visible_alias = "kind", value_name = "TYPE")]
    kind: Option<String>,
    /// Only schedules whose names begin so.
    #[arg(long, default_value = "")]
    name: String,
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
enum In {
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
}

impl In {
    fn condition(self) -> Condition {
        match self {
            Self::Waiting => Condition::Waiting,
            Self::Running => Condition::Running,
            Self::Paused => Condition::Paused,
            Self::Ended => Condition::Ended,
            Self::Dead => Condition::Dead,
            Self::Broken => Condition::Broken,
        }
    }
}

impl List {
    pub(crate) fn run(self) -> Outcome {
        let mut filter = Filter::default().prefix(&self.name);
        filter.kind = self.kind.as_deref();
        filter.condition = self.state.map(In::condition);
        let listed = session::with(&self.place, async |session: Session| {
            // Jobs in code are among them, and take no place of the limit when they are not shown.
            let limit = if self.all { self.limit } else { None };
            Ok(session.schedules.list_by_due(filter, limit.unwrap_or(usize::MAX)).await?)
        })?;
        let wanted = listed.iter().filter(|state| self.all || !state.kind.is_empty());
        let wanted: Vec<&State> = wanted.take(self.limit.unwrap_or(usize::MAX)).collect();
        let mut out = io::BufWriter::new(io::stdout().lock());
        if self.json {
            for state in &wanted {
                writeln!(out, "{}", state_json(state))?;
            }
        } else {
            writeln!(
                out,
                "{}",
                row([
                    "key",
                    "type",
                    "cron",
                    "delay",
                    "timezone",
                    "next_time",
                    "next_run_time",
                    "data"
                ])
            )?;
            for state in &wanted {
                writeln!(out, "{}", shown(state))?;
            }
            writeln!(out, "{} entries.", wanted.len())?;
        }
        Ok(out.flush()?)
    }
}

/// The columns that users of PerfectSched know.
fn row([key, kind, cron, delay, zone, next, run, data]: [&str; 8]) -> String {
    format!("{key:>30} {kind:>15} {cron:>18} {delay:>7} {zone:>11} {next:>28} {run:>28}  {data}")
}

fn shown(state: &State) -> String {
    let Told { schedule, zone, delay } = told(state);
    let time = |at: Option<Time>| {
        at.map_or_else(|| "-".into(), |at| at.format("%Y-%m-%d %H:%M:%S +0000").to_string())
    };
    let key = on_one_line(&state.name);
    row([
        &key,
        if state.kind.is_empty() { "-" } else { &state.kind },
        &schedule,
        &delay.as_secs_f64().to_string(),
        &zone,
        &time(state.cursor.map(|next| next.at)),
        &time(state.due_at),
        &data(state),
    ])
}
