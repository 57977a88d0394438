//! `/metrics`: this node's own counters in the text format of Prometheus.

use allora_core::{Event, Handle, backend::Outcome};
use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
};

/// The counters of this node.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    started: AtomicU64,
    late_ms: AtomicU64,
    took_ms: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    cancelled: AtomicU64,
    lost: AtomicU64,
    expired: AtomicU64,
    missed: AtomicU64,
    skipped: AtomicU64,
}

impl Metrics {
    /// Counts an event.
    pub(crate) fn count(&self, event: &Event) {
        let add = |counter: &AtomicU64, by: u64| {
            counter.fetch_add(by, Ordering::Relaxed);
        };
        let ms = |time: &std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match event {
            Event::Started { late, .. } => {
                add(&self.started, 1);
                add(&self.late_ms, ms(late));
            }
            Event::Ended { outcome, took, .. } => {
                add(&self.took_ms, ms(took));
                match outcome {
                    Outcome::Succeeded => add(&self.succeeded, 1),
                    Outcome::Failed(_) => add(&self.failed, 1),
                    Outcome::Retried(_) => add(&self.retried, 1),
                    Outcome::Dead(_) => add(&self.dead, 1),
                    _ => add(&self.cancelled, 1),
                }
            }
            Event::RunLost { .. } => add(&self.lost, 1),
            Event::RunExpired { .. } => add(&self.expired, 1),
            Event::OccurrencesMissed { count, .. } => add(&self.missed, count.unwrap_or(1)),
            Event::OccurrencesSkipped { count, .. } => add(&self.skipped, count.unwrap_or(1)),
            _ => {}
        }
    }

    /// The page.
    pub(crate) fn text(&self, scheduler: Option<&Handle>) -> String {
        let mut text = String::new();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        family(&mut text, "allora_runs_started_total", "counter", "Runs that this node started.");
        sample(&mut text, "allora_runs_started_total", read(&self.started));
        let name = "allora_runs_ended_total";
        family(&mut text, name, "counter", "Runs of this node that ended, by outcome.");
        for (outcome, counter) in [
            ("succeeded", &self.succeeded),
            ("failed", &self.failed),
            ("retried", &self.retried),
            ("dead", &self.dead),
            ("cancelled", &self.cancelled),
        ] {
            sample(&mut text, &format!("{name}{{outcome=\"{outcome}\"}}"), read(counter));
        }
        let name = "allora_runs_lapsed_total";
        let help = "Runs of any node that this node recorded as lost or expired.";
        family(&mut text, name, "counter", help);
        for (outcome, counter) in [("lost", &self.lost), ("expired", &self.expired)] {
            sample(&mut text, &format!("{name}{{outcome=\"{outcome}\"}}"), read(counter));
        }
        let name = "allora_occurrences_not_run_total";
        family(&mut text, name, "counter", "Occurrences that were missed or skipped.");
        for (outcome, counter) in [("missed", &self.missed), ("skipped", &self.skipped)] {
            sample(&mut text, &format!("{name}{{outcome=\"{outcome}\"}}"), read(counter));
        }
        for (name, help, counter) in [
            ("allora_run_seconds_total", "Time of all ended runs.", &self.took_ms),
            (
                "allora_late_seconds_total",
                "Time between due times and starts, of all runs.",
                &self.late_ms,
            ),
        ] {
            family(&mut text, name, "counter", help);
            let ms = read(counter);
            sample(&mut text, name, format!("{}.{:03}", ms / 1_000, ms % 1_000));
        }
        let has_reached = u8::from(scheduler.is_some());
        family(&mut text, "allora_store_reached", "gauge", "1 once the store has answered.");
        sample(&mut text, "allora_store_reached", has_reached);
        let Some(health) = scheduler.map(Handle::health) else { return text };
        let number = |count: usize| count.to_string();
        for (name, help, value) in [
            (
                "allora_healthy",
                "1 if nothing keeps a job of this node from running.",
                number(usize::from(health.is_healthy())),
            ),
            ("allora_runs_active", "Active runs.", number(scheduler.map_or(0, Handle::running))),
            ("allora_jobs", "Jobs in code, such as lines of crontabs.", number(health.jobs)),
            ("allora_jobs_paused", "Paused jobs.", number(health.paused)),
            ("allora_job_problems", "Jobs that do not run.", number(health.problems.len())),
            (
                "allora_store_failing_parts",
                "Parts of the node whose requests to the store fail.",
                number(health.store.failing.len()),
            ),
            ("allora_nodes_live", "Live nodes of the store.", number(health.nodes.live)),
            (
                "allora_orphans",
                "Orphaned records, on the node that looks.",
                number(health.orphans.count),
            ),
        ] {
            family(&mut text, name, "gauge", help);
            sample(&mut text, name, value);
        }
        text
    }
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    // A `String` does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn sample(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{name} {value}");
}
