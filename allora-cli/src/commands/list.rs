//! `allora list`: the schedules of a store, those that are due first at the top.

use super::filter::FilterOptions;
use crate::{
    declared::{Declared, without_next},
    failure::Outcome,
    output::{counted, on_one_line},
    session::{self, Described, Session, data, describe, state_json},
    store::StoreArgs,
};
use allora_core::{Time, backend::JobState};
use clap::Args;
use std::io::{self, Write};

/// Lists the stored schedules, ordered by when they run next.
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    place: StoreArgs,
    #[command(flatten)]
    options: FilterOptions,
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

impl List {
    pub(crate) fn run(self) -> Outcome {
        let mut filter = self.options.filter();
        filter.stored_only = !self.all;
        let is_for_orphans = self.options.is_for_orphans();
        let listed = session::with(&self.place, async |session: Session| {
            // Of all jobs, orphans are found afterwards.
            let limit = self.limit.filter(|_| !is_for_orphans).unwrap_or(usize::MAX);
            let listed = session.schedules.list_by_due(filter, limit).await?;
            let listed = listed.into_iter().map(|state| (state, false));
            if !self.all {
                return Ok(listed.collect());
            }
            let declared = Declared::read(&session).await?;
            let marked = listed.map(|(state, _)| match declared.is_orphaned(&state) {
                true => (without_next(state), true),
                false => (state, false),
            });
            Ok(marked.collect::<Vec<_>>())
        })?;
        let wanted = listed.iter().filter(|(_, is_orphaned)| *is_orphaned || !is_for_orphans);
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
            writeln!(out, "{}.", counted(wanted.len(), "entry"))?;
        }
        Ok(out.flush()?)
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
