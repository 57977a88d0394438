//! The loads of the schedulers.

use std::{sync::OnceLock, time::Duration};

/// When jobs are due.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// Every second, each at a millisecond of its own.
    Spread,
    /// Every second, all at the same instant.
    AtOnce,
    /// Once a year.
    Idle,
}

/// The duration of this process' measurements, if it is not that of [`measured`].
pub(crate) static MEASURED: OnceLock<Duration> = OnceLock::new();

/// The duration of a measurement. Default: 10 s.
pub(crate) fn measured() -> Duration {
    *MEASURED.get_or_init(|| Duration::from_secs(10))
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
            Load::AtOnce => "### Every job every second, all at the same instant",
            Load::Idle => "### Every job once a year",
        }
    }

    pub(crate) fn period(self) -> Duration {
        match self {
            Load::Idle => Duration::from_secs(365 * 24 * 60 * 60),
            _ => Duration::from_secs(1),
        }
    }

    /// The time from the full second until the `n`th of so many jobs is due.
    pub(crate) fn phase(self, n: usize, jobs: usize) -> Duration {
        match self {
            Load::Spread => Duration::from_millis((n * 1_000 / jobs) as u64),
            _ => Duration::ZERO,
        }
    }
}
