//! The log of the jobs' executions, kept independently of the store.

use allora_core::{Run, Runtime, Time, runtime::SimNode};
use std::sync::{Arc, Mutex};

/// One execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) at: Time,
    pub(crate) trigger: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) fence: i64,
    pub(crate) key: String,
    /// By the true clock.
    pub(crate) began: Time,
    pub(crate) ended: Option<(Time, Over)>,
}

/// The end of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Ran,
    Failed,
    /// Its future was dropped, or panicked.
    Dropped,
}

/// The executions of all jobs, in the order in which they began.
#[derive(Clone)]
pub(crate) struct Log {
    clock: SimNode,
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Log {
    pub(crate) fn new(clock: SimNode) -> Self {
        Self { clock, entries: Arc::default() }
    }

    pub(crate) fn begin(&self, run: &Run) -> Execution {
        let mut entries = self.entries.lock().unwrap();
        entries.push(Entry {
            name: run.name().to_owned(),
            node: run.node().to_owned(),
            at: run.scheduled_at(),
            trigger: run.trigger().map(str::to_owned),
            attempt: run.attempt(),
            fence: run.fence(),
            key: run.occurrence_key(),
            began: self.clock.wall(),
            ended: None,
        });
        Execution { log: self.clone(), index: entries.len() - 1, over: Over::Dropped }
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }

    pub(crate) fn of(&self, name: &str) -> Vec<Entry> {
        let entries = self.entries.lock().unwrap();
        entries.iter().filter(|entry| entry.name == name).cloned().collect()
    }

    /// The nominal instants of a job's executions, in the order in which they began.
    pub(crate) fn times(&self, name: &str) -> Vec<Time> {
        self.of(name).iter().map(|entry| entry.at).collect()
    }
}

/// Writes its end into the log when it is dropped.
pub(crate) struct Execution {
    log: Log,
    index: usize,
    over: Over,
}

impl Execution {
    pub(crate) fn over(mut self, over: Over) {
        self.over = over;
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        let now = self.log.clock.wall();
        self.log.entries.lock().unwrap()[self.index].ended = Some((now, self.over));
    }
}
