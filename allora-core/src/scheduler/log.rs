//! Events as log lines.

use crate::{backend::Outcome, event::Event};
use tracing::{debug, error, info, warn};

/// Logs an event under the target `allora`: what an operator must act on as errors, what may need
/// a look as warnings, each run at debug level.
pub(crate) fn log(event: &Event) {
    match event {
        Event::Caveat { what } => {
            warn!(target: "allora", what, "at most once is only as good as the store");
        }
        Event::Ready { node, jobs } => {
            info!(target: "allora", %node, jobs, "scheduler has reached its store");
        }
        Event::Started { name, scheduled_at, attempt, fence, late } => {
            debug!(target: "allora", job = %name, %scheduled_at, attempt, fence, ?late, "run started");
        }
        Event::Ended { name, scheduled_at, attempt, fence, outcome, took } => match outcome {
            Outcome::Failed(error) => {
                warn!(target: "allora", job = %name, %scheduled_at, attempt, fence, ?took, error, "run failed");
            }
            Outcome::Dead(error) => {
                error!(target: "allora", job = %name, %scheduled_at, attempt, fence, ?took, error, "run failed for the last time");
            }
            outcome => {
                let outcome = outcome.word();
                debug!(target: "allora", job = %name, %scheduled_at, attempt, fence, ?took, outcome, "run ended");
            }
        },
        Event::Passed { name, first, last, count, outcome } => {
            let outcome = outcome.word();
            info!(target: "allora", job = %name, %first, %last, ?count, outcome, "instants passed over");
        }
        Event::LeaseLost { name, fence } => {
            warn!(target: "allora", job = %name, fence, "the run's occurrence is somebody else's now");
        }
        Event::LeaseUnconfirmed { name, fence } => {
            warn!(target: "allora", job = %name, fence, "run cancelled: its lease was not extended in time");
        }
        Event::MutexUnconfirmed { name, group, fence } => {
            warn!(target: "allora", job = %name, %group, fence, "run cancelled: its turn in the mutex group was not confirmed in time");
        }
        Event::MutexLost { name, group, fence } => {
            warn!(target: "allora", job = %name, %group, fence, "run ended: its turn in the mutex group is somebody else's now");
        }
        Event::Redefined { name } => {
            info!(target: "allora", job = %name, "the store had another definition; it has this one now");
        }
        Event::Outdated { name } => {
            warn!(target: "allora", job = %name, "another node has defined this job otherwise; left alone until a restart");
        }
        Event::Deleted { name } => {
            info!(target: "allora", job = %name, "job was deleted; left alone until a restart");
        }
        Event::Forgotten { name } => {
            error!(target: "allora", job = %name, "the store had forgotten this job; registering it again");
        }
        Event::Unplannable { name, reason } => {
            error!(target: "allora", job = %name, reason, "job cannot be run by this node");
        }
        Event::StoreDown { error } => {
            error!(target: "allora", %error, cause = cause(&**error), "the store does not answer; asking again");
        }
        Event::StoreUp => info!(target: "allora", "the store answers again"),
        Event::StoreRefused { error } => {
            error!(target: "allora", %error, cause = cause(&**error), "the store refused a request; asking again");
        }
        Event::ClockOff { ahead, by } => {
            warn!(target: "allora", ahead, ?by, "this node's clock differs from the store's, which decides");
        }
        Event::Stalled { by } => {
            warn!(target: "allora", ?by, "a timer came late: something blocks the executor");
        }
        Event::Stopped { cancelled, unsettled } => {
            info!(target: "allora", cancelled, unsettled, "scheduler has stopped");
        }
    }
}

fn cause(error: &dyn std::error::Error) -> Option<String> {
    error.source().map(ToString::to_string)
}
