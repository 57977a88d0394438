//! The lines of the log about runs, two for each, and the results that commands leave for them.

use super::alerts::{Alert, Alerts};
use crate::values::{run_id, shown};
use allora_core::{
    Condition, Event, Time,
    backend::{NotRunReason, Outcome, StreakChange},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tracing::{error, info, warn};

/// The results of commands whose runs are about to be reported.
#[derive(Debug, Default)]
pub(crate) struct Results {
    by_run: Mutex<HashMap<(String, i64), CommandResult>>,
}

/// The end of a command.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandResult {
    pub(crate) exit_status: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// The end of its output.
    pub(crate) output: String,
}

/// More results than runs that may be on their way: those of runs that were dropped.
const FORGOTTEN: usize = 100_000;

impl Results {
    /// Keeps a result until the end of its run is reported.
    pub(crate) fn set(&self, job: &str, fence: i64, result: CommandResult) {
        let mut by_run = self.by_run();
        if by_run.len() >= FORGOTTEN {
            by_run.clear();
        }
        by_run.insert((job.to_owned(), fence), result);
    }

    fn take(&self, job: &str, fence: i64) -> Option<CommandResult> {
        self.by_run().remove(&(job.to_owned(), fence))
    }

    fn by_run(&self) -> MutexGuard<'_, HashMap<(String, i64), CommandResult>> {
        self.by_run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Logs the runs among the events, and alerts people.
pub(crate) fn report(event: &Event, results: &Results, alerts: &Arc<Alerts>) {
    let node = alerts.node();
    match event {
        Event::RunStarted { name, scheduled_at, attempt, fence, late, .. } => {
            let (run, scheduled_at, late_ms) =
                (run_id(name, *fence), shown(*scheduled_at), ms(*late));
            info!(target: "allora", job = &**name, run, scheduled_at, attempt, fence, late_ms, "started");
        }
        Event::RunEnded { name, scheduled_at, attempt, fence, outcome, reason, took, .. } => {
            let result = results.take(name, *fence).unwrap_or_default();
            let ended = Ended {
                job: name,
                scheduled_at: *scheduled_at,
                attempt: *attempt,
                fence: *fence,
                outcome,
                reason: *reason,
                took: *took,
            };
            ended.log(&result);
            let alert = Alert {
                exit_status: result.exit_status,
                signal: result.signal,
                took: Some(*took),
                attempt: Some(*attempt),
                error: Some(outcome.error().to_owned()).filter(|error| !error.is_empty()),
                reason: *reason,
                output: result.output,
                ..Alert::new(outcome.word(), name, *scheduled_at, *fence, node)
            };
            alerts.ended(alert);
        }
        Event::RunLost { name, scheduled_at, fence, node, .. } => {
            alerts.send(Alert::new("lost", name, *scheduled_at, *fence, node));
        }
        Event::RunExpired { name, scheduled_at, fence, node, .. } => {
            alerts.send(Alert::new("expired", name, *scheduled_at, *fence, node));
        }
        Event::Recovered { name, scheduled_at, fence, .. } => {
            alerts.send(Alert::new("recovered", name, *scheduled_at, *fence, node));
        }
        Event::FailureStreak { name, scheduled_at, failures, change, .. } if change.is_alert() => {
            let (event, error) = match change {
                StreakChange::Over => {
                    ("recovered", format!("it succeeds again, after {failures} failures in a row"))
                }
                StreakChange::Paused { until: None, .. } => {
                    ("paused", "it has paused itself until it is resumed".to_owned())
                }
                StreakChange::Paused { until: Some(until), .. } => {
                    ("paused", format!("it has paused itself until {}", shown(*until)))
                }
                _ => ("failing", format!("{failures} occurrences failed in a row")),
            };
            let alert = Alert::new(event, name, *scheduled_at, 0, node);
            alerts.send(Alert { failures: Some(*failures), error: Some(error), ..alert });
        }
        Event::Began(Condition::JobOverdue { job, due_at, .. }) => {
            let error = "it is due, and no node has claimed it for a minute".to_owned();
            let alert = Alert::new("overdue", job, *due_at, 0, node);
            alerts.send(Alert { error: Some(error), ..alert });
        }
        Event::Ended(Condition::JobOverdue { job, due_at, .. }) => {
            alerts.send(Alert::new("resolved", job, *due_at, 0, node));
        }
        Event::OccurrencesMissed { name, first, last, count, reason, .. } => {
            let count = count.map_or_else(|| "many".to_owned(), |count| count.to_string());
            let error = format!("{count} missed, up to {}: {}", shown(*last), reason.word());
            let alert = Alert::new("missed", name, *first, 0, node);
            alerts.send(Alert { error: Some(error), ..alert });
        }
        Event::GivenUp { name, scheduled_at, attempts, .. } => {
            let alert = Alert::new("dead", name, *scheduled_at, 0, node);
            alerts.send(Alert { attempt: Some(*attempts), ..alert });
        }
        _ => {}
    }
}

/// The end of a run.
struct Ended<'a> {
    job: &'a str,
    scheduled_at: Time,
    attempt: u32,
    fence: i64,
    outcome: &'a Outcome,
    reason: Option<NotRunReason>,
    took: Duration,
}

impl Ended<'_> {
    fn log(&self, result: &CommandResult) {
        let Self { job, attempt, fence, .. } = *self;
        let (run, scheduled_at) = (run_id(job, fence), shown(self.scheduled_at));
        let (took_ms, outcome, error) = (ms(self.took), self.outcome.word(), self.outcome.error());
        let CommandResult { exit_status, signal, .. } = *result;
        let reason = self.reason.map(NotRunReason::word);
        match self.outcome {
            Outcome::Cancelled if reason.is_some() => {
                warn!(target: "allora", job, run, scheduled_at, attempt, fence, took_ms, outcome, reason, exit_status, signal, "ended: cut off by the stop of this daemon, and not run again; a longer --grace gives it more time");
            }
            Outcome::Interrupted | Outcome::Released => {
                warn!(target: "allora", job, run, scheduled_at, attempt, fence, took_ms, outcome, reason, exit_status, signal, "ended before it was done; it is run again");
            }
            Outcome::Failed(_) => {
                warn!(target: "allora", job, run, scheduled_at, attempt, fence, took_ms, outcome, exit_status, signal, error, "ended");
            }
            Outcome::Retried(_) => {
                warn!(target: "allora", job, run, scheduled_at, attempt, fence, took_ms, outcome, exit_status, signal, error, "ended; another attempt follows");
            }
            Outcome::Dead(_) => {
                error!(target: "allora", job, run, scheduled_at, attempt, fence, took_ms, outcome, exit_status, signal, error, "ended; its attempts are used up: `allora rerun` runs it again");
            }
            _ => {
                info!(target: "allora", job, run, scheduled_at, attempt, fence, took_ms, outcome, exit_status, signal, "ended");
            }
        }
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
