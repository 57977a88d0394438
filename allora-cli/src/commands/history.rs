//! `allora history`: what happened.

use crate::{
    failure::{Failure, Outcome},
    session::{self, Session, entry_json},
    store::StoreArgs,
    table,
    values::shown,
};
use allora_core::backend::{HistoryCursor, HistoryEntry, HistoryQuery, NotRunReason};
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
    /// Only entries below this one, the last of the page before: its fence, or its FENCE:NAME if
    /// entries of several jobs have that fence.
    #[arg(long, value_parser = cursor)]
    before: Option<HistoryCursor>,
    #[command(flatten)]
    place: StoreArgs,
    /// Prints JSON, one object a line.
    #[arg(long)]
    json: bool,
}

impl History {
    pub(crate) fn run(self) -> Outcome {
        let past = session::with(&self.place, async |session: Session| {
            let mut query = HistoryQuery::new(self.limit);
            (query.name, query.before) = (self.name.as_deref(), self.before.as_ref());
            past(&session, query).await
        })?;
        if self.json {
            let mut out = io::BufWriter::new(io::stdout().lock());
            for past in &past {
                writeln!(out, "{}", entry_json(past))?;
            }
            return Ok(out.flush()?);
        }
        let rows: Vec<[String; 9]> = past.iter().map(row).collect();
        let columns =
            ["TIME", "JOB", "OUTCOME", "ATTEMPT", "STARTED", "TOOK", "FENCE", "NODE", "REASON"];
        table::print(columns, &rows)
    }
}

/// Reads a place in the history.
fn cursor(text: &str) -> Result<HistoryCursor, String> {
    let (fence, name) = text.split_once(':').unwrap_or((text, ""));
    let fence = fence.parse().map_err(|_| "it begins with no fence; write FENCE or FENCE:NAME")?;
    Ok(HistoryCursor { fence, name: name.to_owned() })
}

/// A page of the history.
pub(super) async fn past(session: &Session, query: HistoryQuery<'_>) -> Outcome<Vec<HistoryEntry>> {
    let history = session.store.history().ok_or_else(|| {
        Failure::failed("this store keeps no history; `allora run --history N` keeps N entries")
    })?;
    Ok(history.entries(query).await?)
}

fn row(past: &HistoryEntry) -> [String; 9] {
    let at = shown(past.occurrence.scheduled_at);
    let time = match past.last {
        Some(last) if last != past.occurrence.scheduled_at => {
            let count = past.count.map_or_else(|| "?".into(), |count| count.to_string());
            format!("{at} to {} ({count})", shown(last))
        }
        _ => at,
    };
    let attempt = if past.attempt == 0 { "-".into() } else { past.attempt.to_string() };
    let took = past.started_at.zip(past.ended_at).and_then(|(from, to)| (to - from).to_std().ok());
    let reason = past.reason.map(NotRunReason::word).unwrap_or(past.outcome.error());
    [
        time,
        past.name.clone(),
        past.outcome.word().to_owned(),
        attempt,
        past.started_at.map_or_else(|| "-".into(), shown),
        took.map_or_else(|| "-".into(), |took| format!("{took:?}")),
        past.fence.to_string(),
        past.node.clone(),
        reason.to_owned(),
    ]
}
