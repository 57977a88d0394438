//! No time at all: for jobs that run when they are triggered, or after another job.

use crate::{ParseError, Schedule, ScheduleError, Time};
use std::{fmt, str::FromStr};

/// Has no time of its own: the job runs when it is triggered, or after another job.
///
/// ```
/// use allora::{Schedule, schedule::{never, parse}, time::from_millis};
///
/// assert_eq!(never().next_at(from_millis(0).ok_or("no time")?), None);
/// assert_eq!(parse("@never")?.to_string(), "@never");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn never() -> Never {
    Never(())
}

/// No time at all; made by [`never()`], or read as `@never`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Never(());

impl Schedule for Never {
    fn next_at(&self, _: Time) -> Option<Time> {
        None
    }

    fn check(&self) -> Result<(), ScheduleError> {
        Ok(())
    }

    fn definition(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn is_built_in(&self, _: crate::schedule::Token) -> bool {
        true
    }

    fn describe(&self) -> Option<String> {
        Some("at no time of its own: when it is triggered, or after another job".to_owned())
    }
}

impl fmt::Display for Never {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("@never")
    }
}

impl FromStr for Never {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = crate::schedule::words(text).skip(1);
        match words.next() {
            Some((at, word)) => {
                let many = ParseError::new(crate::Field::Text, at, word, "is one word too many");
                Err(many.remedy("leave it away: @never has no time"))
            }
            None => Ok(never()),
        }
    }
}
