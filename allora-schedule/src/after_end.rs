//! A fixed delay after the end of the run before.

use crate::{
    Field, Note, NoteReason, ParseError, Schedule, ScheduleError, period,
    time::{Time, checked_add, whole_millis},
};
use std::{fmt, str::FromStr, time::Duration};

/// Runs again `delay` after the end of the run before: from 1 millisecond to 100 years, in whole
/// milliseconds.
///
/// The scheduled time is the instant at which the store recorded the end, by its clock, plus the delay.
/// The end is that of the last attempt, whether it succeeded or failed; a lost run ends when its loss is
/// recorded, and an occurrence that is skipped or missed when that is recorded. The first run is one
/// delay after the job is first registered. For times that do not depend on the runs, see
/// [`every`](crate::every).
///
/// As a pure function, the schedule takes it that runs take no time: `next_at(end)` is the next
/// occurrence after a run that ends then.
///
/// ```
/// use allora::{Schedule, after_end};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pause = after_end(Duration::from_secs(600));
/// let end = "2026-01-01T09:07:00Z".parse()?;
/// assert_eq!(pause.next_at(end), Some("2026-01-01T09:17:00Z".parse()?));
/// assert_eq!(pause.definition().as_deref(), Some("@after_end 10m"));
/// assert_eq!(pause.describe().as_deref(), Some("10 minutes after the end of the last run"));
/// # Ok(())
/// # }
/// ```
///
/// A delay out of range is reported when the job is added, by [`Schedule::check`].
pub fn after_end(delay: Duration) -> AfterEnd {
    AfterEnd { delay }
}

/// A fixed delay after the end of the run before; made by [`after_end`] or read from a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AfterEnd {
    delay: Duration,
}

/// A hundred years: longer is a slip of the unit.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

impl AfterEnd {
    /// The delay.
    pub fn delay(&self) -> Duration {
        self.delay
    }
}

impl Schedule for AfterEnd {
    fn next_at(&self, after: Time) -> Option<Time> {
        self.check().ok()?;
        checked_add(whole_millis(after), self.delay)
    }

    /// Nothing is missed while no run ends: only one occurrence waits at a time.
    fn latest_at(&self, from: Time, _: Time) -> Option<Time> {
        Some(from)
    }

    fn count(&self, _: Time, _: Time) -> Option<u64> {
        Some(0)
    }

    fn after_end(&self, _: crate::schedule::Token) -> Option<Duration> {
        Some(self.delay)
    }

    fn check(&self) -> Result<(), ScheduleError> {
        let refuse = |what: &str| {
            let delay = self.delay;
            Err(ScheduleError::new(format!("after_end({delay:?}): the delay {what}")))
        };
        if self.delay.is_zero() {
            return refuse("is zero: write 1 ms or more");
        }
        if !self.delay.subsec_nanos().is_multiple_of(1_000_000) {
            return refuse("is not in whole milliseconds: round it");
        }
        if self.delay > LONGEST {
            return refuse("is longer than 100 years: check its unit");
        }
        Ok(())
    }

    fn definition(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn is_built_in(&self, _: crate::schedule::Token) -> bool {
        true
    }

    fn describe(&self) -> Option<String> {
        Some(format!("{} after the end of the last run", period::in_words(self.delay)))
    }

    fn notes(&self, _: Time, until: Time) -> Vec<Note> {
        let text = "the times after this one follow when the run has ended";
        vec![Note::new(until, NoteReason::AfterEnd, text)]
    }
}

/// `@after_end 10m`.
impl fmt::Display for AfterEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@after_end {}", period::Shown(self.delay))
    }
}

impl FromStr for AfterEnd {
    type Err = ParseError;

    /// Reads `@after_end 10m`, with the periods of [`parse_period`](crate::parse_period).
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = crate::schedule::words(text).skip(1);
        let Some((at, word)) = words.next() else {
            return Err(ParseError::new(Field::Period, text.len(), "", "has no delay")
                .remedy("write @after_end 10m"));
        };
        if word.starts_with('-') {
            return Err(ParseError::new(Field::Period, at, word, "is before the end of the run")
                .remedy("write a delay after it, such as 10m"));
        }
        let delay = period::parse(word, at)?;
        if delay > LONGEST {
            return Err(ParseError::new(Field::Period, at, word, "is longer than 100 years")
                .remedy("write a shorter delay"));
        }
        match words.next() {
            Some((at, word)) => Err(ParseError::new(Field::Period, at, word, "follows the delay")
                .remedy("write the delay as one word, such as 1h30m, and nothing after it")),
            None => Ok(after_end(delay)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_that_cannot_be_is_refused_with_what_to_write() {
        for (text, column, remedy) in [
            ("@after_end", 10, "write @after_end 10m"),
            ("@after_end -10m", 11, "write a delay after it, such as 10m"),
            ("@after_end 0s", 11, ""),
            ("@after_end 101y", 11, ""),
            ("@after_end 99999999h", 11, "write a shorter delay"),
            (
                "@after_end 10m 5s",
                15,
                "write the delay as one word, such as 1h30m, and nothing after it",
            ),
        ] {
            let error = crate::parse(text).unwrap_err();
            assert_eq!(error.position(), column, "{text}: {error}");
            assert!(error.advice().contains(remedy), "{text}: {}", error.advice());
            assert!(!error.advice().is_empty(), "{text}");
        }
        for delay in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            assert!(after_end(delay).check().is_err());
            assert_eq!(after_end(delay).next_at(Time::UNIX_EPOCH), None);
        }
    }

    #[test]
    fn a_phrase_and_the_description_are_read_as_the_same_schedule() {
        for text in [
            "10 minutes after the end",
            "10 minutes after the end of the last run",
            "10 Minutes after the end of each run",
            "@AFTER_END 10m",
        ] {
            assert_eq!(crate::parse(text).unwrap().to_string(), "@after_end 10m", "{text}");
        }
        for text in
            ["1 day after the end", "ten minutes after the end", "10 minutes after the start"]
        {
            assert!(!crate::parse(text).unwrap_err().advice().is_empty(), "{text}");
        }
    }
}
