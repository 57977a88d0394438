//! The shortest period of the schedules that a client may add, by the beginning of their names.

use super::definition::Definition;
use crate::{
    error::{Error, Result},
    schedule::{AnySchedule, period_text},
    time::{Time, since},
};
use chrono::{SecondsFormat, TimeDelta};
use std::time::Duration;

/// The largest number of occurrences that are compared, and the time that they cover at most.
const OCCURRENCES: usize = 4_000;
const HORIZON: TimeDelta = TimeDelta::days(400);

/// The shortest period for names that begin so.
#[derive(Clone, Debug)]
pub(super) struct ShortestPeriod {
    prefix: String,
    period: Duration,
}

impl ShortestPeriod {
    pub(super) fn new(prefix: String, period: Duration) -> Self {
        Self { prefix, period }
    }

    /// Checks the times of a schedule, whose definition has its calendars, against these rules.
    pub(super) fn check(rules: &[Self], name: &str, definition: &Definition, now: Time) -> Result {
        let rules = rules.iter().filter(|rule| name.starts_with(&rule.prefix));
        let Some(rule) = rules.max_by_key(|rule| rule.period) else { return Ok(()) };
        let Some((one, other)) = closer_than(rule.period, name, definition, now)? else {
            return Ok(());
        };
        let [from, to] = [one, other].map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true));
        Err(Error::invalid(format!(
            "{name:?} would run at {from} and again at {to}, {} later; the shortest period of {:?} is {}, \
             so use a schedule with longer intervals",
            period_text(since(other, one)),
            rule.prefix,
            period_text(rule.period),
        )))
    }
}

/// The first two times that are closer than that.
fn closer_than(
    period: Duration,
    name: &str,
    definition: &Definition,
    now: Time,
) -> Result<Option<(Time, Time)>> {
    // All intervals are the same.
    let most = match definition.schedule() {
        AnySchedule::Every(_) | AnySchedule::AfterEnd(_) => 1,
        _ => OCCURRENCES,
    };
    let first = definition.first_scheduled(name, now)?.map(|next| next.scheduled_at);
    let Some(first) = first else { return Ok(None) };
    let (mut before, until) = (first, first + HORIZON);
    for started in 1..=most as u64 {
        let next = definition.following(name, before, started)?.map(|next| next.scheduled_at);
        let Some(at) = next.filter(|at| *at <= until) else { break };
        if since(at, before) < period {
            return Ok(Some((before, at)));
        }
        before = at;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The interval of a definition that comes closer than this period, from midnight UTC of 1 January
    /// 2026 on.
    fn closest(text: &str, period: &str) -> Option<String> {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let period = crate::schedule::parse_period(period).unwrap();
        let definition = Definition::parse("job", text).unwrap();
        let found = closer_than(period, "job", &definition, now).unwrap();
        found.map(|(one, other)| period_text(since(other, one)))
    }

    #[test]
    fn times_that_come_closer_than_the_period_are_found() {
        for (text, period, interval) in [
            ("@every 4m", "5m", Some("4m")),
            ("@every 5m", "5m", None),
            ("@every 4m; max-runs 1", "5m", None),
            ("@every 4m; end 2026-01-01T00:07:00Z", "5m", None),
            ("@every 1m; except 30-59 * * * *", "1m", None),
            ("@every 1m; only-within 9:00-9:05", "2m", Some("1m")),
            ("@at 2026-05-01T00:00:00Z", "1d", None),
            ("0 9,12 * * *", "3h", None),
            ("0 9,12 * * *", "3h1m", Some("3h")),
            // Over midnight, and once a month.
            ("0,59 0,23 1,2 * *", "2m", Some("1m")),
            ("@daily; start 2030-01-01T00:00:00Z", "1d", None),
            // The night of the change of the clocks is an hour shorter.
            ("0 9 * * *; zone Europe/Rome", "1d", Some("23h")),
            ("@quartz 0/20 * * * * ?", "30s", Some("20s")),
        ] {
            assert_eq!(closest(text, period).as_deref(), interval, "{text}");
        }
    }
}
