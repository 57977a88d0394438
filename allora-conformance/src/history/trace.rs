//! The trace of a run of many nodes: records as the store had them, requests, the lives of the
//! nodes, and their code. The [liveness check](super::liveness) reads it.

use allora_core::{Run, Time, backend::JobState};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// One thing that happened, by one clock for all.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Its time.
    pub at: Time,
    /// The observation.
    pub seen: Seen,
}

/// An observation of a store or of a node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Seen {
    /// The record of a job, after an operation on it; `None` if there is none, or a tombstone.
    Record {
        /// The job.
        job: Arc<str>,
        /// The record.
        state: Option<Arc<JobState>>,
    },
    /// The store's clock is so far ahead of the clock of this trace from now on, in milliseconds.
    Clock(i64),
    /// A request has ended.
    Request {
        /// The node that sent it.
        node: Arc<str>,
        /// It was answered in time.
        answered: bool,
        /// The number of records that a query found.
        found: usize,
        /// The work that waits because there was no reply.
        delays: Delays,
    },
    /// A node has started.
    Up {
        /// The node.
        node: Arc<str>,
        /// The largest number of its simultaneous runs.
        concurrency: usize,
    },
    /// A node was asked to stop.
    Stopping(Arc<str>),
    /// A node has ended.
    Down {
        /// The node.
        node: Arc<str>,
        /// The number of runs whose result it did not record, as it has counted them; `None` if it
        /// was killed.
        unrecorded: Option<usize>,
    },
    /// A node goes on, or is frozen or suspended.
    Awake(Arc<str>, bool),
    /// The store answers the requests of a node at least in part, or does not.
    Reachable(Arc<str>, bool),
    /// A node has the code of a job from now on.
    Added {
        /// The node.
        node: Arc<str>,
        /// The job, or the kind of stored schedules.
        job: Arc<str>,
        /// The code.
        code: Code,
    },
    /// A node has the code of a job no longer.
    Removed {
        /// The node.
        node: Arc<str>,
        /// The job, or the kind.
        job: Arc<str>,
    },
    /// The code of a run was called.
    Began(Execution),
    /// The code of a run has ended, or was dropped.
    Over(Execution),
}

/// The work that waits because a request has no reply, or was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delays {
    /// Nothing: there was a reply, or no start waits for it.
    #[default]
    Nothing,
    /// These jobs.
    Jobs(Arc<[Arc<str>]>),
    /// Work that only a search finds: stored schedules and triggers.
    Found,
    /// Every job of the node: the store's clock was asked for, or a calendar.
    All,
}

/// The code of a job on one node.
#[derive(Clone)]
#[non_exhaustive]
pub enum Code {
    /// A job in code, with this definition.
    Job(String),
    /// A kind of stored schedules.
    Kind,
    /// A job on every node, with its schedule: from one time to the next.
    EveryNode(Following),
}

/// A schedule: from a time to the next nominal time.
pub type Following = Arc<dyn Fn(Time) -> Option<Time> + Send + Sync>;

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(definition) => f.debug_tuple("Job").field(definition).finish(),
            Self::Kind => f.write_str("Kind"),
            Self::EveryNode(_) => f.write_str("EveryNode"),
        }
    }
}

/// The call of a job's code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Execution {
    /// The node.
    pub node: Arc<str>,
    /// The job.
    pub job: Arc<str>,
    /// The fence of the run.
    pub fence: i64,
    /// The nominal time.
    pub scheduled_at: Time,
}

/// The observations of one run, in memory. A clone is the same trace.
#[derive(Clone)]
pub struct Trace(Arc<Shared>);

struct Shared {
    seed: u64,
    clock: Box<dyn Fn() -> Time + Send + Sync>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    seen: Vec<Observation>,
    work: usize,
    /// The last state of each record.
    last: HashMap<Arc<str>, Option<Arc<JobState>>>,
}

impl Trace {
    /// An empty trace of the run of this seed, by this clock.
    pub fn new(seed: u64, clock: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { seed, clock: Box::new(clock), inner: Mutex::default() }))
    }

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// Now.
    pub fn now(&self) -> Time {
        (self.0.clock)()
    }

    /// Writes an observation down.
    pub fn write(&self, seen: Seen) {
        let at = self.now();
        let mut inner = self.inner();
        inner.work += 1 + if let Seen::Request { found, .. } = &seen { *found } else { 0 };
        inner.seen.push(Observation { at, seen });
    }

    /// Writes down the record of a job, if it is not as it was.
    pub fn record(&self, job: &str, state: Option<JobState>) {
        let at = self.now();
        let mut inner = self.inner();
        if inner.last.get(job).is_some_and(|last| last.as_deref() == state.as_ref()) {
            return;
        }
        let (job, state): (Arc<str>, _) = (Arc::from(job), state.map(Arc::new));
        inner.work += 1;
        inner.last.insert(job.clone(), state.clone());
        inner.seen.push(Observation { at, seen: Seen::Record { job, state } });
    }

    /// Writes down that the code of a run was called, and its end when the returned value is
    /// dropped.
    pub fn begin(&self, run: &Run) -> Running {
        let execution = Execution {
            node: run.node().into(),
            job: run.name().into(),
            fence: run.fence(),
            scheduled_at: run.scheduled_at(),
        };
        self.write(Seen::Began(execution.clone()));
        Running { trace: self.clone(), execution }
    }

    /// The observations so far.
    pub fn observations(&self) -> Vec<Observation> {
        self.inner().seen.clone()
    }

    /// The number of observations and of found records so far: a measure of work.
    pub fn work(&self) -> usize {
        self.inner().work
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("seed", &self.0.seed)
            .field("observations", &self.inner().seen.len())
            .finish()
    }
}

/// A call of a job's code.
#[derive(Debug)]
#[must_use = "the end is written down when this is dropped"]
pub struct Running {
    trace: Trace,
    execution: Execution,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.trace.write(Seen::Over(self.execution.clone()));
    }
}
