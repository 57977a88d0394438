//! The builder of a scheduler: settings, jobs and handlers, all checked before anything starts.

use super::{
    config::{Config, check, check_label},
    instance::Scheduler,
    node::{Node, OnEvent, random},
    runs::middleware::{Middleware, Next},
};
use crate::{
    backend::Backend,
    condition::Condition,
    error::{BoxError, Error, ErrorKind, Result},
    event::Event,
    job::{Delivery, IntoJob, IntoOutcome, JobFuture, JobSpec, Placement, Settings, job},
    pattern::Pattern,
    planner::EXTRA_ATTEMPTS,
    record::{MAX_TRIGGER_RETENTION, TRIGGER_RETENTION},
    registry::MAX_HEARTBEAT,
    run::Run,
    runtime::{Runtime, detect},
    schedule::Schedule,
    stored::{Handler, Router},
};
use futures::FutureExt;
use std::{collections::HashMap, fmt, iter::successors, sync::Arc, time::Duration};

/// The builder of a scheduler.
#[must_use = "a scheduler begins with `build`"]
pub struct SchedulerBuilder {
    backend: Arc<dyn Backend>,
    runtime: Option<Arc<dyn Runtime>>,
    label: Option<String>,
    jobs: Vec<(Arc<str>, JobSpec)>,
    on_event: Option<OnEvent>,
    router: Router,
    middleware: Vec<Middleware>,
    config: Config,
}

impl SchedulerBuilder {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        let config = Config {
            concurrency: 1_000,
            poll_interval: Duration::from_secs(5),
            store_timeout: Duration::from_secs(1),
            grace: Duration::from_secs(30),
            lost_after: Duration::from_secs(30),
            extra_attempts: EXTRA_ATTEMPTS,
            heartbeat: Duration::from_secs(15),
            build_version: None,
            labels: Vec::new(),
            prune_orphans_after: None,
            prune_finished_after: Some(Duration::from_secs(7 * 24 * 60 * 60)),
            trigger_retention: TRIGGER_RETENTION,
            no_data: Arc::from([]),
        };
        Self {
            backend,
            runtime: None,
            label: None,
            jobs: Vec::new(),
            on_event: None,
            router: Router::default(),
            middleware: Vec::new(),
            config,
        }
    }

    /// Sets the executor and the clocks. Default: the runtime that
    /// [`detect`](crate::runtime::detect) finds.
    pub fn runtime(mut self, runtime: impl Runtime) -> Self {
        self.runtime = Some(Arc::new(runtime));
        self
    }

    /// Sets a label in front of this node's id, such as the host name. Longest: 64 bytes. Default:
    /// none.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the largest number of simultaneous runs on this node. A node claims only what it has
    /// capacity for. Default: 1 000. Range: at least 1.
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.config.concurrency = runs;
        self
    }

    /// Sets the time for which runs may continue when the scheduler stops. Default: 30 s. Range: 0
    /// to 24 h.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.config.grace = grace;
        self
    }

    /// Sets the interval at which the store is read even without a notification. Default: 5 s.
    /// Range: 100 ms to 1 h. A store that has no notifications, or does not send them, is searched each
    /// 1.5 s if this is longer.
    pub fn poll_interval(mut self, every: Duration) -> Self {
        self.config.poll_interval = every;
        self
    }

    /// Sets the longest duration of one request to the store. Default: 1 s. Range: 10 ms to 1 min.
    pub fn store_timeout(mut self, deadline: Duration) -> Self {
        self.config.store_timeout = deadline;
        self
    }

    /// Sets the time for which the id of a [trigger](crate::Handle::trigger) of this node is
    /// remembered: until then the same id does not run the job again. Default: 24 h. Range: 0 to 30
    /// days; 0: while its run waits or is active.
    pub fn trigger_retention(mut self, retention: Duration) -> Self {
        self.config.trigger_retention = retention;
        self
    }

    /// Sets the lease of at-most-once runs. When a node does not extend it in time, the run is
    /// recorded as lost. It is cancelled before that, unless other runs of its job may be active
    /// beside it ([`Overlap::Allow`](crate::Overlap::Allow), without a concurrency key). Default: 30 s.
    /// Range: 1 s to 24 h.
    pub fn lost_after(mut self, lasts: Duration) -> Self {
        self.config.lost_after = lasts;
        self
    }

    /// Sets the number of attempts beyond the retry policy that an at-least-once occurrence has if
    /// its runs end without a result: their process ends, they block beyond their lease, or they are
    /// dropped. Then the occurrence is a dead letter. Without a retry policy an occurrence has one
    /// attempt and these. Default: 3. Range: any.
    ///
    /// Claims are counted: the store does not learn when a run begins. So a claim is an attempt, too,
    /// if its node ended before the run began, or if no reply to the claim came as long as its lease
    /// lasted. A claim that is repeated because its reply was lost is one attempt. An occurrence
    /// that is released before its run began is none. A process that ends uses an attempt of every
    /// occurrence that runs in it, because the store cannot know which of them has ended it.
    pub fn extra_attempts(mut self, attempts: u32) -> Self {
        self.config.extra_attempts = attempts;
        self
    }

    /// Sets the interval at which this node writes its record, from which
    /// [`Handle::nodes`](super::Handle::nodes) is read. Each is one small write. A node without
    /// one for three intervals counts as dead. A backend without [queries](Backend::queries) has no
    /// such records. Default: 15 s. Range: 1 s to 5 min.
    pub fn heartbeat(mut self, every: Duration) -> Self {
        self.config.heartbeat = every;
        self
    }

    /// Sets the version of this build, for the list of [nodes](super::Handle::nodes). The same rules
    /// as for a name, at most 64 bytes. Default: none.
    pub fn build_version(mut self, version: impl Into<String>) -> Self {
        self.config.build_version = Some(version.into());
        self
    }

    /// Sets the labels of this node, for the list of [nodes](super::Handle::nodes): what it has that
    /// others lack, such as `gpu`. The same rules as for names, at most 64 bytes each. Default: none.
    pub fn node_labels<L: Into<String>>(mut self, labels: impl IntoIterator<Item = L>) -> Self {
        self.config.labels = labels.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the time after which the record of an orphaned job in code is removed: one that no live
    /// build declares. The time counts from its last claim or definition, or, if it is later, from the
    /// time since which its next occurrence is due. Paused jobs and those with dead letters stay.
    /// `None`: never. A node whose jobs are pruned while it is stopped registers them again and begins
    /// with their next occurrence, so choose a time that is longer than any stop. Default: never.
    /// Range: 1 h to 10 years.
    pub fn prune_orphans_after(mut self, after: Option<Duration>) -> Self {
        self.config.prune_orphans_after = after;
        self
    }

    /// Sets the time after which a one-off schedule is removed that was started and has ended:
    /// `@at`, or `max-runs 1`. Those with dead letters or a pause stay. `None`: never. Default: 7
    /// days. Range: 1 h to 10 years.
    pub fn prune_finished_after(mut self, after: Option<Duration>) -> Self {
        self.config.prune_finished_after = after;
        self
    }

    /// Sets a closure that receives every [`Event`] of this node, in order. It is called on the
    /// scheduler's own task, or by [`Handle::report`](crate::Handle::report), and must not block.
    pub fn on_event(mut self, on_event: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Arc::new(on_event));
        self
    }

    /// Adds a job with its settings; see [`job`](crate::job()) and [`JobSpec`].
    pub fn add(mut self, name: impl Into<Arc<str>>, spec: impl IntoJob) -> Self {
        self.jobs.push((name.into(), spec.into_job()));
        self
    }

    /// Adds a job made of a schedule and an async closure, with the default settings: it runs at most
    /// once, and catches up with the latest missed occurrence. Each run has a clone of the closure, so
    /// a captured variable that it changes [begins anew](crate::job()) at each run.
    ///
    /// A job that runs once, [`at`](crate::at()) a time of up to a minute ago, runs now. An older time
    /// is recorded as missed when the job is registered for the first time.
    pub fn job<S, F, Fut>(self, name: impl Into<Arc<str>>, schedule: S, work: F) -> Self
    where
        S: Schedule,
        F: FnOnce(Run) -> Fut + Clone + Send + Sync + 'static,
        Fut: JobFuture<Out: IntoOutcome> + Send + 'static,
    {
        self.add(name, job(schedule, work))
    }

    /// Runs stored schedules of a kind, or of the kinds of a [`Pattern`]. The handler is an async
    /// closure that receives a [`Run`] or, with the feature `json`, a [`Run`] and its data as a
    /// value. If several handlers match a kind, the first one declared runs it. Kinds without a
    /// handler are left to other nodes.
    ///
    /// ```
    /// use allora::{BoxError, Pattern, Run, Scheduler};
    /// use std::sync::Arc;
    ///
    /// # fn main() -> allora::Result {
    /// # let sim = allora::runtime::Sim::new(1);
    /// # let store = allora::Memory::new();
    /// let outbox = Arc::new(String::from("smtp://mail.example"));
    /// let scheduler = Scheduler::builder(store)
    ///     .kind("report", async move |run: Run| -> Result<(), BoxError> {
    ///         println!("{} by {outbox}: {:?}", run.name(), run.data());
    ///         Ok(())
    ///     })
    ///     .kind(Pattern::prefix("sync."), async |run: Run| println!("{}", run.kind()))
    /// #   .runtime(sim.node())
    ///     .build()?;
    /// # drop(scheduler);
    /// # Ok(())
    /// # }
    /// ```
    pub fn kind<Args: 'static>(
        mut self,
        pattern: impl Into<Pattern>,
        handler: impl Handler<Args>,
    ) -> Self {
        self.router.add(pattern.into(), handler);
        self
    }

    /// Sets the largest number of simultaneous runs on this node of the kinds of a handler, which was
    /// or is declared with [`kind`](Self::kind) by the same pattern. Occurrences beyond it stay
    /// unclaimed, for other nodes or until one of these runs has ended. Other kinds do not wait for
    /// them. Default: the node's [`concurrency`](Self::concurrency), which limits all runs together.
    /// Range: at least 1.
    ///
    /// ```
    /// use allora::{Run, Scheduler};
    ///
    /// # fn main() -> allora::Result {
    /// # let sim = allora::runtime::Sim::new(1);
    /// # let store = allora::Memory::new();
    /// let scheduler = Scheduler::builder(store)
    ///     .concurrency(100)
    ///     .kind("report", async |run: Run| println!("{}", run.name()))
    ///     .kind_concurrency("report", 4)
    ///     .kind("mail", async |run: Run| println!("{}", run.name()))
    /// #   .runtime(sim.node())
    ///     .build()?;
    /// # drop(scheduler);
    /// # Ok(())
    /// # }
    /// ```
    pub fn kind_concurrency(mut self, pattern: impl Into<Pattern>, runs: usize) -> Self {
        self.router.limit(pattern.into(), runs);
        self
    }

    /// Runs stored schedules of kinds that [`Handle::set_kinds`](crate::Handle::set_kinds) changes while
    /// the node runs; otherwise as [`kind`](Self::kind). `id` names the handler on this node. With a
    /// `limit`, at most so many of its runs are active at once, which
    /// [`Handle::set_kind_limit`](crate::Handle::set_kind_limit) changes; 0, or no kinds: nothing is
    /// claimed. `None`: the node's [`concurrency`](Self::concurrency) is the limit, and cannot be changed.
    ///
    /// A node of which nothing else is to run asks the store only for its clock, once in each [poll
    /// interval](Self::poll_interval), while it has no kinds.
    ///
    /// ```
    /// use allora::{Pattern, Run, Scheduler};
    ///
    /// # fn main() -> allora::Result {
    /// # let sim = allora::runtime::Sim::new(1);
    /// # let store = allora::Memory::new();
    /// let none: [&str; 0] = [];
    /// let scheduler = Scheduler::builder(store)
    ///     .named_handler("workers", none, Some(0), async |run: Run| println!("{}", run.kind()))
    /// #   .runtime(sim.node())
    ///     .build()?;
    /// let handle = scheduler.handle();
    ///
    /// // Later, when four workers ask for work:
    /// handle.set_kind_limit("workers", 4)?;
    /// handle.set_kinds("workers", ["report".into(), Pattern::prefix("mail.")])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn named_handler<K: Into<Pattern>, Args: 'static>(
        mut self,
        id: &str,
        kinds: impl IntoIterator<Item = K>,
        limit: Option<usize>,
        handler: impl Handler<Args>,
    ) -> Self {
        let kinds = kinds.into_iter().map(Into::into).collect();
        self.router.add_named(id, kinds, limit, handler);
        self
    }

    /// Adds middleware around every run of this node: it can act before the run, after it, or
    /// instead of it. The first middleware is the outermost. It is inside the run's time-out, and
    /// its result is the result of the run. Middleware that does not call [`Next::run`] vetoes the
    /// run.
    ///
    /// ```
    /// use allora::{Next, Run, Scheduler};
    ///
    /// # fn main() -> allora::Result {
    /// # let sim = allora::runtime::Sim::new(1);
    /// # let store = allora::Memory::new();
    /// let scheduler = Scheduler::builder(store)
    ///     .middleware(async |run: Run, next: Next| {
    ///         if run.kind() == "suspended" {
    ///             return Ok(());
    ///         }
    ///         let ended = next.run(run.clone()).await;
    ///         if let Err(error) = &ended {
    ///             println!("{} has failed: {error}", run.name());
    ///         }
    ///         ended
    ///     })
    /// #   .runtime(sim.node())
    ///     .build()?;
    /// # drop(scheduler);
    /// # Ok(())
    /// # }
    /// ```
    pub fn middleware<F, Fut>(mut self, hook: F) -> Self
    where
        F: FnOnce(Run, Next) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let hook = move |run, next| {
            let hook = hook.clone();
            async move { hook(run, next).await }.boxed()
        };
        self.middleware.push(Arc::new(hook));
        self
    }

    /// Builds the scheduler.
    ///
    /// # Errors
    /// `Invalid`: a bad name, schedule or setting, or no runtime. `AlreadyExists`: two jobs have
    /// the same name. `Unsupported`: a job needs a capability that the backend lacks.
    pub fn build(self) -> Result<Scheduler> {
        self.checked().map_err(|error| error.op("build"))
    }

    fn checked(self) -> Result<Scheduler> {
        let Self { backend, runtime, label, jobs, on_event, router, middleware, config } = self;
        check_config(&config)?;
        let runtime = match runtime {
            Some(runtime) => runtime,
            None => detect()?,
        };
        let at_most_once = |spec: &JobSpec| {
            let Settings { placement, delivery, .. } = &*spec.settings;
            *placement != Placement::EveryNode && matches!(delivery, Delivery::AtMostOnce)
        };
        let is_careful = jobs.iter().any(|(_, spec)| at_most_once(spec));
        let warning = backend.durability_warning().filter(|_| is_careful).map(str::to_owned);
        router.check()?;
        if !router.is_empty() && backend.queries().is_none() {
            let cannot = format!(
                "`kind` needs stored schedules, but {backend:?} has no queries; use another backend"
            );
            return Err(Error::new(ErrorKind::Unsupported, cannot));
        }
        let id = node_id(label.as_deref(), &*runtime)?;
        let code = (router, middleware.into());
        let node = Node::new(id, backend, runtime, config, on_event, code);
        check_chains(&jobs)?;
        for (name, spec) in jobs {
            check(&name, &spec)?;
            node.add(name, spec)?;
        }
        if let Some(what) = warning {
            node.begin_condition(Condition::DurabilityRisk { what });
        }
        Ok(Scheduler { node: Arc::new(node) })
    }
}

impl Scheduler {
    /// A builder of a scheduler on this backend.
    pub fn builder(backend: impl Backend) -> SchedulerBuilder {
        SchedulerBuilder::new(Arc::new(backend))
    }
}

impl fmt::Debug for SchedulerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerBuilder").field("backend", &self.backend).finish_non_exhaustive()
    }
}

/// Checks that no job of these runs after itself, or after one that runs on every node.
fn check_chains(jobs: &[(Arc<str>, JobSpec)]) -> Result {
    let all = jobs.iter().map(|(name, spec)| (&**name, &*spec.settings));
    let all: HashMap<&str, &Settings> = all.collect();
    let before = |name: &str| all.get(name)?.after.as_ref().map(|after| &*after.job);
    for (name, after) in jobs.iter().filter_map(|(name, _)| Some((&**name, before(name)?))) {
        if all.get(after).is_some_and(|it| it.placement == Placement::EveryNode) {
            return Err(Error::invalid(format!(
                "{name:?} cannot run after {after:?}, which runs on every node: the store has no record \
                 of its runs; let it run on one node"
            )));
        }
        let mut chain = successors(Some(after), |job| before(job)).take(all.len());
        if chain.any(|job| job == name) {
            return Err(Error::invalid(format!(
                "{name:?} would run after itself, because it runs after {after:?}; let the first job of \
                 the chain run at times of its own"
            )));
        }
    }
    Ok(())
}

fn check_config(config: &Config) -> Result {
    let ms = Duration::from_millis;
    let hour = Duration::from_secs(3_600);
    if config.concurrency == 0 {
        return Err(Error::invalid("`concurrency` is 0; use 1 or more"));
    }
    for (name, value, least, most) in [
        ("poll_interval", config.poll_interval, ms(100), hour),
        ("store_timeout", config.store_timeout, ms(10), ms(60_000)),
        ("lost_after", config.lost_after, ms(1_000), 24 * hour),
        ("grace", config.grace, ms(0), 24 * hour),
        ("heartbeat", config.heartbeat, ms(1_000), MAX_HEARTBEAT),
        ("trigger_retention", config.trigger_retention, ms(0), MAX_TRIGGER_RETENTION),
        ("prune_orphans_after", config.prune_orphans_after.unwrap_or(hour), hour, 87_600 * hour),
        ("prune_finished_after", config.prune_finished_after.unwrap_or(hour), hour, 87_600 * hour),
    ] {
        if !(least..=most).contains(&value) {
            let range = format!("`{name}` is {value:?}; use {least:?} to {most:?}");
            return Err(Error::invalid(range));
        }
    }
    config.labels.iter().try_for_each(|label| check_label(label))?;
    config.build_version.as_deref().map_or(Ok(()), check_label)
}

/// A node's id: 128 random bits, so that a restart, a clone of the machine or a reused process
/// number has another id. The label is only for people.
fn node_id(label: Option<&str>, runtime: &dyn Runtime) -> Result<Arc<str>> {
    let random = random(runtime);
    let Some(label) = label else { return Ok(format!("{random:032x}").into()) };
    check_label(label)?;
    Ok(format!("{label}-{random:032x}").into())
}
