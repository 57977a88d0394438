//! Settings of a line: the defaults of the command line, and the variables of the crontab that
//! change them for the lines below.
//!
//! They are variables, because allora's settings have no place in the line itself: so the file stays
//! a crontab that every cron reads.

use super::{EnvFile, is_commands_own};
use crate::values::duration;
use allora_core::{
    Delivery, LabelSelector, Overlap, Placement, Retry, Settings,
    crontab::Entry,
    schedule::{ParseError, parse_instant},
};
use std::time::Duration;

/// The settings of lines for which the crontab sets nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    /// The zone of schedules that name none; UTC where `None`.
    pub(crate) zone: Option<String>,
    pub(crate) settings: Settings,
    /// True if the time of lines has a sixth field in front, for seconds.
    pub(crate) seconds: bool,
    /// True if the machine can send mail.
    pub(crate) has_sendmail: bool,
    /// Variables of all commands.
    pub(crate) env_file: EnvFile,
}

/// An error in a line, and the variable that causes it.
#[derive(Debug)]
pub(crate) struct SettingError {
    pub(crate) variable: Option<String>,
    pub(crate) what: String,
}

impl SettingError {
    pub(super) fn line(what: impl Into<String>) -> Self {
        Self { variable: None, what: what.into() }
    }
}

/// The variable that names the labels a node must have, or must not have.
pub(super) const LABEL: &str = "ALLORA_LABEL";

/// The lease of an at-least-once line. Default: 30 s.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The first wait between attempts, unless the crontab says otherwise.
const RETRY_WAIT: Duration = Duration::from_secs(10);

/// Variables of this name are settings, and not for the command alone.
const PREFIX: &str = "ALLORA_";

/// Reads the settings of one line.
pub(super) fn settings(entry: &Entry, defaults: &Settings) -> Result<Settings, SettingError> {
    let mut settings = defaults.clone();
    let (mut attempts, mut wait) = (None, None);
    let mut lease = None;
    let set = entry.environment.iter().filter(|(name, value)| {
        // An empty value takes a setting back.
        name.starts_with(PREFIX) && !value.is_empty()
    });
    for (name, value) in set {
        let wrong = |what: String| SettingError { variable: Some(name.clone()), what };
        let expected = |what: &str| {
            let shown: String = value.chars().take(40).collect();
            wrong(format!("{name} is {shown:?}; write {what}"))
        };
        let refused = |error: ParseError| {
            let (found, reason, advice) = (error.found(), error.reason(), error.advice());
            wrong(format!("{name}: \"{found}\" {reason}; {advice}"))
        };
        let duration = || duration(value).map_err(|what| wrong(format!("{name} is {what}")));
        match name.strip_prefix(PREFIX).unwrap_or_default() {
            "DELIVERY" => {
                settings.delivery = match value.as_str() {
                    "at-most-once" => Delivery::AtMostOnce,
                    "at-least-once" => Delivery::AtLeastOnce { lease: LEASE },
                    _ => return Err(expected("at-most-once or at-least-once")),
                }
            }
            "LEASE" => lease = Some(duration()?),
            "CATCH_UP" => settings.catch_up = value.parse().map_err(refused)?,
            "WINDOW" => settings.window = Some(duration()?),
            "TIMEOUT" => settings.timeout = Some(duration()?),
            "DELAY" => settings.delay = duration()?,
            "JITTER" => settings.jitter = duration()?,
            "OVERLAP" => settings.overlap = value.parse().map_err(refused)?,
            "START" => settings.start = Some(parse_instant(value).map_err(refused)?),
            "END" => settings.end = Some(parse_instant(value).map_err(refused)?),
            "MAX_RUNS" => {
                settings.max_runs = Some(value.parse().map_err(|_| expected("a number from 1"))?);
            }
            "RUN_WHEN_CREATED" if value == "1" => settings.run_when_created = true,
            "RUN_WHEN_CREATED" => return Err(expected("1, or leave it away")),
            // The reader of the crontab has counted the fields by it.
            "SECONDS" if matches!(value.as_str(), "0" | "1") => {}
            "SECONDS" => return Err(expected("1 for six time fields, seconds first, or 0")),
            "CONCURRENCY_KEY" => settings.concurrency_key = Some(value.parse().map_err(refused)?),
            "BREAKER" => settings.breaker = Some(value.parse().map_err(refused)?),
            "HISTORY" => settings.history = Some(value.parse().map_err(refused)?),
            "ALERT" => settings.alert = Some(value.parse().map_err(refused)?),
            "MAX_KEY_WAIT" => settings.max_key_wait = Some(duration()?),
            "AFTER" => settings.after = Some(value.parse().map_err(refused)?),
            "ATTEMPTS" => {
                attempts = Some(value.parse().map_err(|_| expected("a number from 1"))?);
            }
            "RETRY_WAIT" => wait = Some(duration()?),
            "NODES" => {
                settings.placement = match value.as_str() {
                    "one" => Placement::OneNode,
                    "every" => Placement::EveryNode,
                    _ => return Err(expected("one or every")),
                }
            }
            "LABEL" => {
                value.parse::<LabelSelector>().map_err(|error| wrong(error.to_string()))?;
            }
            // Of the alerts.
            "ON_FAILURE" | "PING" => {}
            _ if is_commands_own(name) => {}
            _ => {
                let known = "DELIVERY, LEASE, CATCH_UP, WINDOW, TIMEOUT, DELAY, JITTER, OVERLAP, \
                             ATTEMPTS, RETRY_WAIT, CONCURRENCY_KEY, MAX_KEY_WAIT, BREAKER, ALERT, HISTORY, AFTER, START, \
                             END, MAX_RUNS, RUN_WHEN_CREATED, SECONDS, NODES, LABEL, NAME, ON_FAILURE and PING";
                let what = format!("there is no setting {name}; after ALLORA_ use one of {known}");
                return Err(wrong(what));
            }
        }
    }
    match (&mut settings.delivery, lease) {
        (Delivery::AtLeastOnce { lease }, Some(given)) => *lease = given,
        (Delivery::AtMostOnce, Some(_)) => {
            return Err(SettingError::line(
                "ALLORA_LEASE is only for at-least-once lines: set ALLORA_DELIVERY to at-least-once, \
                 or ALLORA_LEASE to nothing",
            ));
        }
        (_, None) => {}
    }
    // The daemon's default is for the lines that can have it: at least once, no run overlaps another.
    let names_overlap = entry.variable("ALLORA_OVERLAP").is_some_and(|value| !value.is_empty());
    if matches!(settings.delivery, Delivery::AtLeastOnce { .. }) && !names_overlap {
        settings.overlap = Overlap::Allow;
    }
    if attempts.is_some() || wait.is_some() {
        settings.retry = Retry::up_to(attempts.unwrap_or(1), wait.unwrap_or(RETRY_WAIT));
    }
    settings.check().map_err(|error| SettingError::line(error.to_string()))?;
    Ok(settings)
}
