//! The lines that run: what the crontabs say now, as jobs of the scheduler.

use super::{
    context::CommandContext,
    process::{CommandSpec, Invocation, execute},
};
use crate::crontab_files::{Line, Nodes, Shell};
use allora_core::{
    AnySchedule, BoxError, Handle, Job, JobSpec, Run, Schedule, Settings, Time, at,
    runtime::Runtime, schedule::Warning,
};
use async_trait::async_trait;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The jobs of this daemon.
#[derive(Debug)]
pub(crate) struct Jobs {
    handle: Handle,
    context: Arc<CommandContext>,
    labels: Vec<String>,
    running: BTreeMap<String, Line>,
}

/// The numbers of lines that were added, removed and changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) added: usize,
    pub(crate) removed: usize,
    pub(crate) changed: usize,
}

impl Jobs {
    pub(crate) fn new(handle: Handle, context: Arc<CommandContext>, labels: Vec<String>) -> Self {
        Self { handle, context, labels, running: BTreeMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// Runs these lines from now on, and no others. What runs goes on.
    ///
    /// # Errors
    /// A line that the scheduler refuses; those before it are in force.
    pub(crate) fn apply(&mut self, lines: Vec<Line>) -> allora_core::Result<Difference> {
        let mut difference = Difference::default();
        let here = |line: &Line| match &line.nodes {
            Nodes::All => true,
            Nodes::Labelled(label) => self.labels.contains(label),
        };
        let wanted: BTreeMap<String, Line> = lines
            .into_iter()
            .filter(|line| line.schedule.is_some() && here(line))
            .map(|line| (line.name.clone(), line))
            .collect();
        let handle = &self.handle;
        self.running.retain(|name, _| {
            let stays = wanted.contains_key(name);
            if !stays {
                handle.remove(name);
                difference.removed += 1;
            }
            stays
        });
        for (name, line) in wanted {
            let known = self.running.get(&name);
            if known.is_some_and(|known| known.runs_as(&line)) {
                continue;
            }
            if known.is_some() {
                self.handle.remove(&name);
                difference.changed += 1;
            } else {
                difference.added += 1;
            }
            if let Some(schedule) = line.schedule.clone() {
                self.add(&line, schedule)?;
            }
            self.running.insert(name, line);
        }
        Ok(difference)
    }

    /// Runs the `@reboot` lines among these, here, now.
    ///
    /// # Errors
    /// A line that the scheduler refuses.
    pub(crate) fn start_up(&self, lines: &[Line]) -> allora_core::Result {
        for line in lines.iter().filter(|line| line.schedule.is_none()) {
            let soon = self.context.runtime.wall() + Duration::from_secs(1);
            let entry = JobSpec::from(Command::new(at(soon), line, &self.context));
            self.handle.add(line.name.as_str(), entry.on_every_node())?;
        }
        Ok(())
    }

    fn add(&self, line: &Line, schedule: AnySchedule) -> allora_core::Result {
        let command = Command::new(schedule, line, &self.context);
        // The command ends its process group itself when the time is over: a future that is
        // dropped could only kill it.
        let settings = Settings { timeout: None, ..line.settings.clone() };
        self.handle.add(line.name.as_str(), JobSpec::with(Arc::new(command), settings))
    }
}

/// A command as a job.
struct Command<S> {
    schedule: S,
    work: Arc<CommandSpec>,
    context: Arc<CommandContext>,
}

impl<S> Command<S> {
    fn new(schedule: S, line: &Line, context: &Arc<CommandContext>) -> Self {
        let Shell { command, stdin, environment, user } = (*line.shell).clone();
        let timeout = line.settings.timeout;
        let call = Invocation::Shell(command);
        let work =
            CommandSpec { invocation: call, stdin, environment, folder: None, user, timeout };
        Self { schedule, work: Arc::new(work), context: context.clone() }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Schedule> Job for Command<S> {
    fn next_at(&self, after: Time) -> Option<Time> {
        self.schedule.next_at(after)
    }

    async fn run(&self, run: Run) -> Result<(), BoxError> {
        execute(self.work.clone(), run, self.context.clone()).await
    }

    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        self.schedule.latest_at(from, until)
    }

    fn count(&self, from: Time, until: Time) -> Option<u64> {
        self.schedule.count(from, until)
    }

    fn definition(&self) -> Option<String> {
        self.schedule.definition()
    }

    fn check(&self) -> allora_core::Result {
        Ok(self.schedule.check()?)
    }

    fn warnings(&self) -> &[Warning] {
        // They are logged with file and line when the crontab is read.
        &[]
    }
}
