//! Events as log lines.

use crate::{backend::Outcome, event::Event};
use tracing::{debug, error, info, warn};

/// Logs an event under the target `allora`: errors need an operator's action, warnings may need
/// attention, and each run is logged at debug level.
pub(crate) fn log(event: &Event) {
    match event {
        Event::DurabilityWarning { what } => {
            warn!(target: "allora", what, "the store can lose the record of at-most-once runs");
        }
        Event::ScheduleWarning { name, warning } => {
            let (code, warning) = (warning.code, &warning.message);
            warn!(target: "allora", job = %name, code, warning, "the job's schedule is seldom intended");
        }
        Event::Ready { node, jobs } => {
            info!(target: "allora", %node, jobs, "the scheduler has reached its store");
        }
        Event::Started { name, scheduled_at, attempt, fence, late } => {
            debug!(target: "allora", job = %name, %scheduled_at, attempt, fence, ?late, "run started");
        }
        Event::Ended { name, scheduled_at, attempt, fence, outcome, took } => match outcome {
            Outcome::Failed(error) => {
                warn!(target: "allora", job = %name, %scheduled_at, attempt, fence, ?took, error, "run failed");
            }
            Outcome::Retried(error) => {
                warn!(target: "allora", job = %name, %scheduled_at, attempt, fence, ?took, error, "run failed; another attempt follows");
            }
            Outcome::Dead(error) => {
                error!(target: "allora", job = %name, %scheduled_at, attempt, fence, ?took, error, "run failed, and its attempts are used up");
            }
            outcome => {
                let outcome = outcome.word();
                debug!(target: "allora", job = %name, %scheduled_at, attempt, fence, ?took, outcome, "run ended");
            }
        },
        Event::OccurrencesMissed { name, first, last, count, reason } => {
            let reason = reason.word();
            warn!(target: "allora", job = %name, %first, %last, ?count, reason, "occurrences missed");
        }
        Event::OccurrencesSkipped { name, first, last, count, reason } => {
            let reason = reason.word();
            info!(target: "allora", job = %name, %first, %last, ?count, reason, "occurrences skipped");
        }
        Event::LeaseLost { name, key, fence } => {
            warn!(target: "allora", job = %name, key = key.as_deref(), fence, "run cancelled: its lease is lost");
        }
        Event::LeaseRenewalFailed { name, key, fence } => {
            warn!(target: "allora", job = %name, key = key.as_deref(), fence, "run cancelled: its lease was not extended in time");
        }
        Event::Redefined { name } => {
            info!(target: "allora", job = %name, "job redefined: the store had another definition");
        }
        Event::DefinitionConflict { name } => {
            warn!(target: "allora", job = %name, "another node has defined this job differently; this node does not run it until it is restarted");
        }
        Event::Deleted { name } => {
            info!(target: "allora", job = %name, "job was deleted; this node does not run it until it is registered again");
        }
        Event::Reregistered { name } => {
            error!(target: "allora", job = %name, "the store had no record of this job any more; it was registered again");
        }
        Event::JobInvalid { name, reason } => {
            error!(target: "allora", job = %name, reason, "job cannot be run by this node");
        }
        Event::JobResumed { name } => {
            info!(target: "allora", job = %name, "this node runs the job again");
        }
        Event::ClaimAbandoned { name, scheduled_at } => {
            error!(target: "allora", job = %name, %scheduled_at, "the store did not say whether it granted a claim; if it did, the run is lost, or run again at least once");
        }
        Event::StoreDown { error } => {
            error!(target: "allora", %error, cause = cause(&**error), "the store does not answer; trying again");
        }
        Event::StoreUp => info!(target: "allora", "the store answers again"),
        Event::StoreError { error } => {
            error!(target: "allora", %error, cause = cause(&**error), "the store rejected a request; trying again");
        }
        Event::CapacityFull { concurrency } => {
            warn!(target: "allora", concurrency, "occurrences are due, and this node's capacity is used up");
        }
        Event::CapacityFree => info!(target: "allora", "nothing waits for capacity any more"),
        Event::ClockSkew { ahead, by } => {
            warn!(target: "allora", ahead, ?by, "this node's clock differs from the store's clock, which is used");
        }
        Event::TimerDelayed { by } => {
            warn!(target: "allora", ?by, "a timer fired late: a task blocks the executor, or the machine slept");
        }
        Event::Stopped { cancelled, unrecorded, unresolved } => {
            info!(target: "allora", cancelled, unrecorded, unresolved, "the scheduler has stopped");
        }
    }
}

fn cause(error: &dyn std::error::Error) -> Option<String> {
    error.source().map(ToString::to_string)
}
