//! The jobs that the nodes of one test share, of each delivery as many, and what was written down of
//! them.

use super::{Log, RecordingBackend, wall};
use crate::history::{self, Claims, Event, Invariant, Violation, What, check};
use allora_core::{
    Backend, CatchUp, Run, Runtime, Scheduler, SchedulerBuilder, backend::HistoryEntry, every, job,
};
use std::{
    collections::HashSet,
    fs::{self, File},
    io::BufReader,
    path::{Path, PathBuf},
    time::Duration,
};

/// The job that runs at least once.
pub const LEAST: &str = "at-least-once";

/// The job that runs at most once.
pub const ONCE: &str = "at-most-once";

/// The jobs that the nodes of one test run, and the files that they write.
#[derive(Clone, Debug)]
pub struct FaultWorkload {
    path: PathBuf,
    period: Duration,
    pairs: usize,
}

impl FaultWorkload {
    /// In this file and one beside it, of two jobs with so long between two occurrences.
    pub fn new(path: impl Into<PathBuf>, period: Duration) -> Self {
        Self { path: path.into(), period, pairs: 1 }
    }

    /// Sets the number of jobs of each delivery. Default: 1.
    #[must_use]
    pub fn pairs(mut self, pairs: usize) -> Self {
        self.pairs = pairs;
        self
    }

    /// The names of the jobs: [`LEAST`], [`ONCE`], and these with a number behind them.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let numbered =
            (1..self.pairs).flat_map(|i| [format!("{LEAST}-{i}"), format!("{ONCE}-{i}")]);
        [LEAST.to_owned(), ONCE.to_owned()].into_iter().chain(numbered)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The time between two occurrences of a job.
    pub fn period(&self) -> Duration {
        self.period
    }

    fn reports_path(&self) -> PathBuf {
        self.path.with_extension("reports")
    }

    /// A scheduler of all jobs that writes down what it does. Their runs take `work`, and are
    /// believed to live for `lease`.
    pub fn scheduler(
        &self,
        store: impl Backend,
        runtime: impl Runtime + Clone,
        lease: Duration,
        work: Duration,
    ) -> SchedulerBuilder {
        let (log, reports) = (Log::append(&self.path), Log::append(&self.reports_path()));
        let work = {
            let (log, runtime) = (log.clone(), runtime.clone());
            async move |run: Run| {
                let occurrence = run.scheduled_at().timestamp_millis();
                let what = What::Start { occurrence, fence: run.fence() };
                log.write(run.name(), run.node(), wall(), what);
                runtime.sleep_until(runtime.now() + work).await;
            }
        };
        let all = CatchUp::All { limit: 1_000 };
        let builder = Scheduler::builder(RecordingBackend::new(store, log))
            .runtime(runtime)
            .lost_after(lease)
            .poll_interval(Duration::from_millis(500))
            .on_event(move |event| reports.report(event));
        self.names().zip(0..).fold(builder, |builder, (name, number): (_, u32)| {
            // Spread over the period, so that a fault at any time meets some runs.
            let pairs = u32::try_from(self.pairs).unwrap_or(u32::MAX).max(1);
            let spread = every(self.period).phase(self.period / pairs * (number / 2));
            let one = job(spread, work.clone()).catch_up(all);
            let one = if is_once(&name) { one } else { one.at_least_once(lease) };
            builder.add(name, one)
        })
    }

    /// The events written so far.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn log(&self) -> Vec<Event> {
        match File::open(&self.path) {
            Ok(file) => history::read(BufReader::new(file)).unwrap(),
            Err(_) => Vec::new(),
        }
    }

    /// Number of lines with `word` in them that nodes wrote about themselves.
    pub fn reported(&self, word: &str) -> usize {
        let reports = fs::read_to_string(self.reports_path()).unwrap_or_default();
        reports.lines().filter(|line| line.contains(word)).count()
    }

    /// The runs of a job that were started so far, with their fences, and the fences of those that
    /// were ended.
    pub fn runs(&self, job: &str) -> (Vec<(i64, i64)>, HashSet<i64>) {
        let (mut started, mut ended) = (Vec::new(), HashSet::new());
        for event in self.log().iter().filter(|event| event.job == job) {
            match event.what {
                What::Start { occurrence, fence } => started.push((occurrence, fence)),
                What::End { fence, .. } => drop(ended.insert(fence)),
                _ => {}
            }
        }
        (started, ended)
    }

    /// Number of runs of a job that have ended so far.
    pub fn ends(&self, job: &str) -> usize {
        let ended = |event: &&Event| event.job == job && matches!(event.what, What::End { .. });
        self.log().iter().filter(ended).count()
    }

    /// The first take of this occurrence of the job at least once that is not the first attempt.
    pub fn taken_over(&self, occurrence: i64) -> Option<(Event, Claims)> {
        let log = self.log();
        let mut again = claims(&log)
            .filter(|(event, claims)| event.job == LEAST && claims.occurrence == occurrence)
            .filter(|(_, claims)| claims.attempt > 1);
        again.next().map(|(event, claims)| (event.clone(), claims))
    }

    /// The last occurrence of a job that was taken.
    ///
    /// # Panics
    /// If none was, or none was started.
    pub fn last_claimed(&self, job: &str, past: &[HistoryEntry]) -> i64 {
        let log = merged(&self.log(), job, past);
        assert!(log.iter().any(|event| matches!(event.what, What::Start { .. })), "{job}");
        claims(&log).map(|(_, claims)| claims.occurrence).max().unwrap()
    }

    /// The violations in the log of a job, whatever its store has recorded.
    pub fn violations_in_log(&self, log: &[Event], job: &str) -> Vec<Violation> {
        self.checked(log, job, &[], None)
    }

    /// The violations for a job: every nominal instant up to this one must have run correctly, or
    /// be recorded as lost, missed or skipped. The history must have been read before the log: nodes had then
    /// written every event that it contains.
    pub fn violations(
        &self,
        log: &[Event],
        job: &str,
        past: &[HistoryEntry],
        until: i64,
    ) -> Vec<Violation> {
        self.checked(log, job, past, Some(until))
    }

    fn checked(
        &self,
        log: &[Event],
        job: &str,
        past: &[HistoryEntry],
        until: Option<i64>,
    ) -> Vec<Violation> {
        let period = i64::try_from(self.period.as_millis()).unwrap();
        let following = |_: &str, at| Some(at + period);
        let law = Invariant::new(&following);
        let law = if let Some(until) = until { law.until(until).completed() } else { law };
        let law = if is_once(job) { law.at_most_once() } else { law };
        check(&merged(log, job, past), &law)
    }
}

/// The job runs at most once.
pub fn is_once(job: &str) -> bool {
    job.starts_with(ONCE)
}

/// The events that nodes wrote about a job, and those that only the store's history has.
fn merged(log: &[Event], job: &str, past: &[HistoryEntry]) -> Vec<Event> {
    let mut log: Vec<Event> = log.iter().filter(|event| event.job == job).cloned().collect();
    log.extend(history::merge_store_history(&log, job, past));
    log
}

/// The takes in a log, with their events.
pub fn claims(log: &[Event]) -> impl Iterator<Item = (&Event, Claims)> {
    log.iter().filter_map(|event| match event.what {
        What::Claim(claims) => Some((event, claims)),
        _ => None,
    })
}
