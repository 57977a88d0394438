//! The options that say how a stored schedule is run, for `add` and `modify` alike.

use crate::{
    failure::{Failure, Outcome},
    kinds,
    values::{duration, instant},
};
use allora_core::{
    After, AlertRule, Breaker, CatchUp, ConcurrencyKey, Delivery, JobHistory, Overlap, Retry,
    Settings, StoredSchedule, Time, schedule::ParseError,
};
use clap::Args;
use serde_json::Value;
use std::{str::FromStr, time::Duration};

/// Settings of a stored schedule.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Runs so long after the scheduled time: 30, 90s, 10m.
    #[arg(long, short = 'd', value_parser = duration, allow_negative_numbers = true)]
    delay: Option<Duration>,
    /// The zone of the schedule, unless it names one [default: the configuration's, or UTC].
    #[arg(long, short = 't', visible_alias = "zone")]
    pub(crate) timezone: Option<String>,
    /// The first scheduled time is the first at or after this: RFC 3339, or seconds since 1970
    /// [default: now].
    #[arg(long, short = 's', value_parser = instant)]
    start: Option<Time>,
    /// When the first occurrence runs, instead of at its scheduled time and the delay.
    #[arg(long, short = 'a', value_parser = instant)]
    at: Option<Time>,
    /// No occurrence after this.
    #[arg(long, value_parser = instant)]
    end: Option<Time>,
    /// At most so many occurrences.
    #[arg(long)]
    max_runs: Option<u64>,
    /// Delivers at most once: a run whose node dies is recorded as lost.
    #[arg(long, conflicts_with_all = ["lease", "attempts", "retry_wait"])]
    at_most_once: bool,
    /// The length of the lease: another node claims the occurrence again if the run does not extend
    /// it [default: 30s].
    #[arg(long, value_parser = duration)]
    lease: Option<Duration>,
    /// Attempts of a failing occurrence before it is a dead letter [default: 5].
    #[arg(long)]
    attempts: Option<u32>,
    /// Wait before the second attempt; it doubles before each further one
    /// [default: 10s].
    #[arg(long, value_parser = duration)]
    retry_wait: Option<Duration>,
    /// Which missed occurrences are run: latest, none, or `all` and a limit, as 'all 100'
    /// [default: latest].
    #[arg(long)]
    catch_up: Option<CatchUp>,
    /// Does not run what is later than this.
    #[arg(long, value_parser = duration)]
    window: Option<Duration>,
    /// While the run before still goes on (at most once only): allow, skip, wait or replace.
    #[arg(long)]
    overlap: Option<Overlap>,
    /// Runs one at a time with all jobs of this concurrency key, on all nodes, or so many with
    /// KEY:NUMBER; '' for none.
    #[arg(long, value_name = "KEY", value_parser = given::<ConcurrencyKey>)]
    concurrency_key: Option<Given<ConcurrencyKey>>,
    /// Skips what waits longer for the key.
    #[arg(long, value_parser = duration)]
    max_key_wait: Option<Duration>,
    /// Pauses itself after so many failed occurrences in a row, as 5; with a period, as '5 10m', one is
    /// tried after it. '' for none.
    #[arg(long, value_name = "FAILURES [PROBE]", value_parser = given::<Breaker>)]
    breaker: Option<Given<Breaker>>,
    /// Tells people after so many failed occurrences in a row, and when one succeeds again, as 3; with
    /// a period, as '3 6h', again while it fails, at most once in it. '' for none.
    #[arg(long, value_name = "FAILURES [AGAIN]", value_parser = given::<AlertRule>)]
    alert: Option<Given<AlertRule>>,
    /// The entries of its history, as '50 30d': at most so many failures and so many others, none older,
    /// where that is less than the store keeps. '' for none.
    #[arg(long, value_name = "ENTRIES AGE", value_parser = given::<JobHistory>)]
    history: Option<Given<JobHistory>>,
    /// Runs after each success of this job, or after other ends with 'JOB failed' or 'JOB ended', in
    /// addition to the times of the schedule (@never for none); '' for no job.
    #[arg(long, value_name = "JOB", value_parser = given::<After>)]
    after: Option<Given<After>>,
    /// The team or person that is responsible for it; '' for none.
    #[arg(long)]
    owner: Option<String>,
    /// A tag, in place of those that it has; repeated for several, '' for none.
    #[arg(long)]
    tag: Vec<String>,
    /// Runs on nodes with these labels, and without those that have ! in front: 'gpu,!spot'. They
    /// become a part of the kind, as command@gpu,!spot; '' for any node. For the kinds command and
    /// http.
    #[arg(long = "label", value_name = "LABELS")]
    labels: Option<String>,
    /// Ends runs that take longer.
    #[arg(long, value_parser = duration)]
    timeout: Option<Duration>,
    /// Runs up to this much after the scheduled time, by a part that follows from the name.
    #[arg(long, value_parser = duration)]
    jitter: Option<Duration>,
}

/// A setting as it is given; `None` for none.
#[derive(Clone, Debug)]
struct Given<T>(Option<T>);

fn given<T: FromStr<Err = ParseError>>(text: &str) -> Result<Given<T>, String> {
    let value = Some(text).filter(|text| !text.is_empty()).map(str::parse).transpose();
    value.map(Given).map_err(|error: ParseError| error.to_string())
}

impl Options {
    /// The kind with the labels that were given, in its canonical form.
    ///
    /// # Errors
    /// A kind that has no labels, and malformed labels.
    pub(crate) fn kind(&self, kind: &str) -> Outcome<String> {
        match &self.labels {
            None => kinds::canonical(kind).map_err(Failure::of_input),
            Some(labels) => kinds::with_labels(kind, labels),
        }
    }

    /// The schedule with what was given; the rest stays as it is.
    pub(crate) fn apply(&self, stored: StoredSchedule) -> StoredSchedule {
        let mut settings = stored.settings().clone();
        self.change(&mut settings);
        let stored = match &self.timezone {
            Some(zone) => stored.in_zone(zone),
            None => stored,
        };
        let stored = match self.at {
            Some(at) => stored.first_run(at),
            None => stored,
        };
        stored.with_settings(settings)
    }

    fn change(&self, settings: &mut Settings) {
        let set = |to: &mut Duration, from: Option<Duration>| *to = from.unwrap_or(*to);
        set(&mut settings.delay, self.delay);
        set(&mut settings.jitter, self.jitter);
        settings.start = self.start.or(settings.start);
        settings.end = self.end.or(settings.end);
        settings.max_runs = self.max_runs.or(settings.max_runs);
        settings.window = self.window.or(settings.window);
        settings.timeout = self.timeout.or(settings.timeout);
        settings.catch_up = self.catch_up.unwrap_or(settings.catch_up);
        settings.overlap = self.overlap.unwrap_or(settings.overlap);
        if let Some(Given(key)) = &self.concurrency_key {
            settings.concurrency_key.clone_from(key);
            settings.max_key_wait = settings.max_key_wait.filter(|_| key.is_some());
        }
        settings.max_key_wait = self.max_key_wait.or(settings.max_key_wait);
        if let Some(Given(breaker)) = self.breaker {
            settings.breaker = breaker;
        }
        if let Some(Given(alert)) = self.alert {
            settings.alert = alert;
        }
        if let Some(Given(history)) = self.history {
            settings.history = history;
        }
        if let Some(Given(after)) = &self.after {
            settings.after.clone_from(after);
        }
        if let Some(owner) = &self.owner {
            settings.owner = Some(owner.clone()).filter(|owner| !owner.is_empty());
        }
        if !self.tag.is_empty() {
            settings.tags = self.tag.iter().filter(|tag| !tag.is_empty()).cloned().collect();
        }
        if self.at_most_once {
            settings.delivery = Delivery::AtMostOnce;
            settings.retry = Retry::NEVER;
        }
        if let Some(lease) = self.lease {
            settings.delivery = Delivery::AtLeastOnce { lease };
        }
        if self.attempts.is_some() || self.retry_wait.is_some() {
            let wait = self.retry_wait.unwrap_or(Duration::from_secs(10));
            settings.retry = Retry::up_to(self.attempts.unwrap_or(5), wait);
        }
    }
}

/// Reads the data of a schedule: a JSON object; `null` is the empty one.
///
/// # Errors
/// Whatever else it is, and where it is broken.
pub(crate) fn payload(text: &str) -> Outcome<Value> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| Failure::wrong(format!("the data is not JSON: {error}")))?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(serde_json::Map::new())),
        other => {
            let is = match other {
                Value::Array(_) => "an array",
                Value::String(_) => "a text",
                Value::Number(_) => "a number",
                _ => "a truth value",
            };
            Err(Failure::wrong(format!("the data is {is}; write a JSON object, as {{\"key\": 1}}")))
        }
    }
}
