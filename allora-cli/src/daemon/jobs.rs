//! The lines that run: what the crontabs say now, as jobs of the scheduler.
//!
//! A job is named after its file and its text, not after the number of its line, because lines move
//! when a file is edited. A line of every node, and `@reboot`, is a job of each machine, named with
//! `@` and the node: so it has a history and can be paused.

use super::{context::CommandContext, output::MAILED, process::execute};
use crate::{
    crontab_files::{Line, Shell},
    kinds::command::{CommandSpec, Invocation, TAIL},
};
use allora_core::{
    AnySchedule, Handle, JobSpec, Placement, Run, Schedule, at, job, runtime::Runtime,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The jobs of this daemon.
#[derive(Debug)]
pub(crate) struct Jobs {
    handle: Handle,
    context: Arc<CommandContext>,
    /// The name of the machine, of which a line of every node has a job.
    machine: String,
    labels: Vec<String>,
    running: BTreeMap<String, Line>,
    /// The names of lines for nodes with other labels, and those of them that run on each such node.
    elsewhere: Vec<(String, Placement)>,
}

/// The numbers of lines that were added, removed and changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) added: usize,
    pub(crate) removed: usize,
    pub(crate) changed: usize,
}

impl Jobs {
    pub(crate) fn new(
        handle: Handle,
        context: Arc<CommandContext>,
        machine: String,
        labels: Vec<String>,
    ) -> Self {
        Self { handle, context, machine, labels, running: BTreeMap::new(), elsewhere: Vec::new() }
    }

    /// The names of the lines that only other nodes run, and the beginnings of such names. They are no
    /// orphans while no node has the labels.
    pub(crate) fn elsewhere(&self) -> (Vec<String>, Vec<String>) {
        let of = |wanted: Placement| {
            let lines = self.elsewhere.iter().filter(move |(_, placement)| *placement == wanted);
            lines.map(|(name, _)| name.clone())
        };
        let prefixes = of(Placement::EveryNode).map(|name| format!("{name}@"));
        (of(Placement::OneNode).collect(), prefixes.collect())
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
        let here = |line: &Line| line.nodes.includes(&self.labels);
        // Lines that run on nodes with a label: if no live node has it, all nodes report that.
        let elsewhere = lines.iter().filter(|line| !here(line));
        let names = elsewhere.clone().filter(|line| line.schedule.is_some());
        self.elsewhere = names.map(|line| (line.name.clone(), line.settings.placement)).collect();
        let needed = elsewhere.flat_map(|line| line.nodes.required());
        self.handle
            .need_labels(needed.filter(|label| !self.labels.iter().any(|own| own == label)))?;
        let wanted: BTreeMap<String, Line> = lines
            .into_iter()
            .filter(|line| line.schedule.is_some() && here(line))
            .map(|line| self.on_this_machine(line))
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
        let here = |line: &&Line| line.schedule.is_none() && line.nodes.includes(&self.labels);
        for line in lines.iter().filter(here) {
            let soon = self.context.runtime.wall() + Duration::from_secs(1);
            let mut line = line.clone();
            line.settings.placement = Placement::EveryNode;
            let line = self.on_this_machine(line);
            self.add(&line, AnySchedule::At(at(soon)))?;
        }
        Ok(())
    }

    /// The line as a job of this machine alone, if it runs on each: its record has the machine's
    /// name, so that each machine's runs are in the history, and can be paused.
    fn on_this_machine(&self, mut line: Line) -> Line {
        if line.settings.placement == Placement::EveryNode {
            line.settings.placement = Placement::OneNode;
            line.name = format!("{}@{}", line.name, self.machine);
        }
        line
    }

    fn add(&self, line: &Line, schedule: AnySchedule) -> allora_core::Result {
        let job = command(schedule, line, &self.context);
        // The command ends its process group itself when the time is over: a future that is
        // dropped could only kill it.
        let mut settings = line.settings.clone();
        settings.timeout = None;
        self.context.alerts.set(line);
        self.handle.add(line.name.as_str(), job.with_settings(settings))
    }
}

/// A command as a job.
fn command<S: Schedule>(schedule: S, line: &Line, context: &Arc<CommandContext>) -> JobSpec {
    let Shell { command, stdin, environment, user } = (*line.shell).clone();
    let timeout = line.settings.timeout;
    let invocation = Invocation::Shell(command);
    let kept_output = if line.notices.mail_to.is_some() { MAILED } else { TAIL };
    let folder = None;
    let work = Arc::new(CommandSpec {
        invocation,
        stdin,
        environment,
        folder,
        user,
        timeout,
        kept_output,
    });
    let context = context.clone();
    // The warnings are logged with file and line when the crontab is read.
    job(schedule, async move |run: Run| execute(work, run, context).await).without_warnings()
}
