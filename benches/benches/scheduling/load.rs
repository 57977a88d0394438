//! The loads of the schedulers.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime},
};

/// When jobs are due.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// Every second, each at a millisecond of its own.
    Spread,
    /// Every four seconds, all at the same instant.
    AtOnce,
    /// Once a year.
    Idle,
}

/// The duration of this process' measurements, if it is not that of [`measured`].
pub(crate) static MEASURED: OnceLock<Duration> = OnceLock::new();

/// The duration of a measurement, a multiple of the period. Default: 12 s.
pub(crate) fn measured() -> Duration {
    *MEASURED.get_or_init(|| Duration::from_secs(12))
}

impl Load {
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Load::Spread, Load::AtOnce, Load::Idle].into_iter().find(|load| load.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Load::Spread => "spread",
            Load::AtOnce => "at-once",
            Load::Idle => "idle",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Load::Spread => "### Every job every second, spread over the second",
            Load::AtOnce => "### Every job every four seconds, all at the same instant",
            Load::Idle => "### Every job once a year",
        }
    }

    pub(crate) fn period(self) -> Duration {
        match self {
            Load::Idle => Duration::from_secs(365 * 24 * 60 * 60),
            // The work of one instant ends before the next one.
            Load::AtOnce => Duration::from_secs(4),
            Load::Spread => Duration::from_secs(1),
        }
    }

    /// The seconds between two instants at which jobs may begin.
    pub(crate) fn grid(self) -> u64 {
        if self == Load::AtOnce { self.period().as_secs() } else { 1 }
    }

    /// The next instant at which jobs may begin: a multiple of the grid.
    pub(crate) fn next_begin(self) -> SystemTime {
        let grid = self.grid();
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        SystemTime::UNIX_EPOCH + Duration::from_secs((now / grid + 1) * grid)
    }

    /// The time from the full second until the `n`th of so many jobs is due.
    pub(crate) fn phase(self, n: usize, jobs: usize) -> Duration {
        match self {
            Load::Spread => Duration::from_millis((n * 1_000 / jobs) as u64),
            _ => Duration::ZERO,
        }
    }
}
