//! Failures in a row: when a job pauses by itself, and when people are told.
//!
//! Both are one pure function over the count of a record. The record applies it in the commit that
//! ends a run, so the count is right whichever nodes have run the job, and whichever have died.

use crate::{
    backend::{Streak, StreakChange},
    error::{Error, Result},
    schedule::{ParseError, period_text},
    time::{Time, saturating_add, whole_millis},
};
use std::{fmt, time::Duration};

/// The circuit breaker of a job: after so many failed occurrences in a row it pauses by itself. A run
/// that succeeds ends the pause: the probe, or one that an operator triggers.
///
/// An occurrence counts when it is not tried again: failed, dead or lost. What was cancelled, skipped
/// or missed counts neither way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Breaker {
    /// The number of failed occurrences in a row. Range: 1 to 1 000.
    pub failures: u32,
    /// The time after which the pause ends for one occurrence; if that fails, the job pauses again.
    /// Default: none, the job stays paused until a trigger succeeds or an operator resumes it. Range: 1 s
    /// to 366 days.
    pub probe_after: Option<Duration>,
}

impl Breaker {
    /// Pauses after so many failed occurrences in a row.
    pub const fn after(failures: u32) -> Self {
        Self { failures, probe_after: None }
    }

    /// Runs the next occurrence after this time, to find out if it succeeds again. Which one that is, the
    /// catch-up policy decides.
    #[must_use]
    pub const fn probe_after(mut self, wait: Duration) -> Self {
        self.probe_after = Some(wait);
        self
    }
}

/// When people are told that a job fails. They are told once more when it succeeds again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlertRule {
    /// The number of failed occurrences in a row after which they are told. Range: 1 to 1 000.
    pub failures: u32,
    /// The shortest time between two alerts while it goes on failing. Default: none, one alert until it
    /// succeeds again. Range: 1 s to 366 days.
    pub again_every: Option<Duration>,
}

impl AlertRule {
    /// Tells after so many failed occurrences in a row.
    pub const fn after(failures: u32) -> Self {
        Self { failures, again_every: None }
    }

    /// Tells again while it goes on failing, at most once in this time.
    #[must_use]
    pub const fn again_every(mut self, period: Duration) -> Self {
        self.again_every = Some(period);
        self
    }
}

/// Implements the text of a number and perhaps a period, and the check of both.
macro_rules! number_and_period {
    ($type:ident $period:ident $name:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.failures)?;
                self.$period.map_or(Ok(()), |period| write!(f, " {}", period_text(period)))
            }
        }

        #[doc = concat!("Reads a number of failures, and perhaps a period: `3`, `3 1h`.")]
        impl std::str::FromStr for $type {
            type Err = ParseError;

            fn from_str(text: &str) -> Result<Self, ParseError> {
                let (failures, $period) = super::words::number_and_period(text)?;
                Ok(Self { failures, $period })
            }
        }

        impl $type {
            pub(super) fn check(&self) -> Result {
                check($name, self.failures, self.$period)
            }
        }
    };
}

number_and_period!(Breaker probe_after "breaker");
number_and_period!(AlertRule again_every "alert");

fn check(name: &str, failures: u32, period: Option<Duration>) -> Result {
    if !(1..=1_000).contains(&failures) {
        let wrong = format!("`{name}` counts {failures} failures in a row; use 1 to 1000");
        return Err(Error::invalid(wrong));
    }
    let range = Duration::from_secs(1)..=Duration::from_secs(366 * 24 * 60 * 60);
    let fits = |period: Duration| {
        range.contains(&period) && period.subsec_nanos().is_multiple_of(1_000_000)
    };
    match period.is_none_or(fits) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "the period of `{name}` is out of range; use 1 s to 366 days in whole milliseconds"
        ))),
    }
}

/// The part of a definition that is about failures in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FailureRules {
    pub(crate) breaker: Option<Breaker>,
    pub(crate) alert: Option<AlertRule>,
}

/// The end of the pause that a failure begins: by itself at a time, or by hand.
pub(crate) type PauseUntil = Option<Time>;

impl FailureRules {
    /// Counts one more failed occurrence. Returns the change to report, and the pause that begins, if the
    /// job `may_pause`: nobody else has paused it.
    pub(crate) fn failed(
        &self,
        streak: &mut Streak,
        may_pause: bool,
        now: Time,
    ) -> (Option<StreakChange>, Option<PauseUntil>) {
        streak.failures = streak.failures.saturating_add(1);
        let again = |every: Duration| {
            streak.alerted_at.is_some_and(|last| saturating_add(last, every) <= now)
        };
        let is_due = self.alert.is_some_and(|rule| {
            streak.failures >= rule.failures
                && (streak.alerted_at.is_none() || rule.again_every.is_some_and(again))
        });
        let breaker =
            self.breaker.filter(|breaker| may_pause && streak.failures >= breaker.failures);
        let Some(breaker) = breaker else {
            if is_due {
                streak.alerted_at = Some(whole_millis(now));
            }
            return (is_due.then_some(StreakChange::Failing), None);
        };
        // After a probe, people know it already.
        let is_alert = is_due || !streak.has_paused;
        if is_alert {
            streak.alerted_at = Some(whole_millis(now));
        }
        streak.has_paused = true;
        let until = breaker.probe_after.map(|wait| whole_millis(saturating_add(now, wait)));
        (Some(StreakChange::Paused { until, is_alert }), Some(until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;

    /// The reports of failures at these seconds.
    fn reports(rules: FailureRules, seconds: &[i64]) -> Vec<&'static str> {
        let mut streak = Streak::default();
        let report = |second: &i64| {
            let now = from_millis(second * 1_000).unwrap();
            match rules.failed(&mut streak, true, now).0 {
                None => "",
                Some(StreakChange::Failing) => "failing",
                Some(StreakChange::Paused { is_alert: true, .. }) => "paused",
                Some(StreakChange::Paused { .. }) => "paused again",
                Some(StreakChange::Over) => "over",
            }
        };
        seconds.iter().map(report).collect()
    }

    #[test]
    fn people_are_told_after_n_failures_and_again_at_most_every_so_often() {
        let alert = |rule| FailureRules { alert: Some(rule), breaker: None };
        assert_eq!(reports(alert(AlertRule::after(2)), &[0, 1, 2, 900]), ["", "failing", "", ""]);
        let hourly = AlertRule::after(1).again_every(Duration::from_secs(3_600));
        let told = reports(alert(hourly), &[0, 60, 3_599, 3_600, 3_660, 7_200]);
        assert_eq!(told, ["failing", "", "", "failing", "", "failing"]);
    }

    #[test]
    fn a_breaker_pauses_at_the_last_failure_and_at_each_probe_that_fails() {
        let breaker = Some(Breaker::after(3).probe_after(Duration::from_secs(60)));
        let rules = FailureRules { breaker, alert: None };
        assert_eq!(reports(rules, &[0, 1, 2, 62]), ["", "", "paused", "paused again"]);
        let mut streak = Streak { failures: 2, ..Streak::default() };
        let now = from_millis(5_000).unwrap();
        assert_eq!(rules.failed(&mut streak.clone(), false, now), (None, None), "paused by hand");
        assert_eq!(rules.failed(&mut streak, true, now).1, Some(from_millis(65_000)));
    }

    #[test]
    fn texts_are_read_back_and_bad_ones_are_named() {
        for text in ["5", "5 10m"] {
            assert_eq!(text.parse::<Breaker>().unwrap().to_string(), text);
            assert_eq!(text.parse::<AlertRule>().unwrap().to_string(), text);
        }
        for text in ["", "x", "5 x", "5 10m 1"] {
            assert!(text.parse::<Breaker>().is_err(), "{text:?}");
        }
        for bad in [Breaker::after(0), Breaker::after(1_001)] {
            assert!(bad.check().unwrap_err().to_string().contains("use 1 to 1000"));
        }
        let soon = Breaker::after(1).probe_after(Duration::from_millis(1));
        assert!(soon.check().unwrap_err().to_string().contains("use 1 s to 366 days"));
    }
}
