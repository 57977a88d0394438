//! The jobs that the nodes of one test share, of each delivery as many, and what was written down of
//! them.

use super::{Acknowledged, Log, RecordingBackend, mixed, wall};
use crate::history::{self, Claims, Event, Invariant, Violation, What, booked, check};
use allora_core::{
    Backend, CatchUp, Result, Run, Runtime, Scheduler, SchedulerBuilder, Schedules,
    backend::HistoryEntry, every, job, schedule::Every,
};
use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, File},
    io::BufReader,
    path::{Path, PathBuf},
    time::Duration,
};

/// The job that runs at least once.
pub const LEAST: &str = "at-least-once";

/// The job that runs at most once.
pub const ONCE: &str = "at-most-once";

/// The largest number of instants in a period at which jobs are due: closer to each other than runs are long.
const INSTANTS: u32 = 4;

/// The jobs that the nodes of one test run, and the files that they write.
#[derive(Clone, Debug)]
pub struct FaultWorkload {
    path: PathBuf,
    period: Duration,
    pairs: usize,
    is_mixed: bool,
    release: u32,
}

impl FaultWorkload {
    /// In this file and one beside it, of two jobs with so long between two occurrences.
    pub fn new(path: impl Into<PathBuf>, period: Duration) -> Self {
        Self { path: path.into(), period, pairs: 1, is_mixed: false, release: 0 }
    }

    /// Sets the number of jobs of each delivery. Default: 1.
    #[must_use]
    pub fn pairs(mut self, pairs: usize) -> Self {
        self.pairs = pairs;
        self
    }

    /// Adds jobs of other kinds, and makes every second pair stored schedules: for stores that keep these. The
    /// [store](Self::store) must have them.
    #[must_use]
    pub fn mixed(mut self) -> Self {
        self.is_mixed = true;
        self
    }

    /// Sets the number of the release whose code these jobs are: each has other definitions. Default: 0.
    #[must_use]
    pub fn release(mut self, release: u32) -> Self {
        self.release = release;
        self
    }

    /// There are jobs of other kinds.
    pub fn is_mixed(&self) -> bool {
        self.is_mixed
    }

    /// Adds what is stored to a new store, or to one that was emptied. Its runs are believed to live for `lease`.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cancel safety
    /// A dropped call has added some of it; the next one adds the rest.
    pub async fn store(&self, schedules: &Schedules, lease: Duration) -> Result {
        let plain = self.stored_names().map(|(name, spread)| {
            let is_once = is_once(&name);
            (name, spread, is_once)
        });
        mixed::store(schedules, self.period, lease, plain).await
    }

    /// The pairs that are stored schedules, with their schedules.
    fn stored_names(&self) -> impl Iterator<Item = (String, Every)> {
        self.scheduled()
            .filter(|(number, ..)| self.is_stored(*number))
            .map(|(_, name, spread)| (name, spread))
    }

    fn is_stored(&self, number: u32) -> bool {
        self.is_mixed && number / 2 % 2 == 1
    }

    /// Each of the pairs' jobs, with its number.
    fn scheduled(&self) -> impl Iterator<Item = (u32, String, Every)> {
        // Spread over the period, so that a fault at any time meets some runs; several are due at one instant.
        let instants = u32::try_from(self.pairs).unwrap_or(u32::MAX).clamp(1, INSTANTS);
        let spread = move |number| {
            // Texts of schedules have whole milliseconds.
            let phase = self.period * (number / 2 % instants) / instants;
            every(self.period).phase(Duration::from_millis(phase.as_millis() as u64))
        };
        self.names().zip(0..).map(move |(name, number)| (number, name, spread(number)))
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
                let job = booked(run.name(), run.trigger());
                log.write(&job, run.node(), wall(), what);
                runtime.sleep_until(runtime.now() + work).await;
            }
        };
        let all = CatchUp::All { limit: 1_000 };
        let builder = Scheduler::builder(RecordingBackend::new(store, log))
            .runtime(runtime)
            .lost_after(lease)
            .poll_interval(Duration::from_millis(500))
            .on_event(move |event| reports.report(event));
        let builder = match self.is_mixed {
            true => mixed::add(builder, self.period, lease, work.clone()),
            false => builder,
        };
        let of_code = self.scheduled().filter(|(number, ..)| !self.is_stored(*number));
        // No run takes that long: the definitions differ, and nothing else.
        let timeout = Duration::from_secs(60 + u64::from(self.release));
        of_code.fold(builder, |builder, (_, name, spread)| {
            let one = job(spread, work.clone()).catch_up(all).timeout(timeout);
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

    /// The violations of all jobs, by what the store has recorded of them. Each job must have an account up to
    /// the last occurrence that it is given here; what has none here is new, and may still be under way.
    pub fn all_violations(
        &self,
        log: &[Event],
        past: &[HistoryEntry],
        acknowledged: &[Acknowledged],
        until: &BTreeMap<String, i64>,
    ) -> Vec<Violation> {
        let (mut jobs, past) = (mixed::by_job(log), mixed::entries_by_job(past));
        for (job, past) in &past {
            let own = jobs.entry(job.clone()).or_default();
            let more = history::merge_store_history(own, job, past);
            own.extend(more);
        }
        let each =
            jobs.iter().flat_map(|(job, log)| self.checked(log, job, &[], until.get(job).copied()));
        let mut found: Vec<Violation> = each.collect();
        if self.is_mixed {
            found.extend(mixed::check(&jobs, acknowledged, until));
        }
        found
    }

    /// The number of occurrences of a log: of each job those from the first that was claimed to the last one.
    pub fn due(&self, log: &[Event]) -> usize {
        let mut jobs: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for (event, Claims { occurrence: at, .. }) in claims(log) {
            let range = jobs.entry(&event.job).or_insert((at, at));
            *range = (range.0.min(at), range.1.max(at));
        }
        let each = jobs.into_iter().map(|(job, (first, last))| {
            std::iter::successors(Some(first), |at| self.following(job, *at))
                .take_while(|at| *at <= last)
                .count()
        });
        each.sum()
    }

    fn following(&self, job: &str, at: i64) -> Option<i64> {
        let period = i64::try_from(self.period.as_millis()).unwrap();
        mixed::following(job, at, period)
    }

    fn checked(
        &self,
        log: &[Event],
        job: &str,
        past: &[HistoryEntry],
        until: Option<i64>,
    ) -> Vec<Violation> {
        let following = |job: &str, at| self.following(job, at);
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
