//! The limits of one job's history.

use crate::{
    backend::{HistoryLimits, HistoryTrim},
    error::{Error, Result},
    schedule::{ParseError, period_text},
    time::Time,
};
use std::{fmt, str::FromStr, time::Duration};

/// The limits of one job's history, within those of the [store](HistoryLimits): so many failures and so
/// many other entries, and none older than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobHistory {
    entries: u32,
    age: Duration,
}

impl JobHistory {
    /// At most so many failures and so many other entries, none older than this.
    pub const fn new(entries: u32, age: Duration) -> Self {
        Self { entries, age }
    }

    pub(super) fn check(&self) -> Result {
        let limits = HistoryLimits::from(u64::from(self.entries)).age(self.age);
        let whole = self.age.subsec_nanos().is_multiple_of(1_000_000);
        match limits.check() {
            Ok(()) if self.entries > 0 && whole => Ok(()),
            Ok(()) => Err(Error::invalid(
                "the history of a job has at least 1 entry, and an age in whole milliseconds",
            )),
            Err(what) => Err(Error::invalid(what)),
        }
    }

    /// The part of these that is kept at this time.
    pub(crate) fn within(self, kept: HistoryTrim, now: Time) -> HistoryTrim {
        let own = HistoryLimits::from(u64::from(self.entries)).age(self.age).failure_age(self.age);
        kept.and(own.at(now))
    }
}

impl fmt::Display for JobHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.entries, period_text(self.age))
    }
}

/// Reads a number of entries and an age: `50 30d`.
impl FromStr for JobHistory {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (entries, age) = super::words::number_and_period(text)?;
        let Some(age) = age else { return Err(super::words::no_age(text)) };
        Ok(Self { entries, age })
    }
}
