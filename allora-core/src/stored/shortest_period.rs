//! The shortest period of the schedules that a client may add, by the beginning of their names.

use super::{Definition, Schedules};
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

impl Schedules {
    /// Refuses to add, change or import a schedule whose name begins with `prefix`, if two of its times
    /// are closer together than `period`. If several prefixes fit a name, the longest period counts. It is
    /// a rule of this client and its clones: what other clients have stored is not touched.
    ///
    /// The period of `@every` is compared, which is exact. Of any other schedule, the next 4,000 times are
    /// compared, as far as they are within 400 days from now, or from its `start`: a change of the clocks is
    /// among them, and what comes closer only later is not found. The times are the scheduled ones,
    /// without delay and jitter. `end`, `max-runs` and calendars are considered.
    ///
    /// ```
    /// use allora::{Schedules, StoredSchedule};
    /// use std::time::Duration;
    ///
    /// # async fn example(schedules: Schedules) -> allora::Result {
    /// let schedules = schedules.shortest_period("acme/", Duration::from_secs(300));
    /// let each_minute = StoredSchedule::new("acme/poll", "poll", "* * * * *");
    /// assert!(schedules.add(&each_minute).await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn shortest_period(mut self, prefix: impl Into<String>, period: Duration) -> Self {
        self.shortest_periods.push(ShortestPeriod { prefix: prefix.into(), period });
        self
    }

    /// Checks the times of a schedule, whose definition has its calendars, against the rules.
    pub(super) fn check_period(&self, name: &str, definition: &Definition, now: Time) -> Result {
        let rules = self.shortest_periods.iter().filter(|rule| name.starts_with(&rule.prefix));
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
        AnySchedule::Every(_) => 1,
        _ => OCCURRENCES,
    };
    let first = definition.first(name, now)?.map(|next| next.scheduled_at);
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

    /// Whether a definition comes closer than this period, from midnight UTC of 1 January 2026 on, and
    /// the interval.
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
