//! The trait [`Schedule`], and the search for the latest instant of a set.

use crate::{
    Excluded, Exclusion, Filtered, Note, ParseError, ScheduleError, Warning,
    calendar::Rule,
    time::{Time, whole_millis},
};
use chrono::DateTime;
use std::{sync::Arc, time::Duration};

/// The times of a job: a pure function from an instant to the next one.
///
/// # Promises
/// - `next_at` is pure: it reads no clock, and returns the same instant on every node.
/// - The instant is later than `after`, in whole milliseconds. If it is not, the scheduler reports
///   the job as invalid, and does not loop.
///
/// Any `Fn(Time) -> Option<Time>` is a schedule.
///
/// ```
/// use allora::{Schedule, Time};
/// use std::time::Duration;
///
/// let twice_a_minute = |after: Time| Some(after + Duration::from_secs(30));
/// let at = Time::UNIX_EPOCH;
/// assert_eq!(twice_a_minute.next_at(at).unwrap().timestamp(), 30);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a schedule",
    label = "not a schedule",
    note = "write `cron(\"0 2 * * *\")?` for the text of a cron expression, `every(Duration::from_secs(60))` for a duration, and `at(time)` for one time"
)]
pub trait Schedule: Send + Sync + 'static {
    /// The first instant strictly after `after`; `None` if there is none.
    fn next_at(&self, after: Time) -> Option<Time>;

    /// The last instant of the chain that starts at `from`, not after `until`; `from` itself if
    /// there is no later one. `None`: not computed. After an outage, the scheduler then calls
    /// `next_at` for one instant after the other, up to a million.
    ///
    /// Default: not computed.
    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        let _ = (from, until);
        None
    }

    /// The number of instants of the chain from `from` that are after it and not after `until`.
    /// `None`: not computed, as for [`latest_at`](Self::latest_at).
    ///
    /// Default: not computed.
    fn count(&self, from: Time, until: Time) -> Option<u64> {
        let _ = (from, until);
        None
    }

    /// The occurrences after `after` and not after `until` that a calendar excludes, as one range;
    /// `None` if there are none. The scheduler records those between an occurrence and the next one
    /// as skipped, with the reason `Calendar`.
    ///
    /// [`except`](Self::except), [`only_within`](Self::only_within) and
    /// [`blackout`](Self::blackout) return what they leave out; all other schedules exclude nothing.
    ///
    /// ```
    /// use allora::schedule::{Dates, Schedule, cron};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let daily = cron("0 9 * * *")?.except(Dates::parse("2026-12-25 2026-12-26")?);
    /// let eve = "2026-12-24T09:00:00Z".parse()?;
    /// let next = daily.next_at(eve).ok_or("never")?;
    /// let excluded = daily.excluded(eve, next).ok_or("none")?;
    /// assert_eq!(excluded.count, Some(2));
    /// assert_eq!(excluded.last.to_string(), "2026-12-26 09:00:00 UTC");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Default: none.
    fn excluded(&self, after: Time, until: Time) -> Option<Excluded> {
        let _ = (after, until);
        None
    }

    /// `true` if a [named calendar](crate::Calendar) excludes this scheduled time. Such a calendar may
    /// have changed since the time was planned. The scheduler then does not run it, and records it as
    /// skipped with the reason `Calendar`.
    ///
    /// Default: `false`.
    fn is_excluded(&self, at: Time) -> bool {
        let _ = at;
        false
    }

    /// The instant to which this scheduled time is moved, as by [`Filtered::moved`]; the time itself if
    /// that stays where it is. `None`: the schedule moves nothing.
    ///
    /// The scheduled time identifies the occurrence. It is due at the instant to which it is moved,
    /// which another version of a calendar may place elsewhere.
    ///
    /// Default: `None`.
    fn moved(&self, at: Time) -> Option<Time> {
        let _ = at;
        None
    }

    /// The delay after the end of the run before, of a schedule by [`after_end`](crate::after_end()). Only a
    /// schedule of this crate has one: other code cannot name [`Token`].
    #[doc(hidden)]
    fn after_end(&self, _: Token) -> Option<Duration> {
        None
    }

    /// A text that changes when the schedule changes. `None`: changes are not noticed.
    fn definition(&self) -> Option<String> {
        None
    }

    /// `true` if [`parse`](crate::parse) reads [`definition`](Self::definition) back as the same
    /// schedule. Only a schedule of this crate can return `true`: other code cannot name [`Token`].
    #[doc(hidden)]
    fn is_built_in(&self, _: Token) -> bool {
        false
    }

    /// Checks that it can run. Called once, when the job is added.
    ///
    /// # Errors
    /// The error and its remedy.
    fn check(&self) -> Result<(), ScheduleError> {
        Ok(())
    }

    /// The schedule in English, for people. Every schedule of this library has a description;
    /// `None`: the schedule does not describe itself.
    ///
    /// [`parse`](crate::parse) reads the description of a phrase back as the same schedule.
    ///
    /// ```
    /// use allora::{Schedule, cron};
    ///
    /// let office = cron("*/15 9-17 * * MON-FRI Europe/Rome")?;
    /// assert_eq!(
    ///     office.describe().as_deref(),
    ///     Some("at minutes 0, 15, 30 and 45 of hours 9 to 17, every weekday, Europe/Rome"),
    /// );
    /// let monthly = cron("0 9 * * MON#1")?;
    /// assert_eq!(monthly.describe().as_deref(), Some("first Monday of every month at 9:00 UTC"));
    /// # Ok::<(), allora::schedule::ParseError>(())
    /// ```
    fn describe(&self) -> Option<String> {
        None
    }

    /// Warnings about a legal schedule that is seldom intended; for people. The scheduler logs them
    /// when the job is added.
    fn warnings(&self) -> &[Warning] {
        &[]
    }

    /// The zone whose wall clock the schedule follows; `None`: it follows none.
    fn wall_clock(&self) -> Option<&str> {
        None
    }

    /// The schedule without the occurrences on these dates, or at the instants of another schedule.
    /// `except(cron("* * 1 1 *")?)` leaves out each minute of New Year's Day.
    ///
    /// ```
    /// use allora::schedule::{Dates, Schedule, cron};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let daily = cron("0 9 * * *")?.except(Dates::parse("2026-12-25 2026-12-26")?);
    /// let eve = "2026-12-24T12:00:00Z".parse()?;
    /// assert_eq!(daily.next_at(eve), Some("2026-12-27T09:00:00Z".parse()?));
    /// # Ok(())
    /// # }
    /// ```
    fn except(self, excluded: impl Into<Exclusion>) -> Filtered<Self>
    where
        Self: Sized,
    {
        Filtered::new(self, vec![excluded.into().rule()])
    }

    /// The schedule without the occurrences outside these hours of a zone: `9:00-17:30`, or
    /// `22:00-6:00` past midnight. The end is excluded.
    ///
    /// ```
    /// use allora::{Schedule, every};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let hourly = every(Duration::from_secs(3600)).phase(Duration::ZERO);
    /// let office = hourly.only_within("9:00-17:30", "Europe/Rome")?;
    /// let evening = "2026-01-05T16:00:00Z".parse()?;
    /// assert_eq!(office.next_at(evening), Some("2026-01-06T08:00:00Z".parse()?));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Hours in another notation, and unknown zones.
    fn only_within(self, hours: &str, zone: &str) -> Result<Filtered<Self>, ParseError>
    where
        Self: Sized,
    {
        Ok(Filtered::new(self, vec![Rule::hours(hours, zone)?]))
    }

    /// The schedule without the occurrences from the first instant (inclusive) to the second
    /// (exclusive), both cut to milliseconds.
    ///
    /// ```
    /// use allora::{Schedule, cron};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (from, until) = ("2026-12-20T00:00:00Z".parse()?, "2027-01-07T00:00:00Z".parse()?);
    /// let nightly = cron("@daily")?.blackout(from, until);
    /// assert_eq!(nightly.next_at("2026-12-19T12:00:00Z".parse()?), Some(until));
    /// # Ok(())
    /// # }
    /// ```
    fn blackout(self, from: Time, until: Time) -> Filtered<Self>
    where
        Self: Sized,
    {
        Filtered::new(self, vec![Rule::Blackout(whole_millis(from), whole_millis(until))])
    }

    /// Notes about instants after `after` and up to `until`, such as local times that do not exist;
    /// for people.
    fn notes(&self, after: Time, until: Time) -> Vec<Note> {
        _ = (after, until);
        Vec::new()
    }
}

/// The argument of a method that only this crate can override.
#[derive(Clone, Copy, Debug)]
pub struct Token(());

/// `true` if [`parse`](crate::parse) reads the schedule's definition back as the same schedule.
#[doc(hidden)]
pub fn is_built_in<S: Schedule + ?Sized>(schedule: &S) -> bool {
    schedule.is_built_in(Token(()))
}

/// The delay after the end of the run before, if the schedule is by [`after_end`](crate::after_end()).
#[doc(hidden)]
pub fn delay_after_end<S: Schedule + ?Sized>(schedule: &S) -> Option<Duration> {
    schedule.after_end(Token(()))
}

/// [`Schedule::latest_at`] for a fixed set of whole seconds: `next` answers with the first one
/// after a second. Since that grows with its argument, the last second from which something not
/// after `until` follows is found by doubling back from `until`, then by halving: some 60
/// questions for a span of ten years, and a handful where instants are dense.
pub(crate) fn latest(from: Time, until: Time, next: impl Fn(i64) -> Option<i64>) -> Option<Time> {
    let end = until.timestamp();
    let next = |second| next(second).filter(|next| *next <= end);
    let mut low = from.timestamp();
    if until <= from || next(low).is_none() {
        return Some(from);
    }
    let mut high = end;
    let mut back = 1;
    while let Some(middle) = high.checked_sub(back).filter(|middle| *middle > low) {
        if next(middle).is_some() {
            low = middle;
            break;
        }
        high = middle;
        back *= 2;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if next(middle).is_some() {
            low = middle;
        } else {
            high = middle;
        }
    }
    DateTime::from_timestamp(next(low)?, 0)
}

/// The blank-separated words of a text, each with the byte at which it begins.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let start = text.as_ptr() as usize;
    text.split_ascii_whitespace().map(move |word| (word.as_ptr() as usize - start, word))
}

impl<F> Schedule for F
where
    F: Fn(Time) -> Option<Time> + Send + Sync + 'static,
{
    fn next_at(&self, after: Time) -> Option<Time> {
        self(after)
    }
}

/// Every question of a pointer to a schedule goes to the schedule.
macro_rules! points_to_schedule {
    ($($pointer:ty $(, $schedule:ident)?;)*) => {$(
        impl$(<$schedule: Schedule + ?Sized>)? Schedule for $pointer {
            fn next_at(&self, after: Time) -> Option<Time> {
                (**self).next_at(after)
            }
            fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
                (**self).latest_at(from, until)
            }
            fn count(&self, from: Time, until: Time) -> Option<u64> {
                (**self).count(from, until)
            }
            fn excluded(&self, after: Time, until: Time) -> Option<Excluded> {
                (**self).excluded(after, until)
            }
            fn is_excluded(&self, at: Time) -> bool {
                (**self).is_excluded(at)
            }
            fn moved(&self, at: Time) -> Option<Time> {
                (**self).moved(at)
            }
            fn after_end(&self, token: Token) -> Option<Duration> {
                (**self).after_end(token)
            }
            fn definition(&self) -> Option<String> {
                (**self).definition()
            }
            fn is_built_in(&self, token: Token) -> bool {
                (**self).is_built_in(token)
            }
            fn check(&self) -> Result<(), ScheduleError> {
                (**self).check()
            }
            fn describe(&self) -> Option<String> {
                (**self).describe()
            }
            fn warnings(&self) -> &[Warning] {
                (**self).warnings()
            }
            fn wall_clock(&self) -> Option<&str> {
                (**self).wall_clock()
            }
            fn notes(&self, after: Time, until: Time) -> Vec<Note> {
                (**self).notes(after, until)
            }
        }
    )*};
}

points_to_schedule! {
    Box<dyn Schedule>;
    Arc<S>, S;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The number of calls that find the latest multiple of `step` in ten years.
    fn questions(step: i64) -> usize {
        let asked = Cell::new(0);
        let until = DateTime::from_timestamp(315_360_000, 0).unwrap();
        let found = latest(Time::UNIX_EPOCH, until, |second| {
            asked.set(asked.get() + 1);
            Some((second.div_euclid(step) + 1) * step)
        });
        assert_eq!(found.unwrap().timestamp(), 315_360_000 / step * step);
        asked.get()
    }

    #[test]
    fn the_latest_of_a_set_takes_few_questions() {
        assert_eq!(questions(1), 3);
        assert!(questions(3600) < 30);
        assert!(questions(200_000_000) < 70);
    }
}
