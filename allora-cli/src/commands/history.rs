//! `allora history`: what happened.

use crate::{
    failure::{Failure, Outcome},
    session::{self, Session, entry_json},
    store::StoreArgs,
    table,
    values::{duration, instant, shown},
};
use allora_core::{
    Time,
    backend::{HistoryCursor, HistoryEntry, HistoryQuery, NotRunReason, Outcome as RunOutcome},
};
use chrono::DateTime;
use clap::Args;
use std::{
    io::{self, Write},
    time::Duration,
};

/// Shows what happened to occurrences, the newest first.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// The job's name, whose active runs are shown with their progress [default: all jobs].
    #[arg(conflicts_with = "job")]
    name: Option<String>,
    /// The same, as an option.
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Only entries with one of these outcomes: running, succeeded, failed, retried, interrupted,
    /// dead, lost, expired, missed, skipped, cancelled or released.
    #[arg(long, value_name = "OUTCOMES", value_delimiter = ',')]
    outcome: Vec<String>,
    /// Only entries of stored schedules that have this owner now.
    #[arg(long)]
    owner: Option<String>,
    /// Only entries of this time and later: RFC 3339, seconds since 1970, or a time ago as 2h.
    #[arg(long, value_parser = since)]
    since: Option<Since>,
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
        let entries = session::with(&self.place, async |session: Session| {
            let name = match self.name.as_deref().or(self.job.as_deref()) {
                Some(name) => Some(session.full_name(name).await?),
                None => None,
            };
            let name = name.as_deref();
            let mut entries = self.filtered(&session, name).await?;
            if let Some(name) = name.filter(|_| entries.is_empty()) {
                // A name that no job has, and never had, is a mistake.
                if !has_history(&session, name).await? {
                    session.schedules.get(name).await?;
                }
            }
            if let (Some(name), true) = (name, entries.iter().any(is_running)) {
                // It is the output at the end, unless the run sets another one.
                for run in session.schedules.progress(name).await? {
                    let of_it = |entry: &&mut HistoryEntry| entry.fence == run.fence;
                    if let Some(entry) =
                        entries.iter_mut().filter(of_it).find(|one| is_running(one))
                    {
                        entry.output = Some(run.text);
                    }
                }
            }
            Ok(entries)
        })?;
        if self.json {
            let mut out = io::BufWriter::new(io::stdout().lock());
            for entry in &entries {
                writeln!(out, "{}", entry_json(entry))?;
            }
            return Ok(out.flush()?);
        }
        let rows: Vec<[String; 9]> = entries.iter().map(row).collect();
        let columns =
            ["TIME", "JOB", "OUTCOME", "ATTEMPT", "STARTED", "TOOK", "FENCE", "NODE", "REASON"];
        table::print(columns, &rows)
    }
}

/// A time of which the history is shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Since {
    At(Time),
    Ago(Duration),
}

impl Since {
    /// The time, by the store's clock.
    pub(super) async fn time(self, session: &Session) -> Outcome<Time> {
        match self {
            Self::At(at) => Ok(at),
            Self::Ago(ago) => Ok(session.schedules.store_now().await? - ago),
        }
    }
}

pub(super) fn since(text: &str) -> Result<Since, String> {
    if let Ok(at) = instant(text) {
        return Ok(Since::At(at));
    }
    duration(text).map(Since::Ago).map_err(|_| {
        "not a time; write 2026-03-07T12:00:00Z, seconds since 1970, or a time ago as 2h".into()
    })
}

/// The number of entries in one request, where most may be left out.
const PAGE: usize = 500;

impl History {
    /// The newest entries that pass the filters.
    async fn filtered(&self, session: &Session, name: Option<&str>) -> Outcome<Vec<HistoryEntry>> {
        for word in &self.outcome {
            if RunOutcome::from_word(word, "").is_none() {
                let what = format!(
                    "--outcome: there is no outcome {word:?}; write some of running, succeeded, \
                     failed, retried, interrupted, dead, lost, expired, missed, skipped, cancelled \
                     and released"
                );
                return Err(Failure::Invalid(what));
            }
        }
        let since = match self.since {
            None => None,
            Some(since) => Some(since.time(session).await?),
        };
        let size = match self.outcome.is_empty() && since.is_none() {
            true => self.limit,
            false => PAGE,
        };
        let (mut passed, mut before) = (Vec::new(), self.before.clone());
        loop {
            let mut query = HistoryQuery::new(size);
            (query.name, query.before) = (name, before.as_ref());
            query.owner = self.owner.as_deref();
            let page = entries(session, query).await?;
            let is_last = page.len() < size;
            before = page.last().map(HistoryEntry::cursor);
            // Fences grow with time: what follows an entry that began before is older, too.
            let is_over = since.is_some_and(|since| {
                page.last().is_some_and(|entry| time_of(entry).is_some_and(|at| at < since))
            });
            passed.extend(page.into_iter().filter(|entry| {
                let outcome = entry.outcome.word();
                (self.outcome.is_empty() || self.outcome.iter().any(|word| word == outcome))
                    && since.is_none_or(|since| time_of(entry).is_none_or(|at| at >= since))
            }));
            if is_last || is_over || passed.len() >= self.limit {
                passed.truncate(self.limit);
                return Ok(passed);
            }
        }
    }
}

/// The time of the claim, or of the record of a range: fences are drawn from the store's clock.
fn time_of(entry: &HistoryEntry) -> Option<Time> {
    entry.started_at.or_else(|| DateTime::from_timestamp_micros(entry.fence))
}

async fn has_history(session: &Session, name: &str) -> Outcome<bool> {
    Ok(!entries(session, HistoryQuery::new(1).name(name)).await?.is_empty())
}

/// The newest entries of a job.
///
/// # Errors
/// There is no such job, and there never was one.
pub(super) async fn entries_of(
    session: &Session,
    name: &str,
    limit: usize,
) -> Outcome<Vec<HistoryEntry>> {
    let entries = entries(session, HistoryQuery::new(limit).name(name)).await?;
    if entries.is_empty() {
        session.schedules.get(name).await?;
    }
    Ok(entries)
}

/// The duration of a run that has ended.
pub(super) fn took(entry: &HistoryEntry) -> Option<Duration> {
    (entry.ended_at? - entry.started_at?).to_std().ok()
}

/// Reads a place in the history.
fn cursor(text: &str) -> Result<HistoryCursor, String> {
    let (fence, name) = text.split_once(':').unwrap_or((text, ""));
    let fence =
        fence.parse().map_err(|_| "it does not begin with a fence; write FENCE or FENCE:NAME")?;
    Ok(HistoryCursor { fence, name: name.to_owned() })
}

/// A page of the history; of one job, with its active runs.
pub(super) async fn entries(
    session: &Session,
    query: HistoryQuery<'_>,
) -> Outcome<Vec<HistoryEntry>> {
    if session.store.history().is_none() {
        let what = "this store keeps no history; `allora run --history N` keeps N entries";
        return Err(Failure::failed(what));
    }
    Ok(session.schedules.history(query).await?)
}

fn is_running(entry: &HistoryEntry) -> bool {
    entry.outcome == RunOutcome::Running
}

fn row(entry: &HistoryEntry) -> [String; 9] {
    let at = shown(entry.occurrence.scheduled_at);
    let time = match entry.last {
        Some(last) if last != entry.occurrence.scheduled_at => {
            let count = entry.count.map_or_else(|| "?".into(), |count| count.to_string());
            format!("{at} to {} ({count})", shown(last))
        }
        _ => at,
    };
    let attempt = if entry.attempt == 0 { "-".into() } else { entry.attempt.to_string() };
    let took = took(entry);
    let reason = match &entry.output {
        Some(progress) if is_running(entry) => progress,
        _ => entry.reason.map(NotRunReason::word).unwrap_or(entry.outcome.error()),
    };
    let note = entry.operator_note().map(|note| format!(" {note}")).unwrap_or_default();
    [
        time,
        entry.name.clone(),
        entry.outcome.word().to_owned(),
        attempt,
        entry.started_at.map_or_else(|| "-".into(), shown),
        took.map_or_else(|| "-".into(), |took| format!("{took:?}")),
        entry.fence.to_string(),
        entry.node.clone(),
        reason.to_owned() + &note,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_active_run_has_its_progress_in_the_place_of_a_reason() {
        let at = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let mut entry = HistoryEntry::new("export", 7, at.into(), RunOutcome::Running);
        entry.output = Some("3 of 4 files".into());
        assert_eq!(row(&entry)[8], "3 of 4 files");
        entry.outcome = RunOutcome::Succeeded;
        assert_eq!(row(&entry)[8], "");
    }
}
