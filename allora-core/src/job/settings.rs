//! The settings of a job, and their text.

use crate::{
    backend::Next,
    error::{Error, Result},
    name::check_group,
    schedule::spread_of,
    time::{Time, checked_add},
};
use chrono::TimeDelta;
use std::{fmt::Write, sync::Arc, time::Duration};

/// Everything about a job beside its schedule and its work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// At most once or at least once.
    pub delivery: Delivery,
    /// What becomes of instants that passed while nobody looked.
    pub catch_up: CatchUp,
    /// An instant later than this is recorded as missed.
    pub window: Option<Duration>,
    /// What becomes of an occurrence while the one before still runs.
    pub overlap: Overlap,
    /// When a failed run is tried again.
    pub retry: Retry,
    /// A run is dropped after so long.
    pub timeout: Option<Duration>,
    /// Runs so long after the scheduled time.
    pub delay: Duration,
    /// Runs at a time between 0 and so long after that.
    pub spread: Duration,
    /// No occurrence before this instant.
    pub start: Option<Time>,
    /// No occurrence after this instant.
    pub end: Option<Time>,
    /// At most so many occurrences.
    pub max_runs: Option<u64>,
    /// Runs one at a time with all jobs of this group.
    pub mutex: Option<Arc<str>>,
    /// On one node or on every node.
    pub placement: Placement,
    /// The version that the user's build declares.
    pub version: u64,
}

/// How an occurrence is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// The cursor moves before the run starts: never twice; a run whose node dies is lost, and
    /// recorded as lost.
    #[default]
    AtMostOnce,
    /// The cursor moves when the run has ended: a run whose node dies is run again.
    AtLeastOnce {
        /// How long a silent node keeps its occurrence.
        lease: Duration,
    },
}

/// What becomes of instants that passed while nobody looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatchUp {
    /// The latest of them is run, the others are recorded as missed.
    #[default]
    Latest,
    /// The last `limit` of them are run, in order; earlier ones are recorded as missed.
    All {
        /// 1 to 10 000.
        limit: u32,
    },
    /// All of them are recorded as missed. An instant counts as passed when it is later than the
    /// [window](Settings::window), 10 s unless given.
    None,
}

/// What becomes of an at-most-once occurrence while the one before still runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// It runs beside it, up to [`MAX_HOLDS`](crate::record::MAX_HOLDS) at once.
    #[default]
    Allow,
    /// It is passed over, and recorded as skipped.
    Skip,
    /// It waits; the catch-up policy decides which of those that passed meanwhile is run.
    Wait,
}

/// Where a job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Each occurrence on one node.
    #[default]
    OneNode,
    /// Each occurrence on every node.
    EveryNode,
}

/// When a failed at-least-once run is tried again: after `first`, then after twice as long each
/// time, up to `longest`; after `attempts` attempts it is recorded as a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    attempts: u32,
    first: Duration,
    longest: Duration,
}

impl Retry {
    /// One attempt: a failed run is a dead letter.
    pub const NEVER: Self =
        Self { attempts: 1, first: Duration::from_secs(1), longest: Duration::from_secs(3_600) };

    /// Up to `attempts` attempts in all (at least 1), the second after `first` (at least 1 ms).
    pub const fn up_to(attempts: u32, first: Duration) -> Self {
        Self { attempts, first, longest: Duration::from_secs(3_600) }
    }

    /// Never waits longer than this between attempts; an hour unless given.
    #[must_use]
    pub const fn at_most_every(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// How long to wait after this many attempts; `None` if they are used up.
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

/// What [`CatchUp::None`] takes for late, unless a window is given: more than two safety polls.
const PASSED: Duration = Duration::from_secs(10);

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Settings {
    /// When the occurrence of `at` is due: delayed, and spread by the job's name; `None` past the
    /// year 9999.
    pub fn next(&self, name: &str, at: Time) -> Option<Next> {
        let shift = self.delay.checked_add(spread_of(name, at, self.spread))?;
        Some(Next { at, due_at: checked_add(at, shift)? })
    }

    /// From where to ask for the first instant after `after` that the start allows. Strictly later
    /// than the millisecond before the start lets the start itself in; a schedule that counts from
    /// what it is asked counts from the start, or it would be off by that millisecond.
    pub(crate) fn begin(&self, after: Time, next_at: impl FnOnce(Time) -> Option<Time>) -> Time {
        let Some(start) = self.start.filter(|start| *start > after) else { return after };
        let before = start.checked_sub_signed(TimeDelta::milliseconds(1)).unwrap_or(start);
        if next_at(before) == Some(start) { before } else { start }
    }

    /// How late an instant may be run.
    pub(crate) fn late_by_at_most(&self) -> Option<Duration> {
        match self.catch_up {
            CatchUp::None => Some(self.window.unwrap_or(PASSED)),
            CatchUp::Latest | CatchUp::All { .. } => self.window,
        }
    }

    /// Refuses what a job cannot have: asked when a job is added, and by those who read settings
    /// from a file before.
    ///
    /// # Errors
    /// `Invalid`: what contradicts itself or is out of range.
    pub fn check(&self) -> Result {
        let wrong = |what: &str| Err(Error::invalid(what.to_owned()));
        if let Delivery::AtLeastOnce { lease } = self.delivery {
            if !(SECOND..=DAY).contains(&lease) {
                return wrong("a lease lasts from 1 s to 24 h");
            }
            if self.overlap != Overlap::Allow {
                return wrong(
                    "at-least-once runs of a job never overlap: leave `overlap` away; what passes \
                     meanwhile is the catch-up policy's (`None` skips, `Latest` and `All` wait)",
                );
            }
        } else if self.retry.attempts > 1 {
            return wrong("only at-least-once jobs are tried again: add `at_least_once(lease)`");
        }
        if self.retry.attempts == 0 || self.retry.first < Duration::from_millis(1) {
            return wrong("a retry policy has at least 1 attempt, and at least 1 ms between them");
        }
        if let CatchUp::All { limit } = self.catch_up
            && !(1..=10_000).contains(&limit)
        {
            return wrong("`CatchUp::All` has a limit from 1 to 10 000; `CatchUp::None` runs none");
        }
        if let Some(group) = &self.mutex {
            check_group(group)?;
        }
        if self.max_runs == Some(0) {
            return wrong("`max_runs` is at least 1; a job that never runs need not be added");
        }
        if let (Some(start), Some(end)) = (self.start, self.end)
            && end < start
        {
            return wrong("the job ends before it starts");
        }
        let whole = |duration: Duration| duration.subsec_nanos().is_multiple_of(1_000_000);
        for (name, duration) in [
            ("window", self.window),
            ("timeout", self.timeout),
            ("delay", Some(self.delay)),
            ("spread", Some(self.spread)),
        ] {
            let Some(duration) = duration else { continue };
            let can_be_zero = matches!(name, "delay" | "spread");
            if !whole(duration) || (duration.is_zero() && !can_be_zero) {
                return wrong(&format!("`{name}` is a whole number of milliseconds, at least 1"));
            }
            if duration > 366 * DAY {
                return wrong(&format!("`{name}` is at most 366 days"));
            }
        }
        Ok(())
    }

    /// The text of a job with this schedule: what differs from the defaults, in a fixed order.
    /// Time-outs are not in it: they concern the running node only.
    pub fn definition(&self, schedule: &str) -> String {
        let shared = Self { timeout: None, ..self.clone() };
        let mut text = schedule.to_owned();
        shared.words().iter().for_each(|word| {
            let _ = write!(text, "; {word}");
        });
        text
    }

    /// What differs from the defaults, in a fixed order, each as its name and its value.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Delivery::AtLeastOnce { lease } = self.delivery {
            words.push(format!("at-least-once {}", millis(lease)));
        }
        match self.catch_up {
            CatchUp::Latest => {}
            CatchUp::All { limit } => words.push(format!("catch-up all {limit}")),
            CatchUp::None => words.push("catch-up none".to_owned()),
        }
        if let Some(window) = self.window {
            words.push(format!("window {}", millis(window)));
        }
        match self.overlap {
            Overlap::Allow => {}
            Overlap::Skip => words.push("overlap skip".to_owned()),
            Overlap::Wait => words.push("overlap wait".to_owned()),
        }
        if self.retry != Retry::NEVER {
            let Retry { attempts, first, longest } = self.retry;
            words.push(format!("retry {attempts} {} {}", millis(first), millis(longest)));
        }
        if !self.delay.is_zero() {
            words.push(format!("delay {}", millis(self.delay)));
        }
        if !self.spread.is_zero() {
            words.push(format!("spread {}", millis(self.spread)));
        }
        for (name, bound) in [("start", self.start), ("end", self.end)] {
            if let Some(bound) = bound {
                let bound = bound.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
                words.push(format!("{name} {bound}"));
            }
        }
        if let Some(runs) = self.max_runs {
            words.push(format!("max-runs {runs}"));
        }
        if let Some(group) = &self.mutex {
            words.push(format!("mutex {group}"));
        }
        if let Some(timeout) = self.timeout {
            words.push(format!("timeout {}", millis(timeout)));
        }
        words
    }
}

fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASED: Delivery = Delivery::AtLeastOnce { lease: Duration::from_secs(30) };
    const MS: Duration = Duration::from_millis(1);

    /// What is said about the default settings with this change; empty: nothing.
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
        check(|s| s.spread = 366 * DAY, "");
        check(|s| s.catch_up = CatchUp::All { limit: 10_000 }, "");
        check(|s| s.max_runs = Some(u64::MAX), "");
        check(|s| s.mutex = Some("x".repeat(187).into()), "");
    }

    #[test]
    fn a_mutex_group_is_one_word() {
        for bad in ["", "a b", "a;b", &"x".repeat(188)] {
            assert!(Settings { mutex: Some(bad.into()), ..Settings::default() }.check().is_err());
        }
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
    fn what_contradicts_itself_is_refused() {
        check(|s| (s.delivery, s.overlap) = (LEASED, Overlap::Skip), "never overlap");
        check(|s| s.retry = Retry::up_to(2, SECOND), "at_least_once");
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
            check(|s| s.spread = bad, "at most 366 days");
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
