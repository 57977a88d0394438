//! Instants of a schedule in order: the next few, or those of a range.

use crate::{Schedule, Time};

/// The next `n` instants after `after` (exclusive), fewer if the schedule ends.
pub fn next_n(schedule: &dyn Schedule, after: Time, n: usize) -> Vec<Time> {
    Between { schedule, at: after, until: Time::MAX_UTC }.take(n).collect()
}

/// The instants after `from` (exclusive) and up to `until` (inclusive), in order.
///
/// Consecutive ranges that share an end contain each instant once. The iterator also ends where a
/// schedule returns an instant that is not later than the one before.
///
/// ```
/// use allora::schedule::{between, cron};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let hourly = cron("@hourly")?;
/// let (from, until) = ("2026-01-01T00:00:00Z".parse()?, "2026-01-02T00:00:00Z".parse()?);
/// assert_eq!(between(&hourly, from, until).count(), 24);
/// # Ok(())
/// # }
/// ```
pub fn between(schedule: &dyn Schedule, from: Time, until: Time) -> Between<'_> {
    Between { schedule, at: from, until }
}

/// Iterator over a range; made by [`between`].
pub struct Between<'a> {
    schedule: &'a dyn Schedule,
    at: Time,
    until: Time,
}

impl std::fmt::Debug for Between<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Between").field("at", &self.at).field("until", &self.until).finish()
    }
}

impl Iterator for Between<'_> {
    type Item = Time;

    fn next(&mut self) -> Option<Time> {
        let next = self.schedule.next_at(self.at).map(crate::time::whole_millis);
        let next = next.filter(|next| *next > self.at && *next <= self.until);
        // Ended is ended, also for a schedule that would answer otherwise when asked again.
        self.at = next.unwrap_or(Time::MAX_UTC);
        next
    }
}

impl std::iter::FusedIterator for Between<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_that_stands_still_ends_the_iterator() {
        let still = |after: Time| Some(after);
        assert!(next_n(&still, Time::UNIX_EPOCH, 5).is_empty());
        let back = |after: Time| Some(after - chrono::TimeDelta::seconds(1));
        assert_eq!(between(&back, Time::UNIX_EPOCH, Time::MAX_UTC).count(), 0);
        let crawls = |after: Time| Some(after + chrono::TimeDelta::nanoseconds(1));
        assert!(next_n(&crawls, Time::UNIX_EPOCH, 5).is_empty());
    }
}
