//! `allora history`: what happened.

use crate::{
    failure::{Failure, Outcome},
    session::{self, Session, entry_json},
    store::StoreArgs,
    table,
    values::shown,
};
use allora_core::backend::HistoryEntry;
use clap::Args;
use std::io::{self, Write};

/// Shows what happened to occurrences, the newest first.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// The job's name [default: all jobs].
    name: Option<String>,
    /// At most so many entries.
    #[arg(long, short = 'n', default_value_t = 50)]
    limit: usize,
    /// Only entries of a lower fence: the last one of the page before.
    #[arg(long)]
    before: Option<i64>,
    #[command(flatten)]
    place: StoreArgs,
    /// Prints JSON, one object a line.
    #[arg(long)]
    json: bool,
}

impl History {
    pub(crate) fn run(self) -> Outcome {
        let past = session::with(&self.place, async |session: Session| {
            past(&session, self.name.as_deref(), self.before, self.limit).await
        })?;
        if self.json {
            let mut out = io::BufWriter::new(io::stdout().lock());
            for past in &past {
                writeln!(out, "{}", entry_json(past))?;
            }
            return Ok(out.flush()?);
        }
        let rows: Vec<[String; 7]> = past.iter().map(row).collect();
        table::print(["TIME", "JOB", "OUTCOME", "ATTEMPT", "FENCE", "NODE", "ERROR"], &rows)
    }
}

/// The newest entries.
pub(super) async fn past(
    session: &Session,
    name: Option<&str>,
    before: Option<i64>,
    limit: usize,
) -> Outcome<Vec<HistoryEntry>> {
    let history = session.store.history().ok_or_else(|| {
        Failure::failed("this store keeps no history; `allora run --history N` keeps N entries")
    })?;
    Ok(history.entries(name, before, limit).await?)
}

fn row(past: &HistoryEntry) -> [String; 7] {
    let at = shown(past.occurrence.scheduled_at);
    let time = match past.last {
        Some(last) if last != past.occurrence.scheduled_at => {
            let count = past.count.map_or_else(|| "?".into(), |count| count.to_string());
            format!("{at} to {} ({count})", shown(last))
        }
        _ => at,
    };
    let attempt = if past.attempt == 0 { "-".into() } else { past.attempt.to_string() };
    [
        time,
        past.name.clone(),
        past.outcome.word().to_owned(),
        attempt,
        past.fence.to_string(),
        past.node.clone(),
        past.outcome.error().to_owned(),
    ]
}
