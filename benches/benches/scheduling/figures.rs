//! The measured figures: firings, lateness, processor time, memory.

use crate::load::{Load, measured};
use allora_benches::process::{cpu, memory};
use std::{
    fmt,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant, SystemTime},
};

/// The number of firings for each lateness in hundredths of a millisecond, up to two seconds.
static LATE: [AtomicU32; 200_000] = [const { AtomicU32::new(0) }; 200_000];

/// Notes a firing that was due at `due`.
pub(crate) fn fired(due: SystemTime) {
    let late = SystemTime::now().duration_since(due).unwrap_or_default();
    let bucket = (late.as_micros() / 10) as usize;
    LATE[bucket.min(LATE.len() - 1)].fetch_add(1, Ordering::Relaxed);
}

/// The process before and while it is measured.
pub(crate) struct Probe {
    load: Load,
    jobs: usize,
    memory: u64,
    begun: Instant,
}

impl Probe {
    /// Before the jobs are made.
    pub(crate) fn before_adding(load: Load, jobs: usize) -> Self {
        Self { load, jobs, memory: memory(), begun: Instant::now() }
    }

    /// When they are added: answers with what measures the time that follows.
    pub(crate) fn added(self) -> Measuring {
        let added = self.begun.elapsed();
        Measuring { probe: self, added }
    }
}

pub(crate) struct Measuring {
    probe: Probe,
    added: Duration,
}

impl Measuring {
    /// Measures whole periods, from half a second before an instant, with the first seconds left out.
    pub(crate) async fn measure(self) -> Figures {
        // Jobs are due for the first time one period after the instant that follows their making.
        let warm_up = self.probe.load.grid().max(2);
        tokio::time::sleep(Duration::from_secs(warm_up)).await;
        if self.probe.load == Load::Idle {
            registered().await;
        }
        let half = Duration::from_millis(500);
        let begin = self.probe.load.next_begin();
        let wait = begin.duration_since(SystemTime::now()).unwrap_or_default();
        let wait = wait
            .checked_sub(half)
            .unwrap_or(wait + Duration::from_secs(self.probe.load.grid()) - half);
        tokio::time::sleep(wait).await;
        LATE.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
        let (cpu_before, measured) = (cpu(), measured());
        tokio::time::sleep(measured).await;
        let cpu = (cpu() - cpu_before).as_secs_f64() / measured.as_secs_f64();
        let late: Vec<u32> = LATE.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let Probe { load, jobs, memory: before, .. } = self.probe;
        let expected = jobs as u64 * (measured.as_secs() / load.period().as_secs());
        let per_job = memory().saturating_sub(before) / jobs as u64;
        Figures { expected, late, cpu, per_job, added: self.added }
    }
}

/// Waits until the memory does not grow any more: a million jobs are registered in some seconds, on a
/// busy machine in a minute.
///
/// # Panics
/// If that takes too long.
async fn registered() {
    const LONGEST: Duration = Duration::from_secs(300);
    let begun = Instant::now();
    loop {
        let before = memory();
        tokio::time::sleep(Duration::from_secs(3)).await;
        if memory() <= before + before / 1_000 {
            return;
        }
        assert!(begun.elapsed() < LONGEST, "the jobs were not registered in {LONGEST:?}");
    }
}

pub(crate) struct Figures {
    expected: u64,
    late: Vec<u32>,
    cpu: f64,
    per_job: u64,
    added: Duration,
}

impl Figures {
    pub(crate) const HEADER: &str =
        "fired | late p50 ms | late p99 ms | late max ms | CPU s/s | bytes a job | added in s";

    fn fired(&self) -> u64 {
        self.late.iter().map(|n| u64::from(*n)).sum()
    }

    /// One line of JSON.
    ///
    /// # Panics
    /// If not all jobs fired as often as they were due, but for a hundredth, which may be late at the
    /// begin or the end of the measurement.
    pub(crate) fn json(&self) -> String {
        let (fired, expected, bytes) = (self.fired(), self.expected, self.per_job);
        assert!(fired.abs_diff(expected) <= expected / 100, "{fired} of {expected} firings");
        if expected == 0 {
            return format!(r#"{{"bytes_per_job":{bytes}}}"#);
        }
        let (p50, p99) = (self.late(0.5), self.late(0.99));
        let cpu_us = self.cpu * 1e6 * measured().as_secs_f64() / expected as f64;
        format!(r#"{{"p50_ms":{p50},"p99_ms":{p99},"cpu_us":{cpu_us},"bytes_per_job":{bytes}}}"#)
    }

    fn late(&self, part: f64) -> f64 {
        let rank = (self.fired() as f64 * part).ceil() as u64;
        let mut seen = 0;
        let bucket = self.late.iter().position(|n| {
            seen += u64::from(*n);
            seen >= rank
        });
        bucket.unwrap_or(0) as f64 / 100.0
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fired = self.fired();
        if self.expected == 0 {
            write!(f, "– | – | – | – |")?;
        } else {
            let percent = fired as f64 * 100.0 / self.expected as f64;
            let (p50, p99, max) = (self.late(0.5), self.late(0.99), self.late(1.0));
            write!(f, "{percent:.1} % | {p50:.2} | {p99:.2} | {max:.2} |")?;
        }
        write!(f, " {:.4} | {} | {:.2}", self.cpu, self.per_job, self.added.as_secs_f64())
    }
}
