//! `allora logs`: the ends of a job's runs with their output, as the history has them.

use super::{
    again::again,
    history::{entries_of, took},
};
use crate::{
    failure::Outcome,
    output::on_one_line,
    session::{self, Session, entry_json},
    store::StoreArgs,
    values::shown,
};
use allora_core::{
    backend::{HistoryEntry, Outcome as RunOutcome},
    runtime::Tokio,
};
use clap::Args;
use std::{
    collections::HashSet,
    io::{self, Write},
    ops::ControlFlow,
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
    /// Continues with the runs that begin and end from now on, until it is interrupted. What a run
    /// prints is shown when it has ended; until then it is in the log of its node. While the store
    /// does not answer, it is asked again each second.
    #[arg(long, short = 'f')]
    follow: bool,
    /// With --follow: ends when the runs that are active now have ended; at once if there is none.
    #[arg(long, requires = "follow")]
    once: bool,
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
            // An active run is printed when it has begun, and when it has ended.
            let key = |entry: &HistoryEntry| (entry.fence, is_over(entry));
            let mut printed = HashSet::new();
            let (mut limit, mut active) = (self.limit, None);
            let name = session.full_name(&self.name).await?;
            let look = async || {
                let entries = entries_of(&session, &name, limit.max(LOOKED_AT)).await?;
                let page = entries.iter().filter(|entry| self.follow || is_over(entry));
                let page: Vec<&HistoryEntry> = page.take(limit).collect();
                for entry in page.iter().rev().filter(|entry| !printed.contains(&key(entry))) {
                    self.print(entry)?;
                }
                // Those that are older than this look were left out.
                printed.extend(entries.iter().map(key));
                limit = LOOKED_AT;
                let running = entries.iter().filter(|entry| !is_over(entry));
                let running: HashSet<i64> = running.map(|entry| entry.fence).collect();
                let have_ended =
                    active.get_or_insert_with(|| running.clone()).is_disjoint(&running);
                Ok(match !self.follow || (self.once && have_ended) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
            };
            again(&Tokio::current()?, LOOK, false, look).await
        })
    }

    fn print(&self, entry: &HistoryEntry) -> Outcome {
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{}", entry_json(entry))?;
            return Ok(out.flush()?);
        }
        let error = entry.outcome.error();
        // The output is printed below.
        let error = ["; its output ends: ", "; its answer begins: "]
            .into_iter()
            .fold(error, |error, words| error.split(words).next().unwrap_or_default());
        let colon = if error.is_empty() { "" } else { ": " };
        let took = took(entry).map(|took| format!(" in {took:?}")).unwrap_or_default();
        let (at, word) = (shown(entry.occurrence.scheduled_at), entry.outcome.word());
        let node =
            if entry.node.is_empty() { String::new() } else { format!(" on {}", entry.node) };
        let attempt = match is_over(entry) {
            true => String::new(),
            false => format!(", attempt {}", entry.attempt),
        };
        let line = format!("{at} {word}{took}{node}{attempt}{colon}{error}");
        writeln!(out, "{}", on_one_line(&line))?;
        for line in entry.output.as_deref().unwrap_or_default().lines() {
            writeln!(out, "    {}", on_one_line(line))?;
        }
        Ok(out.flush()?)
    }
}

fn is_over(entry: &HistoryEntry) -> bool {
    entry.outcome != RunOutcome::Running
}
