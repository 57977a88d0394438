//! The settings of a job.

use super::{AlertRule, Breaker, ConcurrencyKey, JobHistory};
use crate::{
    backend::{After, NextRun},
    error::{Error, Result},
    name::{check_name, check_word},
    schedule::{Warning, jitter},
    time::{Time, checked_add},
};
use chrono::TimeDelta;
use std::{collections::BTreeSet, time::Duration};

/// The settings of a job, apart from its schedule and its code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Delivery at most once or at least once.
    pub delivery: Delivery,
    /// The policy for occurrences that were missed during an outage.
    pub catch_up: CatchUp,
    /// The longest delay of a start. A later occurrence is recorded as missed.
    pub window: Option<Duration>,
    /// The policy for an occurrence that is due while the previous run is active.
    pub overlap: Overlap,
    /// The retry policy for failed runs.
    pub retry: Retry,
    /// The longest duration of a run. A longer run is dropped and has failed.
    pub timeout: Option<Duration>,
    /// A fixed delay after the scheduled time.
    pub delay: Duration,
    /// The longest extra delay, derived from the job's name and the scheduled time.
    pub jitter: Duration,
    /// The earliest scheduled time.
    pub start: Option<Time>,
    /// The latest scheduled time.
    pub end: Option<Time>,
    /// The largest number of occurrences.
    pub max_runs: Option<u64>,
    /// One more occurrence is due at once when the job is created.
    pub run_when_created: bool,
    /// A single time that is past when the job is created runs at once, however old it is.
    pub run_if_past: bool,
    /// The concurrency key, whose limit the job shares with all jobs of the key.
    pub concurrency_key: Option<ConcurrencyKey>,
    /// The longest wait for the concurrency key. Occurrences that wait longer are skipped.
    pub max_key_wait: Option<Duration>,
    /// When the job pauses by itself.
    pub breaker: Option<Breaker>,
    /// When people are told that it fails.
    pub alert: Option<AlertRule>,
    /// The history of the job, where that is less than the store keeps.
    pub history: Option<JobHistory>,
    /// The job after whose ends it runs, in addition to the times of its schedule.
    pub after: Option<After>,
    /// The team or person that is responsible for a stored schedule: one word. It changes nothing about
    /// its runs.
    pub owner: Option<String>,
    /// The tags of a stored schedule, by which operators select it: one word each, without a comma.
    /// They change nothing about its runs.
    pub tags: BTreeSet<String>,
    /// The nodes that run an occurrence: one or all.
    pub placement: Placement,
    /// The version of the definition in the user's build.
    pub version: u64,
}

/// The delivery guarantee of a job's occurrences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// The cursor moves before the run starts. An occurrence never runs twice. A run whose node
    /// dies is recorded as lost.
    #[default]
    AtMostOnce,
    /// The cursor moves when the run has ended. A run whose node dies is run again.
    AtLeastOnce {
        /// The time for which a node keeps its occurrence without an extension.
        lease: Duration,
    },
}

/// The policy for occurrences that were missed during an outage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CatchUp {
    /// The latest one is run. The others are recorded as missed.
    #[default]
    Latest,
    /// The last `limit` ones are run, in order. Earlier ones are recorded as missed.
    All {
        /// The largest number of them. Range: 1 to 10 000.
        limit: u32,
    },
    /// All of them are recorded as missed. An occurrence is missed when it is later than the
    /// [window](Settings::window). Without a window: 10 s.
    None,
}

/// The policy for an at-most-once occurrence that is due while the previous run is active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// It runs at the same time, up to [`MAX_LEASES`](crate::record::MAX_LEASES) runs at once. A run
    /// without a concurrency key continues when the store does not answer for longer than its lease: it
    /// is recorded as lost, and its extension or its end replaces that.
    #[default]
    Allow,
    /// It is not run, and is recorded as skipped.
    Skip,
    /// It waits. The catch-up policy selects among those that came due in the meantime.
    Wait,
    /// It replaces the active runs: they are cancelled, as by
    /// [`Handle::cancel`](crate::Handle::cancel), and it starts when they have ended, or when the
    /// leases of their nodes have. They are recorded as cancelled, with [its scheduled
    /// time](crate::backend::NotRunReason::Replaced). A manual trigger replaces no run; it waits until
    /// no run is active and no occurrence is due.
    Replace,
}

/// The nodes that run a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Each occurrence on one node.
    #[default]
    OneNode,
    /// Each occurrence on every node.
    EveryNode,
}

/// The retry policy of failed at-least-once runs. The first wait is `first`; each further wait is
/// twice as long, up to `longest`. After `attempts` attempts the occurrence is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    pub(super) attempts: u32,
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

impl Retry {
    /// One attempt: a failed run is a dead letter.
    pub const NEVER: Self =
        Self { attempts: 1, first: Duration::from_secs(1), longest: Duration::from_secs(3_600) };

    /// Up to `attempts` attempts in all (at least 1). The second begins after `first` (at least 1
    /// ms).
    pub const fn up_to(attempts: u32, first: Duration) -> Self {
        Self { attempts, first, longest: Duration::from_secs(3_600) }
    }

    /// Sets the longest wait between attempts. Default: 1 h.
    #[must_use]
    pub const fn at_most_every(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// `true` if an occurrence has used up its attempts without a result of a run: those of the
    /// policy and `extra` more.
    pub(crate) fn is_exhausted(&self, attempts: u32, extra: u32) -> bool {
        attempts >= self.attempts.saturating_add(extra)
    }

    /// The wait after this many attempts; `None` if they are used up.
    pub(crate) fn after(&self, attempts: u32) -> Option<Duration> {
        if attempts >= self.attempts {
            return None;
        }
        let doublings = attempts.saturating_sub(1).min(31);
        Some(self.first.saturating_mul(1 << doublings).min(self.longest))
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::NEVER
    }
}

/// The lateness from which [`CatchUp::None`] counts an occurrence as missed, unless a window is
/// given. It is longer than two poll intervals.
const MISSED_AFTER: Duration = Duration::from_secs(10);

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Settings {
    /// The nominal time `at` with its due time: `at`, the delay, and the jitter derived from the
    /// job's name. `None` past the year 9999.
    pub fn next(&self, name: &str, at: Time) -> Option<NextRun> {
        self.next_moved(name, at, at)
    }

    /// As [`next`](Self::next), for an occurrence that its schedule [moves](crate::Schedule::moved) to
    /// the instant `to`.
    pub(crate) fn next_moved(&self, name: &str, at: Time, to: Time) -> Option<NextRun> {
        let shift = self.delay.checked_add(jitter(name, at, self.jitter))?;
        Some(NextRun { scheduled_at: at, due_at: checked_add(to, shift)? })
    }

    /// The time to pass to `next_at` for the first occurrence after `after` that the start allows: the
    /// start itself, if it is an occurrence. The result of `next_at` is later than its argument, so the
    /// millisecond before the start is passed. A schedule that counts from its argument would be off by
    /// that millisecond; it gets the occurrence that would precede the start.
    pub(crate) fn begin(&self, after: Time, next_at: impl Fn(Time) -> Option<Time>) -> Time {
        let Some(start) = self.start.filter(|start| *start > after) else { return after };
        let before = start.checked_sub_signed(TimeDelta::milliseconds(1)).unwrap_or(start);
        let (first, next) = (next_at(before), next_at(start));
        if first == Some(start) {
            return before;
        }
        let Some((first, next)) = first.zip(next).filter(|(first, next)| first != next) else {
            return start;
        };
        let period = (first - before).min(next - start).max(TimeDelta::zero());
        let mut at = start.checked_sub_signed(period).unwrap_or(start);
        // A calendar may have lengthened the period.
        for _ in 0..1_000 {
            match next_at(at) {
                Some(later) if later > at && later < start => at = later,
                _ => break,
            }
        }
        at
    }

    /// The largest lateness at which an occurrence is run.
    pub(crate) fn late_by_at_most(&self) -> Option<Duration> {
        match self.catch_up {
            CatchUp::None => Some(self.window.unwrap_or(MISSED_AFTER)),
            CatchUp::Latest | CatchUp::All { .. } => self.window,
        }
    }

    /// Rejects settings that a job cannot have. It is called when a job is added, and by code that
    /// reads settings from a file.
    ///
    /// # Errors
    /// `Invalid` if a setting is out of range or contradicts another one.
    pub fn check(&self) -> Result {
        let wrong = |what: &str| Err(Error::invalid(what.to_owned()));
        if let Delivery::AtLeastOnce { lease } = self.delivery {
            if !(SECOND..=DAY).contains(&lease) {
                return wrong("the lease is out of range; use 1 s to 24 h");
            }
            if self.overlap != Overlap::Allow {
                return wrong(
                    "at-least-once runs of a job never overlap: leave `overlap` away; what passes \
                     meanwhile is the catch-up policy's (`None` skips, `Latest` and `All` wait)",
                );
            }
        } else if self.retry.attempts > 1 {
            return wrong(
                "an at-most-once job has a retry policy; make it at least once, with a lease",
            );
        }
        if self.retry.attempts == 0 || self.retry.first < Duration::from_millis(1) {
            return wrong("a retry policy has at least 1 attempt, and at least 1 ms between them");
        }
        if let CatchUp::All { limit } = self.catch_up
            && !(1..=10_000).contains(&limit)
        {
            return wrong("catch-up of all has a limit from 1 to 10 000; to run none, use none");
        }
        if let Some(key) = &self.concurrency_key {
            key.check()?;
        } else if self.max_key_wait.is_some() {
            return wrong(
                "the longest wait for a key (max-key-wait) needs a concurrency key; add one",
            );
        }
        if let Some(breaker) = &self.breaker {
            breaker.check()?;
        }
        if let Some(alert) = &self.alert {
            alert.check()?;
        }
        if let Some(history) = &self.history {
            history.check()?;
        }
        if let Some(After { job, .. }) = &self.after {
            check_name(job).map_err(|error| error.within("the job before (after)"))?;
            if job.contains(';') {
                return wrong(&format!(
                    "no text can say that a job runs after {job:?}, because of the semicolon; rename that job"
                ));
            }
            if self.placement == Placement::EveryNode {
                return wrong(
                    "a job that runs on every node cannot run after another one (after), because the \
                     store has no record of it; let it run on one node",
                );
            }
        }
        if let Some(owner) = &self.owner {
            check_word("owner", owner)?;
        }
        self.tags.iter().try_for_each(|tag| check_word("tag", tag))?;
        if self.max_runs == Some(0) {
            return wrong(
                "the number of runs (max-runs) is 0; use at least 1, or do not add the job",
            );
        }
        if let (Some(start), Some(end)) = (self.start, self.end)
            && end < start
        {
            return wrong("the job ends before it starts; use an end that is not before the start");
        }
        let whole = |duration: Duration| duration.subsec_nanos().is_multiple_of(1_000_000);
        for (name, duration) in [
            ("window", self.window),
            ("max_key_wait", self.max_key_wait),
            ("timeout", self.timeout),
            ("delay", Some(self.delay)),
            ("jitter", Some(self.jitter)),
        ] {
            let Some(duration) = duration else { continue };
            let can_be_zero = matches!(name, "delay" | "jitter");
            if !whole(duration) || (duration.is_zero() && !can_be_zero) {
                return wrong(&format!("`{name}` is a whole number of milliseconds, at least 1"));
            }
            if duration > 366 * DAY {
                return wrong(&format!("`{name}` is at most 366 days"));
            }
        }
        Ok(())
    }

    /// The warnings about settings that are legal and seldom intended. `period`: the time between two
    /// scheduled times.
    pub(crate) fn warnings(&self, period: Option<Duration>) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let Retry { attempts, first, longest } = self.retry;
        if attempts > 1 && first > longest {
            let message = format!(
                "the first wait between attempts is {first:?}, and the longest is {longest:?}: each wait is \
                 {longest:?}; set a longer one by `at_most_every`"
            );
            warnings.push(Warning::new("retry-wait", message));
        }
        if let Some(period) = period.filter(|period| self.jitter > *period) {
            let jitter = self.jitter;
            let message = format!(
                "the jitter is up to {jitter:?}, and {period:?} is between two scheduled times: a later \
                 occurrence may be due before an earlier one, which is then missed; use a shorter jitter"
            );
            warnings.push(Warning::new("long-jitter", message));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASED: Delivery = Delivery::AtLeastOnce { lease: Duration::from_secs(30) };
    const MS: Duration = Duration::from_millis(1);

    /// Checks the error for the default settings with this change; empty: no error.
    #[track_caller]
    fn check(change: impl FnOnce(&mut Settings), says: &str) {
        let mut settings = Settings::default();
        change(&mut settings);
        let said = settings.check().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains(says) && said.is_empty() == says.is_empty(), "{said:?}");
    }

    #[test]
    fn sensible_settings_are_accepted() {
        check(|_| {}, "");
        check(|s| s.delivery = LEASED, "");
        check(|s| (s.delivery, s.retry) = (LEASED, Retry::up_to(u32::MAX, MS)), "");
        check(|s| s.window = Some(MS), "");
        check(|s| s.jitter = 366 * DAY, "");
        check(|s| s.catch_up = CatchUp::All { limit: 10_000 }, "");
        check(|s| s.max_runs = Some(u64::MAX), "");
        check(|s| s.concurrency_key = Some(ConcurrencyKey::new("x".repeat(200), 1)), "");
    }

    #[test]
    fn a_wait_for_a_key_needs_one() {
        let key = || Some(ConcurrencyKey::new("k", 2));
        check(|s| s.max_key_wait = Some(SECOND), "needs a concurrency key");
        check(|s| (s.concurrency_key, s.max_key_wait) = (key(), Some(SECOND)), "");
        check(|s| (s.concurrency_key, s.max_key_wait) = (key(), Some(Duration::ZERO)), "whole");
        check(|s| (s.concurrency_key, s.placement) = (key(), Placement::EveryNode), "");
        check(|s| s.concurrency_key = Some(ConcurrencyKey::new("k", 0)), "limit 0");
    }

    #[test]
    fn leases_have_a_least_and_a_longest_length() {
        for (lease, says) in [(SECOND, ""), (DAY, ""), (SECOND - MS, "1 s to 24 h")] {
            check(|s| s.delivery = Delivery::AtLeastOnce { lease }, says);
        }
        check(|s| s.delivery = Delivery::AtLeastOnce { lease: Duration::MAX }, "1 s to 24 h");
        check(|s| s.delivery = Delivery::AtLeastOnce { lease: Duration::ZERO }, "1 s to 24 h");
    }

    #[test]
    fn contradicting_settings_are_refused() {
        check(|s| (s.delivery, s.overlap) = (LEASED, Overlap::Skip), "never overlap");
        check(|s| s.retry = Retry::up_to(2, SECOND), "at least once");
        let (start, end) = (Time::UNIX_EPOCH + SECOND, Time::UNIX_EPOCH);
        check(|s| (s.start, s.end) = (Some(start), Some(end)), "ends before it starts");
        check(|s| (s.start, s.end) = (Some(start), Some(start)), "");
    }

    #[test]
    fn numbers_that_mean_nothing_are_refused() {
        check(|s| s.max_runs = Some(0), "at least 1");
        check(|s| s.catch_up = CatchUp::All { limit: 0 }, "1 to 10 000");
        check(|s| s.catch_up = CatchUp::All { limit: 10_001 }, "1 to 10 000");
        check(|s| (s.delivery, s.retry) = (LEASED, Retry::up_to(0, SECOND)), "at least 1 attempt");
        check(|s| (s.delivery, s.retry) = (LEASED, Retry::up_to(2, Duration::ZERO)), "at least 1");
    }

    #[test]
    fn durations_are_whole_milliseconds_and_not_endless() {
        let nano = Duration::from_nanos(1);
        for bad in [Duration::ZERO, nano, MS + nano] {
            check(|s| s.window = Some(bad), "`window` is a whole number");
            check(|s| s.timeout = Some(bad), "`timeout` is a whole number");
        }
        check(|s| s.delay = nano, "`delay` is a whole number");
        for bad in [366 * DAY + MS, Duration::from_secs(u64::MAX)] {
            check(|s| s.window = Some(bad), "at most 366 days");
            check(|s| s.jitter = bad, "at most 366 days");
        }
    }

    #[test]
    fn waits_between_attempts_double_up_to_the_longest() {
        let retry = Retry::up_to(u32::MAX, SECOND).at_most_every(Duration::from_secs(100));
        let waits = [1, 2, 3, 7, 8, 64, u32::MAX - 1].map(|n| retry.after(n).unwrap().as_secs());
        assert_eq!(waits, [1, 2, 4, 64, 100, 100, 100]);
        assert_eq!(retry.after(u32::MAX), None);
        assert_eq!(Retry::NEVER.after(1), None);
        assert_eq!(Retry::up_to(u32::MAX, Duration::MAX).after(64), Some(Retry::NEVER.longest));
    }
}
