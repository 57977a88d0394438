//! Events as log lines.

use super::launch::millis;
use crate::{backend::Outcome, event::Event, time::Time};
use chrono::SecondsFormat;
use tracing::{debug, error, info, warn};

/// The target of the lines about each run, so that a program which logs runs itself can filter them.
const RUNS: &str = "allora::run";

/// An instant as all lines have it: RFC 3339 in UTC.
fn time(at: &Time) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// Logs an event of this node under the target `allora`, and each run under `allora::run`: errors need an
/// operator's action, warnings may need attention, and each run is logged at debug level.
pub(crate) fn log(event: &Event, node: &str) {
    let remedy = event.remedy();
    match event {
        Event::DurabilityWarning { what, .. } => {
            warn!(target: "allora", node, what, "the store can lose the record of at-most-once runs");
        }
        Event::ScheduleWarning { name, warning, .. } => {
            let (code, warning) = (warning.code, &warning.message);
            warn!(target: "allora", node, job = %name, code, warning, "the job's schedule is seldom intended");
        }
        Event::Ready { jobs, .. } => {
            info!(target: "allora", node, jobs, "the scheduler has reached its store");
        }
        Event::Started { name, kind, scheduled_at, attempt, fence, late, .. } => {
            let (scheduled_at, late_ms) = (time(scheduled_at), millis(*late));
            debug!(target: RUNS, node, job = %name, %kind, scheduled_at, attempt, fence, late_ms, "run started");
        }
        Event::Ended { name, kind, scheduled_at, attempt, fence, outcome, took, .. } => {
            let (scheduled_at, took_ms) = (time(scheduled_at), millis(*took));
            match outcome {
                Outcome::Failed(error) => {
                    warn!(target: RUNS, node, job = %name, %kind, scheduled_at, attempt, fence, took_ms, error, "run failed");
                }
                Outcome::Retried(error) => {
                    warn!(target: RUNS, node, job = %name, %kind, scheduled_at, attempt, fence, took_ms, error, "run failed; another attempt follows");
                }
                Outcome::Dead(error) => {
                    error!(target: RUNS, node, job = %name, %kind, scheduled_at, attempt, fence, took_ms, error, "run failed, and its attempts are used up");
                }
                outcome => {
                    let outcome = outcome.word();
                    debug!(target: RUNS, node, job = %name, %kind, scheduled_at, attempt, fence, took_ms, outcome, "run ended");
                }
            }
        }
        Event::RunLost { name, scheduled_at, fence, node: ran_on, age, .. } => {
            let (scheduled_at, age_ms) = (time(scheduled_at), millis(*age));
            warn!(target: "allora", node, job = %name, scheduled_at, fence, %ran_on, age_ms, remedy, "run lost: its lease has ended, and it is not run again");
        }
        Event::RunExpired { name, scheduled_at, fence, node: ran_on, age, .. } => {
            let (scheduled_at, age_ms) = (time(scheduled_at), millis(*age));
            warn!(target: "allora", node, job = %name, scheduled_at, fence, %ran_on, age_ms, "run expired: its lease has ended, and the occurrence is run again");
        }
        Event::KeyBusy { name, wait, .. } => {
            let (key, holders) = (&wait.key, wait.holders());
            debug!(target: "allora", node, job = %name, key, holders, "occurrence waits for its concurrency key");
        }
        Event::KeyFree { name, key, waited, .. } => {
            let waited_ms = millis(*waited);
            debug!(target: "allora", node, job = %name, %key, waited_ms, "the wait for the concurrency key is over");
        }
        Event::KeyLimitsDiffer { name, key, limit, other, .. } => {
            warn!(target: "allora", node, job = %name, %key, limit, other, remedy, "jobs of this concurrency key have different limits");
        }
        Event::OccurrencesMissed { name, first, last, count, reason, .. } => {
            let (reason, first, last) = (reason.word(), time(first), time(last));
            warn!(target: "allora", node, job = %name, first, last, count, reason, "occurrences missed");
        }
        Event::OccurrencesSkipped { name, first, last, count, reason, .. } => {
            let (reason, first, last) = (reason.word(), time(first), time(last));
            info!(target: "allora", node, job = %name, first, last, count, reason, "occurrences skipped");
        }
        Event::LeaseLost { name, key, fence, .. } => {
            warn!(target: "allora", node, job = %name, key = key.as_deref(), fence, "run cancelled: its lease is lost");
        }
        Event::LeaseRenewalFailed { name, key, fence, continues: false, .. } => {
            warn!(target: "allora", node, job = %name, key = key.as_deref(), fence, "run cancelled: its lease was not extended in time");
        }
        Event::LeaseRenewalFailed { name, fence, .. } => {
            warn!(target: "allora", node, job = %name, fence, "the lease of this run was not extended in time; the run continues, and is recorded as lost until the store answers");
        }
        Event::Recovered { name, fence, .. } => {
            info!(target: "allora", node, job = %name, fence, "the store has accepted the run whose lease had ended");
        }
        Event::GivenUp { name, scheduled_at, attempts, .. } => {
            let scheduled_at = time(scheduled_at);
            error!(target: "allora", node, job = %name, scheduled_at, attempts, "occurrence given up: its attempts are used up, and the last one ended without a result; it is a dead letter");
        }
        Event::Redefined { name, was_abandoned: false, .. } => {
            info!(target: "allora", node, job = %name, "job redefined: the store had another definition");
        }
        Event::Redefined { name, was_abandoned: true, .. } => {
            warn!(target: "allora", node, job = %name, "job redefined: a due occurrence waited, and no live node could run the definition in the store");
        }
        Event::DefinitionAdopted { name, .. } => {
            info!(target: "allora", node, job = %name, "another node has changed this job's definition; this node runs it by the stored one");
        }
        Event::DefinitionConflict { name, reason, .. } => {
            warn!(target: "allora", node, job = %name, reason, remedy, "this node leaves the job to other nodes, because of its definition in the store");
        }
        Event::Deleted { name, .. } => {
            info!(target: "allora", node, job = %name, remedy, "job was deleted; this node does not run it until it is registered again");
        }
        Event::ScheduleLost { name, .. } => {
            error!(target: "allora", node, job = %name, remedy, "the store had no record of this stored schedule any more, and its definition is gone");
        }
        Event::JobUnreadable { name, reason, .. } => {
            error!(target: "allora", node, job = %name, reason, remedy, "the record of this job cannot be read");
        }
        Event::ClockWasAhead { name, until, .. } => {
            let until = time(until);
            error!(target: "allora", node, job = %name, until, remedy, "the store's clock was ahead, and this job waits for a time in the future");
        }
        Event::ClockWasSetBack { stored, waiting, until } => {
            let until = time(until);
            warn!(target: "allora", node, stored, waiting, until, remedy, "the store's clock was set back; jobs wait for times that it showed before, the last of them until this time");
        }
        Event::JobOverdue { name, due_at, .. } => {
            let due_at = time(due_at);
            error!(target: "allora", node, job = %name, due_at, remedy, "job is overdue, and no node has claimed it");
        }
        Event::KindUnhandled { kind, example, due_at, waiting, .. } => {
            let due_at = time(due_at);
            warn!(target: "allora", node, %kind, %example, due_at, waiting, remedy, "no live node handles the due stored schedules of this kind");
        }
        Event::LabelUnmatched { label, nodes, .. } => {
            warn!(target: "allora", node, %label, nodes, remedy, "no live node has this label, which the programs of live nodes need");
        }
        Event::LabelMatched { label, .. } => {
            info!(target: "allora", node, %label, "this label is not missed any more");
        }
        Event::NodeDead { node: dead, last_seen, .. } => {
            let last_seen = time(last_seen);
            warn!(target: "allora", node, %dead, last_seen, remedy, "a node has died, or does not reach the store");
        }
        Event::NodeAlive { node: alive, .. } => {
            info!(target: "allora", node, %alive, "a node that was reported as dead is alive");
        }
        Event::JobsOrphaned { count, example, .. } => {
            warn!(target: "allora", node, count, %example, remedy, "no live build declares these jobs in code");
        }
        Event::OrphansGone => {
            info!(target: "allora", node, "the store has no orphaned job in code any more");
        }
        Event::Pruned { name, .. } => {
            info!(target: "allora", node, job = %name, "the record of this job was removed after its retention period");
        }
        Event::KindHandled { kind, .. } => {
            info!(target: "allora", node, %kind, "no stored schedule of this kind is overdue any more");
        }
        Event::Reregistered { name, .. } => {
            error!(target: "allora", node, job = %name, remedy, "the store had no record of this job any more; it was registered again");
        }
        Event::JobInvalid { name, reason, .. } => {
            error!(target: "allora", node, job = %name, reason, remedy, "job cannot be run by this node");
        }
        Event::JobResumed { name, .. } => {
            info!(target: "allora", node, job = %name, "the reason for which this node did not run the job is over");
        }
        Event::ClaimAbandoned { name, scheduled_at, .. } => {
            let scheduled_at = time(scheduled_at);
            error!(target: "allora", node, job = %name, scheduled_at, "the store did not say whether it granted a claim; if it did, the run is lost, or run again at least once");
        }
        Event::StoreDown { error, .. } => {
            error!(target: "allora", node, %error, cause = cause(&**error), "requests to the store fail; trying again");
        }
        Event::StoreUp => info!(target: "allora", node, "requests to the store succeed again"),
        Event::StoreError { error, .. } => {
            error!(target: "allora", node, %error, cause = cause(&**error), "the store rejected a request; trying again");
        }
        Event::NotificationsDown { error, .. } => {
            warn!(target: "allora", node, %error, cause = cause(&**error), remedy, "the store sends no notifications to this node; polling");
        }
        Event::NotificationsUp => info!(target: "allora", node, "notifications arrive again"),
        Event::CapacityFull { concurrency, .. } => {
            warn!(target: "allora", node, concurrency, remedy, "occurrences are due, and this node's capacity is used up");
        }
        Event::CapacityFree => info!(target: "allora", node, "nothing waits for capacity any more"),
        Event::ClockSkew { ahead, by, .. } => {
            let by_ms = millis(*by);
            warn!(target: "allora", node, ahead, by_ms, remedy, "this node's clock differs from the store's clock, which is used");
        }
        Event::ClocksAgree => {
            info!(target: "allora", node, "this node's clock and the store's agree again");
        }
        Event::TimerDelayed { by, .. } => {
            let by_ms = millis(*by);
            warn!(target: "allora", node, by_ms, remedy, "a timer fired late: a task blocks the executor, or the machine slept");
        }
        Event::Stopped { cancelled, unrecorded, unresolved, .. } => {
            info!(target: "allora", node, cancelled, unrecorded, unresolved, "the scheduler has stopped");
        }
    }
}

fn cause(error: &dyn std::error::Error) -> Option<String> {
    error.source().map(ToString::to_string)
}
