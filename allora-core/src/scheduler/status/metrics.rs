//! The metrics of a node, through the facade of the crate `metrics`. `src/guide/monitoring.md` has
//! their table, which a test compares with what is emitted.

use crate::{
    backend::{NotRunReason, Outcome},
    condition::{ActiveCondition, Condition},
    error::{Error, ErrorKind},
    event::Event,
    time::Time,
};
use chrono::TimeDelta;
use metrics::{
    SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The number of values of one label, after which a value is [`OTHER`].
const VALUES: usize = 1_000;

/// The value of a label whose values are used up.
const OTHER: &str = "other";

/// The labels of this node that have values of the user's.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<Values>);

#[derive(Debug, Default)]
struct Values {
    jobs: HashSet<Arc<str>>,
    kinds: HashSet<Arc<str>>,
    keys: HashSet<Arc<str>>,
    /// The operations of the store that were requested.
    operations: HashSet<&'static str>,
}

impl Metrics {
    /// Describes the metrics to the recorder that is installed. Counters begin at 0 as soon as their
    /// labels are known: the first increase of a counter that begins with it cannot be seen.
    pub(in crate::scheduler) fn new() -> Self {
        describe();
        for reason in ["taken", "rejected", "no_reply"] {
            counter!("allora_claims_failed_total", "reason" => reason).increment(0);
        }
        for source in ["timer", "poll", "notification", "reply", "node"] {
            counter!("allora_wake_ups_total", "source" => source).increment(0);
        }
        Self::default()
    }

    /// A job in code was added. The first names get labels of their own.
    pub(in crate::scheduler) fn add_job(&self, name: &Arc<str>) {
        let job = self.values(|values| label(&mut values.jobs, name));
        begin(&(job, "".into()));
    }

    /// Counts an event.
    pub(in crate::scheduler) fn observe(&self, event: &Event) {
        match event {
            Event::Began(condition) => self.condition(condition, 1.0),
            Event::Ended(condition) => self.condition(condition, -1.0),
            Event::RunStarted { name, kind, late, .. } => {
                let (job, kind) = self.labels(name, kind);
                gauge!("allora_runs_active").increment(1);
                histogram!("allora_run_lateness_seconds", "job" => job, "kind" => kind)
                    .record(*late);
            }
            Event::RunEnded { name, kind, outcome, reason, took, .. } => {
                gauge!("allora_runs_active").decrement(1);
                let (job, kind) = self.labels(name, kind);
                histogram!("allora_run_duration_seconds", "job" => job.clone(), "kind" => kind.clone())
                    .record(*took);
                if matches!(outcome, Outcome::Dead(_)) {
                    dead(job.clone(), kind.clone());
                }
                occurrences((job, kind), outcome.word(), reason.map_or("", NotRunReason::word), 1);
            }
            Event::OccurrencesMissed { name, kind, count, reason, .. } => {
                let count = count.unwrap_or(1);
                occurrences(self.labels(name, kind), "missed", reason.word(), count);
            }
            Event::OccurrencesSkipped { name, kind, count, reason, .. } => {
                let count = count.unwrap_or(1);
                occurrences(self.labels(name, kind), "skipped", reason.word(), count);
            }
            Event::GivenUp { name, kind, .. } => {
                let (job, kind) = self.labels(name, kind);
                dead(job.clone(), kind.clone());
                occurrences((job, kind), "dead", "", 1);
            }
            Event::LeaseRenewalFailed { name, kind, .. } => {
                let (job, kind) = self.labels(name, kind);
                counter!("allora_lease_renewal_failures_total", "job" => job, "kind" => kind)
                    .increment(1);
            }
            Event::LeaseLost { name, kind, .. } => {
                let (job, kind) = self.labels(name, kind);
                counter!("allora_leases_lost_total", "job" => job, "kind" => kind).increment(1);
            }
            _ => {}
        }
    }

    /// A request with claims has ended after this time.
    pub(in crate::scheduler) fn claimed(&self, claims: usize, took: Duration) {
        if claims > 0 {
            histogram!("allora_claim_batch_size").record(claims as f64);
            histogram!("allora_claim_duration_seconds").record(took);
        }
    }

    /// Claims that started no run.
    pub(in crate::scheduler) fn claims_failed(&self, claims: usize, reason: &'static str) {
        if claims > 0 {
            counter!("allora_claims_failed_total", "reason" => reason).increment(claims as u64);
        }
    }

    /// A request to the store has ended after this time.
    pub(in crate::scheduler) fn requested(
        &self,
        operation: &'static str,
        took: Duration,
        error: Option<&Error>,
    ) {
        histogram!("allora_store_request_duration_seconds", "operation" => operation).record(took);
        let errors = |error: &'static str| counter!("allora_store_errors_total", "operation" => operation, "error" => error);
        if self.values(|values| values.operations.insert(operation)) {
            ["unavailable", "rejected"].into_iter().for_each(|error| errors(error).increment(0));
        }
        if let Some(error) = error {
            let is_down = error.kind() == ErrorKind::Unavailable;
            errors(if is_down { "unavailable" } else { "rejected" }).increment(1);
        }
    }

    /// The claimer was woken up.
    pub(in crate::scheduler) fn woken(&self, source: &'static str) {
        counter!("allora_wake_ups_total", "source" => source).increment(1);
    }

    /// The time at which this node next expects something to be due.
    pub(in crate::scheduler) fn next_due(&self, at: Option<Time>) {
        let seconds = at.map_or(f64::INFINITY, |at| at.timestamp_millis() as f64 / 1_000.0);
        gauge!("allora_next_due_timestamp_seconds").set(seconds);
    }

    /// The number of overdue jobs.
    pub(in crate::scheduler) fn overdue(&self, jobs: usize) {
        gauge!("allora_jobs_overdue").set(jobs as f64);
    }

    /// The node has ended, and nothing is due or waits on it. The process may go on.
    pub(in crate::scheduler) fn ended(&self, active: &[Arc<ActiveCondition>]) {
        self.next_due(None);
        self.overdue(0);
        active.iter().for_each(|one| self.condition(&one.condition, -1.0));
    }

    /// A condition has begun, or ended.
    fn condition(&self, condition: &Condition, by: f64) {
        gauge!("allora_conditions", "code" => condition.code()).increment(by);
        if let Condition::KeyBusy { key, .. } = condition {
            let key = self.values(|values| label(&mut values.keys, key));
            gauge!("allora_concurrency_key_waiting", "key" => key).increment(by);
        }
    }

    /// The difference between this node's clock and the store's.
    pub(in crate::scheduler) fn clock_offset(&self, offset: TimeDelta) {
        gauge!("allora_clock_offset_seconds").set(offset.as_seconds_f64());
    }

    /// The labels `job` and `kind`. A stored schedule has no `job`: its names are the users'.
    fn labels(&self, name: &Arc<str>, kind: &Arc<str>) -> (SharedString, SharedString) {
        self.values(|values| match kind.is_empty() {
            true => {
                let is_known = values.jobs.contains(name);
                let job = if is_known { name.clone().into() } else { OTHER.into() };
                (job, "".into())
            }
            false => {
                let known = values.kinds.len();
                let labels = ("".into(), label(&mut values.kinds, kind));
                if values.kinds.len() > known {
                    begin(&labels);
                }
                labels
            }
        })
    }

    fn values<T>(&self, read: impl FnOnce(&mut Values) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The label of a value, which is one of the first.
fn label(values: &mut HashSet<Arc<str>>, value: &Arc<str>) -> SharedString {
    if !values.contains(value) {
        if values.len() >= VALUES {
            return OTHER.into();
        }
        values.insert(value.clone());
    }
    value.clone().into()
}

fn occurrences(
    (job, kind): (SharedString, SharedString),
    outcome: &'static str,
    reason: &'static str,
    count: u64,
) {
    let labels =
        [("job", job), ("kind", kind), ("outcome", outcome.into()), ("reason", reason.into())];
    counter!("allora_occurrences_total", &labels).increment(count);
}

/// Counts nothing for these labels yet, where a first failure is to be seen.
fn begin(labels: &(SharedString, SharedString)) {
    let (job, kind) = labels;
    let policies =
        [NotRunReason::CatchUp, NotRunReason::Window].map(|reason| ("missed", reason.word()));
    for (outcome, reason) in [("failed", ""), ("dead", "")].into_iter().chain(policies) {
        occurrences(labels.clone(), outcome, reason, 0);
    }
    for name in [
        "allora_dead_letters_total",
        "allora_lease_renewal_failures_total",
        "allora_leases_lost_total",
    ] {
        counter!(name, "job" => job.clone(), "kind" => kind.clone()).increment(0);
    }
}

fn dead(job: SharedString, kind: SharedString) {
    counter!("allora_dead_letters_total", "job" => job, "kind" => kind).increment(1);
}

fn describe() {
    describe_counter!(
        "allora_occurrences_total",
        "Attempts that ended on this node, and occurrences that it recorded as missed or \
         skipped, by outcome and reason; worry if failed, dead or missed grows."
    );
    describe_histogram!(
        "allora_run_lateness_seconds",
        Unit::Seconds,
        "Time from the moment a run was due to its start; worry if it grows, because often the \
         capacity is full or the store is slow."
    );
    describe_histogram!(
        "allora_run_duration_seconds",
        Unit::Seconds,
        "Duration of a run; worry if it comes near the period or the timeout of its job."
    );
    describe_gauge!(
        "allora_runs_active",
        "Runs that are active now; worry if it stays at the concurrency limit, because then due \
         jobs wait."
    );
    describe_histogram!(
        "allora_claim_batch_size",
        "Claims in one request to the store; large batches are normal when much is due at once."
    );
    describe_histogram!(
        "allora_claim_duration_seconds",
        Unit::Seconds,
        "Duration of a request with claims; worry if it comes near the store timeout."
    );
    describe_counter!(
        "allora_claims_failed_total",
        "Claims that started no run; taken is normal, because another node was first, but worry \
         if rejected or no_reply grows."
    );
    describe_counter!(
        "allora_lease_renewal_failures_total",
        "Leases of runs, or of their concurrency keys, that the store did not extend before \
         they ended; worry if it grows, because the store is slow or a job blocks its executor."
    );
    describe_counter!(
        "allora_leases_lost_total",
        "Leases that runs of this node lost, because another run has the lease or the run is \
         recorded as lost, so the run is cancelled; worry if it grows, because work may be done \
         twice."
    );
    describe_gauge!(
        "allora_conditions",
        "Active conditions of this node, by code; worry if one other than key-busy lasts for 5 \
         minutes."
    );
    describe_gauge!(
        "allora_jobs_overdue",
        "Jobs in code that have been due for a minute, and that no node has claimed; worry if \
         it stays above 0."
    );
    describe_gauge!(
        "allora_next_due_timestamp_seconds",
        Unit::Seconds,
        "Unix time at which this node next expects something to be due, +Inf if nothing; worry \
         if it is more than 2 minutes in the past."
    );
    describe_gauge!(
        "allora_concurrency_key_waiting",
        "Jobs of this node that wait for this concurrency key; a short wait is normal, but \
         worry if it never falls to 0."
    );
    describe_counter!(
        "allora_dead_letters_total",
        "Occurrences that became dead letters on this node; worry about each, because it does \
         not run until a person reruns or dismisses it."
    );
    describe_gauge!(
        "allora_clock_offset_seconds",
        Unit::Seconds,
        "This node's clock minus the store's; worry beyond 1 s, although the scheduler uses the \
         store's clock."
    );
    describe_counter!(
        "allora_wake_ups_total",
        "Wake-ups of the part of the node that claims, by source; worry if it grows fast while \
         little is due."
    );
    describe_counter!(
        "allora_store_errors_total",
        "Requests to the store that failed; worry if unavailable keeps growing, because the \
         store is down or slow, or if rejected grows, because the store refuses requests."
    );
    describe_histogram!(
        "allora_store_request_duration_seconds",
        Unit::Seconds,
        "Duration of a request to the store, by operation; worry if it comes near the store \
         timeout."
    );
}
