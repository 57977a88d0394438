//! `allora stats`: how long the runs of a job take, how late they start, and how many fail.

use super::history::{entries_of, took};
use crate::{
    failure::{Failure, Outcome},
    output::counted,
    session::{self, Session},
    store::StoreArgs,
};
use allora_core::backend::{HistoryEntry, Outcome as RunOutcome};
use clap::Args;
use serde_json::json;
use std::{
    io::{self, Write},
    time::Duration,
};

/// Shows how long a job's runs took, how late they started, and how many failed.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    /// The job's name.
    name: String,
    /// Number of history entries to read.
    #[arg(long, short = 'n', default_value_t = 1_000)]
    limit: usize,
    #[command(flatten)]
    place: StoreArgs,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) fn run(self) -> Outcome {
        let entries = session::with(&self.place, async |session: Session| {
            entries_of(&session, &session.full_name(&self.name).await?, self.limit).await
        })?;
        let ended: Vec<&HistoryEntry> = entries
            .iter()
            .filter(|entry| entry.attempt > 0 && entry.outcome != RunOutcome::Running)
            .collect();
        if ended.is_empty() {
            return Err(Failure::failed(format!(
                "no run of {:?} has ended yet; `allora why {0}` says when it runs next",
                self.name
            )));
        }
        let failed = ended.iter().filter(|entry| has_failed(entry)).count();
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let rate = failed as f64 / ended.len() as f64;
        let took: Vec<Duration> = ended.iter().filter_map(|entry| took(entry)).collect();
        let late: Vec<Duration> = ended.iter().filter_map(|entry| late(entry)).collect();
        let (took, late) = (Quantiles::of(took), Quantiles::of(late));
        let mut out = io::stdout().lock();
        if self.json {
            let object = json!({
                "version": 1, "name": self.name, "runs": ended.len(), "failed": failed,
                "failure_rate": rate, "took_ms": took.json(), "late_ms": late.json(),
            });
            writeln!(out, "{object}")?;
        } else {
            let runs = counted(ended.len(), "run");
            writeln!(out, "{runs}, {failed} failed ({:.1} %)", rate * 100.0)?;
            writeln!(out, "took  {took}")?;
            writeln!(out, "late  {late}")?;
        }
        Ok(out.flush()?)
    }
}

fn has_failed(entry: &HistoryEntry) -> bool {
    !entry.outcome.error().is_empty()
        || matches!(entry.outcome, RunOutcome::Lost | RunOutcome::Expired)
}

fn late(entry: &HistoryEntry) -> Option<Duration> {
    let (due, started) = (entry.due_at?, entry.started_at?);
    Some((started - due).to_std().unwrap_or_default())
}

/// The middle and the ends of many durations.
#[derive(Debug, Default)]
struct Quantiles {
    p50: Duration,
    p95: Duration,
    max: Duration,
}

impl Quantiles {
    fn of(mut all: Vec<Duration>) -> Self {
        all.sort();
        // The nearest rank.
        let at = |percent: usize| {
            let rank = (all.len() * percent).div_ceil(100);
            all.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        Self { p50: at(50), p95: at(95), max: at(100) }
    }

    fn json(&self) -> serde_json::Value {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        json!({ "p50": ms(self.p50), "p95": ms(self.p95), "max": ms(self.max) })
    }
}

impl std::fmt::Display for Quantiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p50 {:?}, p95 {:?}, at most {:?}", self.p50, self.p95, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantiles_is_by_the_nearest_rank() {
        let quantiles = Quantiles::of((1..=20).map(Duration::from_secs).collect());
        let seconds = [quantiles.p50, quantiles.p95, quantiles.max].map(|time| time.as_secs());
        assert_eq!(seconds, [10, 19, 20]);
        let one = Quantiles::of(vec![Duration::from_secs(7)]);
        assert_eq!((one.p50, one.p95, one.max), (one.max, one.max, Duration::from_secs(7)));
        assert_eq!(Quantiles::of(Vec::new()).max, Duration::ZERO);
    }
}
