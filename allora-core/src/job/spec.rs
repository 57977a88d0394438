//! A job and its settings.

use super::{
    AlertRule, Breaker, CatchUp, ConcurrencyKey, Delivery, Job, JobHistory, Overlap, Placement,
    Retry, Settings, Token, setters,
};
use crate::{
    error::{Error, Result},
    run::Payload,
    time::{Time, whole_millis},
};
use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// The first word of a definition whose schedule is known to its code alone.
const CODE: &str = "@code";

/// `true` if this is the definition of a schedule that is not one of this library.
pub(crate) fn is_code(definition: &str) -> bool {
    definition.split([' ', ';']).next() == Some(CODE)
}

/// A job and its settings, for [`SchedulerBuilder::add`](crate::SchedulerBuilder::add).
///
/// ```
/// use allora::{CatchUp, Overlap, Run, every, job};
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
pub struct JobSpec {
    pub(crate) job: Arc<dyn Job>,
    pub(crate) settings: Arc<Settings>,
    /// For a stored schedule: its kind and its data.
    pub(crate) payload: Option<Arc<Payload>>,
    /// The warnings about its schedule were reported elsewhere.
    pub(crate) is_quiet: bool,
    /// A concurrency key was set that another one has replaced.
    pub(crate) has_replaced_key: bool,
}

/// A job to be added: a [`JobSpec`], which [`job`](crate::job()) makes, or a type that implements
/// [`Job`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    label = "neither a job with settings nor a type that implements `Job`",
    note = "a job is a schedule and an async closure: `.add(name, job(cron(\"0 2 * * *\")?, async |run: Run| {{ .. }}))`",
    note = "with the default settings, `.job(name, schedule, closure)` is the same"
)]
pub trait IntoJob {
    /// The job with its settings.
    fn into_job(self) -> JobSpec;
}

impl IntoJob for JobSpec {
    fn into_job(self) -> JobSpec {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<J: Job> IntoJob for J {
    fn into_job(self) -> JobSpec {
        self.into()
    }
}

impl<J: Job> From<J> for JobSpec {
    fn from(job: J) -> Self {
        static PLAIN: OnceLock<Arc<Settings>> = OnceLock::new();
        let settings = PLAIN.get_or_init(Arc::default).clone();
        Self {
            job: Arc::new(job),
            settings,
            payload: None,
            is_quiet: false,
            has_replaced_key: false,
        }
    }
}

impl fmt::Debug for JobSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JobSpec").field(&self.definition()).finish()
    }
}

impl JobSpec {
    /// A job with these settings.
    pub fn with(job: Arc<dyn Job>, settings: Settings) -> Self {
        Self {
            job,
            settings: Arc::new(settings),
            payload: None,
            is_quiet: false,
            has_replaced_key: false,
        }
    }

    /// The kind of a stored schedule; empty for a job in code.
    pub(crate) fn kind(&self) -> Arc<str> {
        self.payload.as_ref().map(|payload| payload.kind.clone()).unwrap_or_default()
    }

    pub(crate) fn carrying(mut self, payload: Payload) -> Self {
        self.payload = Some(Arc::new(payload));
        self
    }

    setters!();

    /// Runs beside at most `limit - 1` other runs of the jobs with this key: of all of them, on all
    /// nodes, at most `limit` runs are active. A key exists as long as a job names it.
    ///
    /// `key`: one word of 1 to 200 bytes. `limit`: Range: 1 to 1 000. Jobs of one key should have the
    /// same limit; each compares with its own
    /// ([`KeyLimitsDiffer`](crate::Event::KeyLimitsDiffer)).
    ///
    /// While the key is busy, the occurrence stays due. It uses no capacity, is not claimed, and has
    /// no run ([`KeyBusy`](crate::Condition::KeyBusy) names the holders). When a place is free, the
    /// waiting job that has been due for longest has it, on any node; of equal times, the first by
    /// name. With notifications it starts at once, without within a poll interval or 2 s. Then the
    /// [catch-up](Self::catch_up) policy selects among the occurrences that are due; the others are
    /// recorded as skipped ([`ConcurrencyKey`](crate::backend::NotRunReason::ConcurrencyKey)). The
    /// [window](Self::window) does not count the time of waiting. An [overlap](Self::overlap) policy
    /// is applied before.
    ///
    /// A place is a lease and gives the guarantee of a lease. It lasts as long as the run's own lease
    /// and is extended with it. A node that dies delays the other jobs by that time at most. If no
    /// extension is confirmed in time, the run is cancelled, and its future is dropped before the
    /// place ends ([`LeaseRenewalFailed`](crate::Event::LeaseRenewalFailed),
    /// [`LeaseLost`](crate::Event::LeaseLost)). An at-least-once run is run again; an at-most-once
    /// run has failed. Code that blocks, or a machine that slept, may notice this too late. The
    /// systems that the jobs of a key write to can reject such writes by
    /// [`Run::mutex_fence`](crate::Run::mutex_fence).
    ///
    /// The key's record is in the store, among the jobs in code, under `allora:key:` and the key.
    /// Pausing it stops all jobs of the key. Deleting it ends the runs that hold it, when their places
    /// are extended next. A record that no job has held or waited for in a week is removed; the fences
    /// of the key continue.
    ///
    /// A job has one key: a second one replaces the first, with a
    /// [warning](crate::Event::ScheduleWarning).
    ///
    /// A job that runs [on every node](Self::on_every_node) has a place for each of its runs, one after
    /// the other or as many at once as the limit says. It waits for the store, as other jobs do.
    pub fn concurrency_key(self, key: impl Into<Arc<str>>, limit: u32) -> Self {
        self.key(ConcurrencyKey::new(key, limit))
    }

    /// Shares a rate with all jobs of this key, in code and stored, on all nodes: within any time of this
    /// length, at most `limit` of their runs begin. Each attempt counts, and so does one that fails. The
    /// others wait in the same queue as for a [concurrency key](Self::concurrency_key), by due time and
    /// name, and are skipped after [`max_key_wait`](Self::max_key_wait). A job has a rate or a concurrency
    /// key, not both. The first place that was taken is free again after `per`, by the store's clock.
    ///
    /// `limit`: Range: 1 to 1,000. `per`: Range: 1 s to 24 h.
    ///
    /// ```
    /// use allora::{Run, every, job};
    /// use std::time::Duration;
    ///
    /// const MINUTE: Duration = Duration::from_secs(60);
    ///
    /// let mails = job(every(MINUTE), async |_: Run| { /* … */ }).rate("mail", 100, MINUTE);
    /// # let _ = mails;
    /// ```
    pub fn rate(self, key: impl Into<Arc<str>>, limit: u32, per: Duration) -> Self {
        self.key(ConcurrencyKey::rate(key, limit, per))
    }

    fn key(mut self, key: ConcurrencyKey) -> Self {
        let former = self.settings.concurrency_key.as_ref();
        self.has_replaced_key |= former.is_some_and(|former| former.key != key.key);
        self.settings_mut().concurrency_key = Some(key);
        self
    }

    /// Runs on every node, independently of the others, instead of on one. The store has no record
    /// of the job, and the job does not depend on it, unless it has a
    /// [concurrency key](Self::concurrency_key). Occurrences that were missed while the node was down
    /// are not caught up.
    pub fn on_every_node(mut self) -> Self {
        self.settings_mut().placement = Placement::EveryNode;
        self
    }

    /// The version of the definition. A node whose build declares a lower version than the stored
    /// one does not redefine the job, so that an old build that is restarted during a roll-out does
    /// not restore its definition. Such a node runs the job by the stored definition
    /// ([`DefinitionAdopted`](crate::Event::DefinitionAdopted)), if it can read all of it; otherwise it
    /// leaves the job to other nodes ([`DefinitionConflict`](crate::Condition::DefinitionConflict)).
    ///
    /// A build without a version has version 0. So once a version is in the store, every later edit
    /// of the job needs the same version or a higher one: an edit without it is treated as an older
    /// build. A change of the closure alone is no change of the definition. Default: 0.
    pub fn version(mut self, version: u64) -> Self {
        self.settings_mut().version = version;
        self
    }

    /// Reports no [warning](crate::Event::ScheduleWarning) about its schedule: for a program that
    /// has reported the warnings itself.
    pub fn without_warnings(mut self) -> Self {
        self.is_quiet = true;
        self
    }

    /// The text by which a change of the job is detected: schedule and settings. A schedule that is
    /// not one of this library begins with `@code`: no other node can tell its times by the text.
    pub fn definition(&self) -> String {
        let schedule = self.job.definition();
        if self.job.is_built_in(Token(())) {
            return self.settings.definition(schedule.as_deref().unwrap_or_default());
        }
        let text = format!("{CODE} {}", schedule.as_deref().unwrap_or("custom"));
        self.settings.definition(&text)
    }

    /// Checks the job and its settings.
    pub(crate) fn check(&self) -> Result {
        self.job.check()?;
        if self.settings.breaker.is_some() && self.settings.placement == Placement::EveryNode {
            let wrong = "a job that runs on every node cannot pause itself: nobody could resume it; leave \
                         `breaker` away, or add a job for each node";
            return Err(Error::invalid(wrong));
        }
        self.settings.check()
    }

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }
}
