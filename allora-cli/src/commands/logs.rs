//! `allora logs`: the ends of a job's runs with their output, as the history has them.

use super::history::{entries_of, took};
use crate::{
    failure::Outcome,
    output::on_one_line,
    session::{self, Session, entry_json},
    store::StoreArgs,
    values::shown,
};
use allora_core::{
    backend::{HistoryEntry, Outcome as RunOutcome},
    runtime::{Runtime, Tokio},
};
use clap::Args;
use std::{
    collections::HashSet,
    io::{self, Write},
    time::Duration,
};

/// Shows the runs of a job and the end of what they printed, the oldest first.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The job's name.
    name: String,
    /// The last so many runs.
    #[arg(long, short = 'n', default_value_t = 10)]
    limit: usize,
    /// Continues with the runs that end from now on, until it is interrupted.
    #[arg(long, short = 'f')]
    follow: bool,
    #[command(flatten)]
    place: StoreArgs,
    /// Prints JSON, one object a line.
    #[arg(long)]
    json: bool,
}

/// The interval at which the history is read, and the number of entries.
const LOOK: Duration = Duration::from_secs(1);
const LOOKED_AT: usize = 200;

impl Logs {
    pub(crate) fn run(self) -> Outcome {
        session::with(&self.place, async |session: Session| {
            let runtime = Tokio::current()?;
            let mut printed: HashSet<i64> = HashSet::new();
            let mut limit = self.limit;
            let name = session.full_name(&self.name).await?;
            loop {
                let entries = entries_of(&session, &name, limit.max(LOOKED_AT)).await?;
                let ended = entries.iter().filter(|entry| entry.outcome != RunOutcome::Running);
                let ended: Vec<&HistoryEntry> = ended.take(limit).collect();
                for entry in ended.iter().rev().filter(|entry| !printed.contains(&entry.fence)) {
                    self.print(entry)?;
                }
                // Those that are older than this look were left out.
                printed
                    .extend(entries.iter().filter(|entry| is_over(entry)).map(|entry| entry.fence));
                if !self.follow {
                    return Ok(());
                }
                limit = LOOKED_AT;
                runtime.sleep_until(runtime.now() + LOOK).await;
            }
        })
    }

    fn print(&self, entry: &HistoryEntry) -> Outcome {
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{}", entry_json(entry))?;
            return Ok(out.flush()?);
        }
        let error = entry.outcome.error();
        let error = error.split("; its output ends: ").next().unwrap_or_default();
        let colon = if error.is_empty() { "" } else { ": " };
        let took = took(entry).map(|took| format!(" in {took:?}")).unwrap_or_default();
        let (at, word) = (shown(entry.occurrence.scheduled_at), entry.outcome.word());
        let node =
            if entry.node.is_empty() { String::new() } else { format!(" on {}", entry.node) };
        writeln!(out, "{}", on_one_line(&format!("{at} {word}{took}{node}{colon}{error}")))?;
        for line in entry.output.as_deref().unwrap_or_default().lines() {
            writeln!(out, "    {}", on_one_line(line))?;
        }
        Ok(out.flush()?)
    }
}

fn is_over(entry: &HistoryEntry) -> bool {
    entry.outcome != RunOutcome::Running
}
