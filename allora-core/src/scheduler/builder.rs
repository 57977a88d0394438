//! Puts a scheduler together, and refuses what could not work before anything starts.

use super::{
    Config, Scheduler,
    around::{Around, Next},
    node::{Node, OnEvent},
};
use crate::{
    backend::Backend,
    error::{BoxError, Error, Kind, Result},
    event::Event,
    job::{Delivery, Entry, IntoOutcome, Overlap, Placement, Settings, job},
    name::{check_free, check_name},
    planner::{Planner, Powers},
    run::Run,
    runtime::{Runtime, detect},
    schedule::Schedule,
    stored::{Handler, Pattern, Router},
};
use futures::FutureExt;
use std::{fmt, sync::Arc, time::Duration};

/// Puts a scheduler together.
#[must_use = "a scheduler begins with `build`"]
pub struct Builder {
    backend: Arc<dyn Backend>,
    runtime: Option<Arc<dyn Runtime>>,
    label: Option<String>,
    jobs: Vec<(Arc<str>, Entry)>,
    on_event: Option<OnEvent>,
    router: Router,
    arounds: Vec<Around>,
    config: Config,
}

/// The longest label of a node, in bytes.
const MAX_LABEL: usize = 64;

impl Builder {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        let config = Config {
            slots: 1_000,
            poll: Duration::from_secs(5),
            deadline: Duration::from_secs(1),
            grace: Duration::from_secs(30),
            mark: Duration::from_secs(30),
            jitter: Duration::from_millis(1),
            no_data: Arc::from([]),
        };
        Self {
            backend,
            runtime: None,
            label: None,
            jobs: Vec::new(),
            on_event: None,
            router: Router::default(),
            arounds: Vec::new(),
            config,
        }
    }

    /// The executor and the clocks; found out by `build` unless given (see
    /// [`detect`](crate::runtime::detect)).
    pub fn runtime(mut self, runtime: impl Runtime) -> Self {
        self.runtime = Some(Arc::new(runtime));
        self
    }

    /// A name for people in front of this node's id, at most 64 bytes: as a host name.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// At most so many runs at once on this node, at least 1; 1 000 unless given. A node takes only
    /// what it has room for.
    pub fn slots(mut self, runs: usize) -> Self {
        self.config.slots = runs;
        self
    }

    /// How long runs may go on when the scheduler stops; 30 s unless given.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.config.grace = grace;
        self
    }

    /// How often to look although nothing was heard, 100 ms to 1 h; 5 s unless given.
    pub fn safety_poll(mut self, every: Duration) -> Self {
        self.config.poll = every;
        self
    }

    /// How long one call of the store may take, 10 ms to 1 min; 1 s unless given.
    pub fn call_deadline(mut self, deadline: Duration) -> Self {
        self.config.deadline = deadline;
        self
    }

    /// How long an at-most-once run of a node that keeps silent is believed to live before it is
    /// recorded as lost, 1 s to 24 h; 30 s unless given.
    pub fn mark(mut self, lasts: Duration) -> Self {
        self.config.mark = lasts;
        self
    }

    /// The longest of the random waits by which nodes let each other be first, up to 1 s; 1 ms
    /// unless given. Zero where there is but one node.
    pub fn jitter(mut self, longest: Duration) -> Self {
        self.config.jitter = longest;
        self
    }

    /// Called with every [`Event`] of this node, in order, on the scheduler's own task: it must
    /// not block.
    pub fn on_event(mut self, on_event: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Arc::new(on_event));
        self
    }

    /// Adds a job with its settings; see [`job`](crate::job()) and [`Entry`].
    pub fn add(mut self, name: impl Into<Arc<str>>, entry: impl Into<Entry>) -> Self {
        self.jobs.push((name.into(), entry.into()));
        self
    }

    /// Adds a job from a schedule and an async closure, with the default settings: at most once,
    /// the latest missed occurrence caught up with.
    pub fn job<S, F, Fut>(self, name: impl Into<Arc<str>>, schedule: S, work: F) -> Self
    where
        S: Schedule,
        F: FnOnce(Run) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.add(name, job(schedule, work))
    }

    /// Runs stored schedules of a kind, or of the kinds of a [`Pattern`]: with an async closure
    /// that takes a [`Run`], or, with the feature `json`, a [`Run`] and its data as a value. Of
    /// several that are for a kind, the one declared first runs it. Kinds that no handler is for
    /// are left to nodes that have one.
    ///
    /// ```
    /// use allora_core::{BoxError, Pattern, Run, Scheduler};
    /// use std::sync::Arc;
    ///
    /// # fn main() -> allora_core::Result {
    /// # let sim = allora_core::runtime::Sim::new(1);
    /// # let store = allora_memory::Memory::new();
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

    /// Puts something around every run of this node: before it, after it, instead of it. Of
    /// several, the first is the outermost. It is inside the run's time-out, and what it answers
    /// with is how the run ended; a hook that does not run [`Next`] vetoes the run, which then ends
    /// as the hook does.
    ///
    /// ```
    /// use allora_core::{Next, Run, Scheduler};
    ///
    /// # fn main() -> allora_core::Result {
    /// # let sim = allora_core::runtime::Sim::new(1);
    /// # let store = allora_memory::Memory::new();
    /// let scheduler = Scheduler::builder(store)
    ///     .around(async |run: Run, next: Next| {
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
    pub fn around<F, Fut>(mut self, hook: F) -> Self
    where
        F: FnOnce(Run, Next) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let hook = move |run, next| {
            let hook = hook.clone();
            async move { hook(run, next).await }.boxed()
        };
        self.arounds.push(Arc::new(hook));
        self
    }

    /// The scheduler, ready to run.
    ///
    /// # Errors
    /// `Invalid`: a bad name, schedule or setting, or no runtime; `AlreadyExists`: two jobs of one
    /// name; `Unsupported`: a job needs what the backend cannot do.
    pub fn build(self) -> Result<Scheduler> {
        self.checked().map_err(|error| error.op("build"))
    }

    fn checked(self) -> Result<Scheduler> {
        let Self { backend, runtime, label, jobs, on_event, router, arounds, config } = self;
        check_config(&config)?;
        let runtime = match runtime {
            Some(runtime) => runtime,
            None => detect()?,
        };
        let powers = Powers { mark: config.mark, leases: backend.leases().is_some() };
        let mut planner = Planner::new(random(&*runtime), config.poll, powers);
        let at_most_once = |entry: &Entry| {
            let Settings { placement, delivery, .. } = &*entry.settings;
            *placement != Placement::EveryNode && matches!(delivery, Delivery::AtMostOnce)
        };
        let is_careful = jobs.iter().any(|(_, entry)| at_most_once(entry));
        let caveat = backend.caveat().filter(|_| is_careful).map(str::to_owned);
        if !router.is_empty() {
            router.check()?;
            if backend.schedules().is_none() {
                let cannot = format!(
                    "kinds of stored schedules are to be run, but {backend:?} has none; use \
                     another backend"
                );
                return Err(Error::new(Kind::Unsupported, cannot));
            }
            let routes = router.clone();
            planner = planner.with_route(Arc::new(move |state| routes.route(state)));
        }
        for (name, entry) in jobs {
            check(&name, &entry, &*backend)?;
            planner.add(name, entry)?;
        }
        let id = node_id(label.as_deref(), &*runtime)?;
        let around = (router, arounds.into());
        let node = Node::new(id, backend, runtime, config, planner, on_event, around);
        node.emit(caveat.map(|what| Event::Caveat { what }));
        Ok(Scheduler { node: Arc::new(node) })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("backend", &self.backend).finish_non_exhaustive()
    }
}

fn check_config(config: &Config) -> Result {
    let ms = Duration::from_millis;
    let hour = Duration::from_secs(3_600);
    if config.slots == 0 {
        return Err(Error::invalid("`slots` is at least 1"));
    }
    for (name, value, least, most) in [
        ("safety_poll", config.poll, ms(100), hour),
        ("call_deadline", config.deadline, ms(10), ms(60_000)),
        ("mark", config.mark, ms(1_000), 24 * hour),
        ("jitter", config.jitter, ms(0), ms(1_000)),
        ("grace", config.grace, ms(0), 24 * hour),
    ] {
        if !(least..=most).contains(&value) {
            let range = format!("`{name}` is {value:?}, but must be from {least:?} to {most:?}");
            return Err(Error::invalid(range));
        }
    }
    Ok(())
}

/// Whether a job can run on this backend at all.
pub(super) fn check(name: &str, entry: &Entry, backend: &dyn Backend) -> Result {
    check_free(name)?;
    entry.check().map_err(|error| {
        Error::new(error.kind(), format!("the job {name:?}: {error}")).source(error)
    })?;
    if backend.leases().is_some() {
        return Ok(());
    }
    let settings = &entry.settings;
    let cannot = |what: &str| {
        let text = format!(
            "the job {name:?} wants {what}, but {backend:?} has no leases; use another backend"
        );
        Err(Error::new(Kind::Unsupported, text))
    };
    if settings.mutex.is_some() {
        return cannot("a mutex group");
    }
    if settings.placement == Placement::EveryNode {
        return Ok(());
    }
    match (settings.delivery, settings.overlap) {
        (Delivery::AtLeastOnce { .. }, _) => cannot("at-least-once delivery"),
        (_, Overlap::Skip | Overlap::Wait) => cannot("an overlap policy"),
        (Delivery::AtMostOnce, Overlap::Allow) => Ok(()),
    }
}

pub(super) fn random(runtime: &dyn Runtime) -> u128 {
    u128::from(runtime.random()) << 64 | u128::from(runtime.random())
}

/// 128 random bits, so that a restart, a clone of the machine or a re-used process number is
/// another node; the label is for people only.
fn node_id(label: Option<&str>, runtime: &dyn Runtime) -> Result<Arc<str>> {
    let random = random(runtime);
    let Some(label) = label else { return Ok(format!("{random:032x}").into()) };
    check_name(label)?;
    if label.len() > MAX_LABEL {
        let long = format!("the label {label:?} is longer than {MAX_LABEL} bytes");
        return Err(Error::invalid(long));
    }
    Ok(format!("{label}-{random:032x}").into())
}
