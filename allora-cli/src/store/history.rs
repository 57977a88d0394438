//! The limits of the history: options of `allora run`, and keys of the configuration.

use crate::values::duration;
use allora_core::backend::HistoryLimits;
use clap::Args;
use std::time::Duration;

/// The limits that were set; what was not has its default.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct HistoryOptions {
    /// Keeps so many entries of history of each job, beside its failures; 0 keeps none at all
    /// [default: the configuration's, or 1000, and 100 in etcd].
    #[arg(long, value_name = "ENTRIES")]
    pub(crate) history: Option<u64>,
    /// Keeps these entries for so long, at least 1 h [default: the configuration's, or 90d].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) history_age: Option<Duration>,
    /// Keeps so many failures of each job [default: the configuration's, or as many as of the other
    /// entries].
    #[arg(long, value_name = "ENTRIES")]
    pub(crate) history_failures: Option<u64>,
    /// Keeps failures for so long, at least 1 h [default: the configuration's, or 365d].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) history_failure_age: Option<Duration>,
}

impl HistoryOptions {
    /// These, and of the others what these leave open.
    pub(super) fn or(self, others: Self) -> Self {
        Self {
            history: self.history.or(others.history),
            history_age: self.history_age.or(others.history_age),
            history_failures: self.history_failures.or(others.history_failures),
            history_failure_age: self.history_failure_age.or(others.history_failure_age),
        }
    }

    pub(super) fn limits(self) -> HistoryLimits {
        let mut limits = HistoryLimits::default();
        (limits.per_job, limits.failures_per_job) = (self.history, self.history_failures);
        limits.age = self.history_age.unwrap_or(limits.age);
        limits.failure_age = self.history_failure_age.unwrap_or(limits.failure_age);
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_goes_before_the_configuration_and_that_before_the_default() {
        let hours = |n: u64| Duration::from_secs(n * 3_600);
        let options = HistoryOptions { history: Some(5), ..HistoryOptions::default() };
        let configured = HistoryOptions {
            history: Some(7),
            history_age: Some(hours(2)),
            ..HistoryOptions::default()
        };
        let expected = HistoryLimits::default().per_job(5).age(hours(2));
        assert_eq!(options.or(configured).limits(), expected);
        assert_eq!(HistoryOptions::default().limits(), HistoryLimits::default());
    }
}
