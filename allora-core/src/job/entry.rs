//! A job and its settings.

use super::{CatchUp, Delivery, Job, Overlap, Placement, Retry, Settings};
use crate::{
    error::Result,
    time::{Time, whole_millis},
};
use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// A job and its settings, as [`Builder::add`](crate::Builder::add) takes it.
///
/// ```
/// use allora_core::{CatchUp, Overlap, Run, every, job};
/// use std::time::Duration;
///
/// let entry = job(every(Duration::from_secs(300)), async |_: Run| {})
///     .at_least_once(Duration::from_secs(30))
///     .catch_up(CatchUp::Latest)
///     .window(Duration::from_secs(3_600))
///     .timeout(Duration::from_secs(120));
/// # let _ = entry;
/// ```
#[derive(Clone)]
#[must_use = "a job runs only when it is added to a scheduler"]
pub struct Entry {
    pub(crate) job: Arc<dyn Job>,
    pub(crate) settings: Arc<Settings>,
    /// Of a stored schedule, what its runs are given.
    pub(crate) payload: Option<Arc<Payload>>,
}

/// What the runs of a stored schedule are given.
pub(crate) struct Payload {
    pub(crate) kind: String,
    pub(crate) data: Arc<[u8]>,
}

impl<J: Job> From<J> for Entry {
    fn from(job: J) -> Self {
        static PLAIN: OnceLock<Arc<Settings>> = OnceLock::new();
        let settings = PLAIN.get_or_init(Arc::default).clone();
        Self { job: Arc::new(job), settings, payload: None }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.definition()).finish()
    }
}

impl Entry {
    /// A job with these settings.
    pub fn with(job: Arc<dyn Job>, settings: Settings) -> Self {
        Self { job, settings: Arc::new(settings), payload: None }
    }

    pub(crate) fn carrying(mut self, payload: Payload) -> Self {
        self.payload = Some(Arc::new(payload));
        self
    }

    /// Delivers at least once: the cursor moves when the run has ended, and the occurrence of a
    /// node that died is run again, as the next attempt, when the lease is over. Successive
    /// occurrences never overlap. The default is at most once.
    ///
    /// `lease`: 1 s to 24 h; it is extended at every third of it while the run lives.
    pub fn at_least_once(self, lease: Duration) -> Self {
        self.set(|settings| settings.delivery = Delivery::AtLeastOnce { lease })
    }

    /// What becomes of instants that passed while nobody looked: by default the latest is run.
    pub fn catch_up(self, policy: CatchUp) -> Self {
        self.set(|settings| settings.catch_up = policy)
    }

    /// An instant later than this is not run any more but recorded as missed. At least 1 ms.
    pub fn window(self, window: Duration) -> Self {
        self.set(|settings| settings.window = Some(window))
    }

    /// What becomes of an at-most-once occurrence while the one before still runs, on whatever
    /// node: by default it runs beside it.
    pub fn overlap(self, policy: Overlap) -> Self {
        self.set(|settings| settings.overlap = policy)
    }

    /// Tries a failed at-least-once run again. The default is one attempt.
    pub fn retry(self, retry: Retry) -> Self {
        self.set(|settings| settings.retry = retry)
    }

    /// Drops a run's future after so long, and records it as failed. At least 1 ms; none by default.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set(|settings| settings.timeout = Some(timeout))
    }

    /// Runs so long after the scheduled time, which is reported unchanged. Whole milliseconds.
    pub fn delay(self, delay: Duration) -> Self {
        self.set(|settings| settings.delay = delay)
    }

    /// Runs at a time between 0 and `spread` after the scheduled time (and the delay), chosen by
    /// name and instant: the same on every node, so that a fleet's jobs do not all start at once.
    /// Whole milliseconds.
    pub fn spread(self, spread: Duration) -> Self {
        self.set(|settings| settings.spread = spread)
    }

    /// No occurrence before this instant (cut to milliseconds, as every scheduled time is).
    pub fn starting(self, at: Time) -> Self {
        self.set(|settings| settings.start = Some(whole_millis(at)))
    }

    /// No occurrence after this instant (cut to milliseconds).
    pub fn ending(self, at: Time) -> Self {
        self.set(|settings| settings.end = Some(whole_millis(at)))
    }

    /// At most so many occurrences of the schedule are started, over all nodes and restarts;
    /// triggers and further attempts are not counted. At least 1.
    pub fn max_runs(self, runs: u64) -> Self {
        self.set(|settings| settings.max_runs = Some(runs))
    }

    /// Runs one at a time with all jobs of this group, on all nodes: a run that was won waits at its
    /// node for its turn before the job's code begins. Groups are named by one word of up to 187
    /// bytes; they exist as long as a job names them.
    ///
    /// What is promised is what a lease promises. The group's turn lasts as long as the run's own
    /// lease, or mark, and is extended like that: a node that dies in its turn delays the others by
    /// that long at most. If an extension is not confirmed in time the run is cancelled, and its
    /// future dropped before the turn ends ([`MutexUnconfirmed`](crate::Event::MutexUnconfirmed),
    /// [`MutexLost`](crate::Event::MutexLost)): at least once it runs again, at most once it has
    /// failed. Code that blocks, or a machine that slept, may notice too late: what the jobs of a
    /// group write to can tell by [`Run::mutex_fence`](crate::Run::mutex_fence).
    ///
    /// Turns come in no particular order. A run that waits has one of its node's slots, keeps its own
    /// lease, and is given back at once when the scheduler stops; its time limit begins with its
    /// code. Waiting runs of one job add up, unless it has an [overlap](Self::overlap) policy or is
    /// delivered at least once. Jobs that run [on every node](Self::on_every_node) wait for each
    /// other's nodes too.
    ///
    /// The group's record is in the store under `allora:mutex:` and the group's name, among the jobs
    /// in code: paused, it holds the whole group back; deleted, it gives the turn to the next one.
    pub fn mutex(self, group: impl Into<Arc<str>>) -> Self {
        let group = group.into();
        self.set(|settings| settings.mutex = Some(group))
    }

    /// Runs on every node, each by itself, instead of on one: nothing of it is in the store, and
    /// what passed while the node was down is not caught up with.
    pub fn on_every_node(self) -> Self {
        self.set(|settings| settings.placement = Placement::EveryNode)
    }

    /// The version of the definition, 0 unless given. A node whose build declares a lower version
    /// than the stored one does not redefine the job: an old build that is restarted during a
    /// roll-out does not win back.
    pub fn version(self, version: u64) -> Self {
        self.set(|settings| settings.version = version)
    }

    /// The text whose change is noticed: schedule and settings.
    pub fn definition(&self) -> String {
        let schedule = self.job.definition();
        self.settings.definition(schedule.as_deref().unwrap_or("custom"))
    }

    /// Why it cannot run.
    pub(crate) fn check(&self) -> Result {
        self.job.check()?;
        self.settings.check()
    }

    fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}
