//! The limits of the history: options of `allora run`, and keys of the configuration.

use crate::values::duration;
use allora_core::backend::HistoryLimits;
use clap::Args;
use std::time::Duration;

/// The limits that were set; what was not has its default.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct HistoryOptions {
    /// Keeps so many entries of history in the store; 0 keeps none [default: the configuration's, or
    /// 10000000 in SQL, 1000000 in Redis, 100000 in etcd].
    #[arg(long, value_name = "ENTRIES")]
    pub(crate) history: Option<u64>,
    /// Keeps so many entries of each job, at least 20; beyond them, its last failures [default: the
    /// configuration's, or 1000].
    #[arg(long, value_name = "ENTRIES")]
    pub(crate) history_per_job: Option<u64>,
    /// Keeps entries for so long, at least 1 h; the last 20 of each job and its failures stay [default:
    /// the configuration's, or 30d].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) history_age: Option<Duration>,
}

impl HistoryOptions {
    /// These, and of the others what these leave open.
    pub(super) fn or(self, others: Self) -> Self {
        Self {
            history: self.history.or(others.history),
            history_per_job: self.history_per_job.or(others.history_per_job),
            history_age: self.history_age.or(others.history_age),
        }
    }

    pub(super) fn limits(self) -> HistoryLimits {
        let mut limits = HistoryLimits::default();
        limits.total = self.history;
        limits.per_job = self.history_per_job.unwrap_or(limits.per_job);
        limits.age = self.history_age.unwrap_or(limits.age);
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
        let expected = HistoryLimits::default().total(5).age(hours(2));
        assert_eq!(options.or(configured).limits(), expected);
        assert_eq!(HistoryOptions::default().limits(), HistoryLimits::default());
    }
}
