//! `/metrics`: the library's metrics, and those of the daemon, in the text format of Prometheus.
//!
//! Both go through the facade of the crate `metrics`. The library's are in the table of
//! `src/guide/monitoring.md`, the daemon's in that of `allora-cli/docs/from-crontab.md`, which a test
//! compares with the page.

use crate::failure::{Failure, Outcome};
use allora_core::{Condition, Event, Handle};
use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// Upper bounds of times, in seconds: from a request to the store to a job of six hours.
const SECONDS: [f64; 14] = [
    0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0, 21_600.0,
];

/// Upper bounds of the numbers of claims in one request.
const CLAIMS: [f64; 7] = [1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 500.0];

/// The recorder of the process; none without `--listen`.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    recorder: Option<PrometheusHandle>,
}

impl Metrics {
    /// Installs a recorder for the process, before the scheduler is built.
    ///
    /// # Errors
    /// The process has a recorder already.
    pub(crate) fn install() -> Outcome<Self> {
        let recorder = recorder()
            .map_err(|error| Failure::failed(format!("cannot count for /metrics: {error}")))?;
        describe();
        gauge!("allora_store_reached").set(0);
        gauge!("allora_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1);
        // A counter that begins with its first increase hides it.
        for (name, label, values) in [
            ("allora_runs_lapsed_total", "outcome", ["lost", "expired"]),
            ("allora_crontab_loads_total", "result", ["good", "bad"]),
            ("allora_alerts_total", "outcome", ["sent", "failed"]),
        ] {
            values.into_iter().for_each(|value| counter!(name, label => value).absolute(0));
        }
        Ok(Self { recorder: Some(recorder) })
    }

    /// Moves what was measured into the buckets. Without it, each measurement stays in memory until
    /// the page is read.
    pub(crate) fn tidy(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.run_upkeep();
        }
    }

    /// The page.
    pub(crate) fn text(&self, scheduler: Option<&Handle>) -> String {
        let Some(recorder) = &self.recorder else { return String::new() };
        if let Some(scheduler) = scheduler {
            measure(scheduler);
        }
        recorder.render()
    }
}

fn recorder() -> Result<PrometheusHandle, BuildError> {
    let claims = Matcher::Full("allora_claim_batch_size".into());
    PrometheusBuilder::new()
        .set_buckets(&SECONDS)?
        .set_buckets_for_metric(claims, &CLAIMS)?
        .install_recorder()
}

/// Counts what the library does not count: the runs of dead nodes that this node has recorded.
pub(crate) fn count(event: &Event) {
    let outcome = match event {
        Event::RunLost { .. } => "lost",
        Event::RunExpired { .. } => "expired",
        _ => return,
    };
    counter!("allora_runs_lapsed_total", "outcome" => outcome).increment(1);
}

/// New or changed crontabs were read, without an error or with some.
pub(crate) fn crontabs_loaded(are_good: bool) {
    let result = if are_good { "good" } else { "bad" };
    counter!("allora_crontab_loads_total", "result" => result).increment(1);
}

/// An alert was sent, or could not be.
pub(crate) fn alerted(is_sent: bool) {
    let outcome = if is_sent { "sent" } else { "failed" };
    counter!("allora_alerts_total", "outcome" => outcome).increment(1);
}

/// The errors of the crontabs, by the last look at them.
pub(crate) fn crontab_errors(errors: usize) {
    gauge!("allora_crontab_errors").set(errors as f64);
}

/// Reads the state of the node.
fn measure(scheduler: &Handle) {
    let health = scheduler.health();
    gauge!("allora_store_reached").set(1);
    gauge!("allora_healthy").set(u8::from(health.is_healthy()));
    let set = |name: &'static str, count: usize| gauge!(name).set(count as f64);
    set("allora_jobs", health.jobs);
    set("allora_jobs_paused", health.paused);
    set("allora_nodes_live", health.nodes.live);
    let orphans = health.conditions.iter().find_map(|one| match one.condition {
        Condition::JobsOrphaned { count, .. } => Some(count),
        _ => None,
    });
    set("allora_orphans", orphans.unwrap_or_default());
}

fn describe() {
    describe_gauge!("allora_build_info", "1, with the version of the daemon as a label.");
    describe_counter!(
        "allora_crontab_loads_total",
        "Times that new or changed crontabs were read after the start; worry if bad grows, \
         because an edit is not in force."
    );
    describe_counter!(
        "allora_alerts_total",
        "Alerts, mails and pings by their outcome; worry if failed grows, because people do not \
         hear of failures."
    );
    describe_gauge!(
        "allora_store_reached",
        "1 once the store has answered since the daemon started; worry if it stays 0."
    );
    describe_gauge!(
        "allora_healthy",
        "1 if nothing keeps a job of this node from running; worry if it is 0 for 5 minutes."
    );
    describe_gauge!(
        "allora_jobs",
        "Jobs in code of this node, such as lines of crontabs; worry if it falls without a \
         change of the crontabs."
    );
    describe_gauge!(
        "allora_jobs_paused",
        "Jobs in code of this node that are paused; worry if one stays paused longer than intended."
    );
    describe_gauge!(
        "allora_nodes_live",
        "Live nodes of the store, as this node sees them; worry if it is less than the number \
         of daemons."
    );
    describe_gauge!(
        "allora_orphans",
        "Records of jobs in code that no live node declares, counted by one of the nodes; if it \
         is above 0, restore the line or remove the record with `allora gc`."
    );
    describe_gauge!(
        "allora_crontab_errors",
        "Errors of the crontabs, that is, lines that do not run as written; worry if it is above 0."
    );
    describe_counter!(
        "allora_runs_lapsed_total",
        "Runs of any node whose lease ended without word from it, as recorded by this node: \
         expired runs run again, lost ones do not; worry if it grows, because nodes die or do \
         not reach the store."
    );
}
