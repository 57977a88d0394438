//! Events as lines: of the log, and of `Display`.

use super::{Event, millis};
use crate::{
    backend::{NotRunReason, Outcome, StreakChange},
    condition::written,
    time::Time,
};
use std::fmt;
use tracing::{Level, debug, error, info, warn};

/// The target of the lines about this node.
const NODE: &str = "allora";

/// The target of the lines about each run, so that a program which logs runs itself can filter them.
const RUNS: &str = "allora::run";

fn time(at: &Time) -> String {
    written(*at)
}

fn cause(error: &dyn std::error::Error) -> Option<String> {
    error.source().map(ToString::to_string)
}

/// Makes `log` and `Display` of one line for each event: its level, its target, the event, the text,
/// and the fields. A field of the log is computed if its line is enabled.
macro_rules! lines {
    ($event:ident: $(
        $level:ident $target:ident $pattern:pat $(if $guard:expr)? => $text:literal $(($arg:expr))? { $($field:ident: $value:expr),* }
    )*) => {
        /// Logs an event of this node under the target `allora`, and each run under `allora::run`:
        /// errors need an operator's action, warnings may need attention, and each run is logged at
        /// debug level.
        pub(crate) fn log($event: &Event, node: &str) {
            match $event {
                $($pattern $(if $guard)? => $level!(target: $target, node, $($field = $value,)* $text $(, $arg)?),)*
            }
        }

        /// The text of the log, and its fields without the node.
        impl fmt::Display for Event {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $event = self;
                match $event {
                    $($pattern $(if $guard)? => {
                        write!(f, $text $(, $arg)?)?;
                        $($value.write(stringify!($field), f)?;)*
                    })*
                }
                Ok(())
            }
        }
    };
}

lines! { event:
    error NODE Event::Began(it) if it.level() == Level::ERROR => "{it}"
        { code: it.code(), job: it.job(), remedy: it.remedy() }
    warn NODE Event::Began(it) if it.level() == Level::WARN => "{it}"
        { code: it.code(), job: it.job(), remedy: it.remedy() }
    info NODE Event::Began(it) if it.level() == Level::INFO => "{it}"
        { code: it.code(), job: it.job(), remedy: it.remedy() }
    debug NODE Event::Began(it) => "{it}" { code: it.code(), job: it.job(), remedy: it.remedy() }
    debug NODE Event::Ended(it) if it.level() == Level::DEBUG => "{}" (it.over()) { code: it.code(), job: it.job() }
    info NODE Event::Ended(it) => "{}" (it.over()) { code: it.code(), job: it.job() }
    warn NODE Event::ScheduleWarning { name, warning } =>
        "the job's schedule is seldom intended"
        { job: &**name, code: warning.code, warning: &*warning.message }
    info NODE Event::Ready { jobs, .. } => "the scheduler has reached its store" { jobs: *jobs }
    debug RUNS Event::RunStarted { name, kind, scheduled_at, attempt, fence, late, .. } => "run started" {
        job: &**name, kind: &**kind, scheduled_at: time(scheduled_at), attempt: *attempt, fence: *fence,
        late_ms: millis(*late)
    }
    warn RUNS Event::RunEnded {
        name, kind, scheduled_at, attempt, fence, outcome: Outcome::Failed(error), took, ..
    } => "run failed" {
        job: &**name, kind: &**kind, scheduled_at: time(scheduled_at), attempt: *attempt, fence: *fence,
        took_ms: millis(*took), error: &**error
    }
    warn RUNS Event::RunEnded {
        name, kind, scheduled_at, attempt, fence, outcome: Outcome::Retried(error), took, ..
    } => "run failed; another attempt follows" {
        job: &**name, kind: &**kind, scheduled_at: time(scheduled_at), attempt: *attempt, fence: *fence,
        took_ms: millis(*took), error: &**error
    }
    error RUNS Event::RunEnded {
        name, kind, scheduled_at, attempt, fence, outcome: Outcome::Dead(error), took, ..
    } => "run failed, and its attempts are used up" {
        job: &**name, kind: &**kind, scheduled_at: time(scheduled_at), attempt: *attempt, fence: *fence,
        took_ms: millis(*took), error: &**error
    }
    warn RUNS Event::RunEnded {
        name, kind, scheduled_at, attempt, fence, outcome, reason: Some(NotRunReason::Shutdown), took, ..
    } => "run cut off: this node was stopped before the run ended" {
        job: &**name, kind: &**kind, scheduled_at: time(scheduled_at), attempt: *attempt, fence: *fence,
        took_ms: millis(*took), outcome: outcome.word(), remedy: event.remedy()
    }
    debug RUNS Event::RunEnded { name, kind, scheduled_at, attempt, fence, outcome, took, .. } => "run ended" {
        job: &**name, kind: &**kind, scheduled_at: time(scheduled_at), attempt: *attempt, fence: *fence,
        took_ms: millis(*took), outcome: outcome.word()
    }
    warn NODE Event::RunLost { name, scheduled_at, fence, node: ran_on, age } =>
        "run lost: its lease has ended, and it is not run again" {
        job: &**name, scheduled_at: time(scheduled_at), fence: *fence, ran_on: &**ran_on,
        age_ms: millis(*age), remedy: event.remedy()
    }
    warn NODE Event::RunExpired { name, scheduled_at, fence, node: ran_on, age } =>
        "run expired: its lease has ended, and the occurrence is run again" {
        job: &**name, scheduled_at: time(scheduled_at), fence: *fence, ran_on: &**ran_on,
        age_ms: millis(*age)
    }
    error NODE Event::FailureStreak { name, kind, scheduled_at, failures, change: StreakChange::Paused { until, .. } } =>
        "the job has paused itself: too many occurrences failed in a row" {
        job: &**name, kind: &**kind, scheduled_at: time(scheduled_at), failures: *failures,
        until: until.as_ref().map(time), remedy: event.remedy()
    }
    info NODE Event::FailureStreak { name, kind, scheduled_at, failures, change: StreakChange::Over } =>
        "the job succeeds again" {
        job: &**name, kind: &**kind, scheduled_at: time(scheduled_at), failures: *failures
    }
    warn NODE Event::FailureStreak { name, kind, scheduled_at, failures, .. } =>
        "the job fails: so many occurrences in a row that people are to be told" {
        job: &**name, kind: &**kind, scheduled_at: time(scheduled_at), failures: *failures,
        remedy: event.remedy()
    }
    warn NODE Event::KeyLimitsDiffer { name, key, limit, other } =>
        "jobs of this concurrency key have different limits"
        { job: &**name, key: &**key, limit: *limit, other: *other, remedy: event.remedy() }
    warn NODE Event::OccurrencesMissed { name, first, last, count, reason, .. } => "occurrences missed"
        { job: &**name, first: time(first), last: time(last), count: *count, reason: reason.word() }
    info NODE Event::OccurrencesSkipped { name, first, last, count, reason, .. } => "occurrences skipped"
        { job: &**name, first: time(first), last: time(last), count: *count, reason: reason.word() }
    warn NODE Event::LeaseLost { name, key, fence, .. } => "run cancelled: its lease is lost"
        { job: &**name, key: key.as_deref(), fence: *fence }
    warn NODE Event::LeaseRenewalFailed { name, key, fence, continues: false, .. } =>
        "run cancelled: its lease was not extended in time"
        { job: &**name, key: key.as_deref(), fence: *fence }
    warn NODE Event::LeaseRenewalFailed { name, fence, .. } =>
        "the lease of this run was not extended in time; the run continues, and is recorded as lost until the store answers"
        { job: &**name, fence: *fence }
    info NODE Event::Recovered { name, fence, .. } =>
        "the store has accepted the run whose lease had ended" { job: &**name, fence: *fence }
    warn NODE Event::AfterCompletion { name, fence, what, .. } =>
        "the run had completed its occurrence, and did not return after that"
        { job: &**name, fence: *fence, what: &**what, remedy: event.remedy() }
    error NODE Event::EndRejected { name, kind, scheduled_at, fence, error } =>
        "the end of this run was not recorded: the store rejected it until the run's lease had ended" {
        job: &**name, kind: &**kind, scheduled_at: time(scheduled_at), fence: *fence,
        error: error.to_string(), cause: cause(&**error), remedy: event.remedy()
    }
    error NODE Event::GivenUp { name, scheduled_at, attempts, .. } =>
        "occurrence given up: its attempts are used up, and the last one ended without a result; it is a dead letter" {
        job: &**name, scheduled_at: time(scheduled_at), attempts: *attempts, remedy: event.remedy()
    }
    info NODE Event::Redefined { name, was_abandoned: false } =>
        "job redefined: the store had another definition" { job: &**name }
    warn NODE Event::Redefined { name, was_abandoned: true } =>
        "job redefined: a due occurrence waited, and no live node could run the definition in the store"
        { job: &**name }
    info NODE Event::DefinitionAdopted { name } =>
        "another node has changed this job's definition; this node runs it by the stored one"
        { job: &**name }
    error NODE Event::ScheduleLost { name } =>
        "the store had no record of this stored schedule any more, and its definition is gone"
        { job: &**name, remedy: event.remedy() }
    warn NODE Event::ClockWasSetBack { stored, waiting, until } =>
        "the store's clock was set back; jobs wait for times that it showed before, the last of them until this time"
        { stored: *stored, waiting: *waiting, until: time(until), remedy: event.remedy() }
    info NODE Event::Pruned { name } =>
        "the record of this job was removed after its retention period" { job: &**name }
    error NODE Event::Reregistered { name } =>
        "the store had no record of this job any more; it was registered again"
        { job: &**name, remedy: event.remedy() }
    error NODE Event::ClaimAbandoned { name, scheduled_at, .. } =>
        "the store did not say whether it granted a claim; if it did, the run is lost, or run again at least once"
        { job: &**name, scheduled_at: time(scheduled_at), remedy: event.remedy() }
    warn NODE Event::TimerDelayed { by } =>
        "a timer fired late: a task blocks the executor, or the machine slept"
        { by_ms: millis(*by), remedy: event.remedy() }
    info NODE Event::Stopped { cancelled, unrecorded, unresolved } => "the scheduler has stopped"
        { cancelled: *cancelled, unrecorded: *unrecorded, unresolved: *unresolved }
}

/// A value of a field.
trait Field {
    /// Writes ` name=value`; nothing if there is no value.
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

impl Field for &str {
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| c.is_ascii_graphic() && c != '"';
        match !self.is_empty() && self.chars().all(is_plain) {
            true => write!(f, " {name}={self}"),
            false => write!(f, " {name}={self:?}"),
        }
    }
}

impl Field for String {
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().write(name, f)
    }
}

impl<T: Field> Field for Option<T> {
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().map_or(Ok(()), |value| value.write(name, f))
    }
}

macro_rules! plain {
    ($($type:ty)*) => {$(
        impl Field for $type {
            fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, " {name}={self}")
            }
        }
    )*};
}

plain! { bool i64 u32 u64 usize }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{condition::Condition, time::from_millis};
    use std::time::Duration;

    #[test]
    fn an_event_is_shown_as_its_log_line() {
        let name = "nightly report".into();
        let scheduled_at = from_millis(1_767_225_600_000).unwrap();
        let age = Duration::from_millis(2_500);
        let lost = Event::RunLost { name, scheduled_at, fence: 7, node: "one".into(), age };
        assert_eq!(
            lost.to_string(),
            "run lost: its lease has ended, and it is not run again job=\"nightly report\" \
             scheduled_at=2026-01-01T00:00:00Z fence=7 ran_on=one age_ms=2500 remedy=\"look at the node; \
             trigger the job if the occurrence is to run all the same\""
        );
    }

    #[test]
    fn a_field_without_a_value_is_left_out() {
        let lost = |key: Option<&str>| Event::LeaseLost {
            name: "tape\n1".into(),
            kind: "".into(),
            key: key.map(Into::into),
            fence: 7,
        };
        let line = |key| lost(key).to_string();
        assert_eq!(line(None), "run cancelled: its lease is lost job=\"tape\\n1\" fence=7");
        assert!(line(Some("tape")).ends_with(" key=tape fence=7"));
    }

    #[test]
    fn a_condition_is_shown_at_its_beginning_and_at_its_end() {
        let deleted = Condition::JobDeleted { job: "a".into() };
        assert_eq!(
            Event::Began(deleted.clone()).to_string(),
            "job \"a\" was deleted in the store; this node does not run it until it is registered again \
             code=job-deleted job=a remedy=\"restart the node if the job should exist, or remove it from the \
             program\""
        );
        let over = Event::Ended(deleted).to_string();
        assert!(over.ends_with("does not have it any more code=job-deleted job=a"), "{over}");
    }
}
