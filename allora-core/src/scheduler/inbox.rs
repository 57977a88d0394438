//! Inputs of the planners. A planner runs user code, so it belongs to its claimer and has no lock;
//! the other parts of the scheduler leave their inputs here.

use super::runs::active_run::RunResult;
use crate::{
    backend::{Cursor, Reply},
    job::{JobSpec, Placement},
    planner::{RunUpdate, SlotId},
    registry::Rankings,
    run::Run,
};
use std::{
    ops::{Index, IndexMut},
    sync::Arc,
    time::Duration,
};

/// A change that a planner has to know.
pub(crate) enum Input {
    /// The job was added to this node.
    Add(Arc<str>, JobSpec),
    /// The job was removed from this node.
    Remove(Arc<str>),
    /// The record of this job has changed.
    Changed(Arc<str>),
    /// A place of the concurrency key with this record, or of any key, may be free.
    KeyFree(Option<Arc<str>>),
    /// The store has replied to an extension or an end.
    Update(Update),
    /// The store did not answer an extension or an end of this run, although it answered others.
    Failed(SlotId, Run),
    /// The clock that the planner used was far ahead: begin again.
    ClockSetBack,
    /// The order of the nodes has changed.
    Rankings(Rankings),
    /// A named calendar has changed.
    Calendars,
}

impl Input {
    /// The job that it is about.
    pub(super) fn name(&self) -> Option<Arc<str>> {
        match self {
            Input::Add(name, _) | Input::Remove(name) | Input::Changed(name) => Some(name.clone()),
            Input::Update(update) => Some(update.run.shared_name()),
            Input::Failed(_, run) => Some(run.shared_name()),
            Input::KeyFree(_) | Input::ClockSetBack | Input::Rankings(_) | Input::Calendars => None,
        }
    }
}

/// The store's reply to an extension or an end of a run.
pub(crate) struct Update {
    slot: SlotId,
    run: Run,
    completed: Option<Cursor>,
    /// The longest delay of a start of its job.
    window: Option<Duration>,
    reply: Reply,
}

impl Update {
    /// `result`: the result of the run; `None` for an extension.
    pub(super) fn new(slot: SlotId, run: Run, result: Option<&RunResult>, reply: Reply) -> Self {
        let completed = result.filter(|result| result.is_completion()).map(|_| run.then());
        Self { slot, run, completed, window: None, reply }
    }

    /// Of a job whose starts are late by so much at most.
    pub(super) fn late_by_at_most(mut self, window: Option<Duration>) -> Self {
        self.window = window;
        self
    }

    pub(super) fn reply(&self) -> &Reply {
        &self.reply
    }

    pub(super) fn for_planner(&self) -> RunUpdate<'_> {
        RunUpdate {
            slot: self.slot,
            name: self.run.name(),
            fence: self.run.fence(),
            scheduled_at: self.run.scheduled_at(),
            completed: self.completed,
            window: self.window,
        }
    }
}

/// The inputs of one planner, and what its claimer waits for.
#[derive(Default)]
pub(crate) struct Inbox {
    inputs: Vec<Input>,
    /// An occurrence is due and waits for a run to end.
    pub(crate) full: bool,
    /// The claimer has ended.
    is_closed: bool,
}

impl Inbox {
    /// Adds an input. Returns it if the claimer has ended.
    #[must_use = "its destructor is user code, which must not run under the lock"]
    pub(crate) fn push(&mut self, input: Input) -> Option<Input> {
        if self.is_closed {
            return Some(input);
        }
        self.inputs.push(input);
        None
    }

    pub(super) fn take(&mut self) -> Vec<Input> {
        std::mem::take(&mut self.inputs)
    }

    /// `true` if it rejects all inputs.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Rejects all further inputs.
    pub(super) fn close(&mut self) -> Vec<Input> {
        self.is_closed = true;
        self.take()
    }
}

/// One value for the jobs that run on one of the nodes, and one for those that run on every node.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByPlacement<T> {
    one_node: T,
    every_node: T,
}

impl<T> Index<Placement> for ByPlacement<T> {
    type Output = T;

    fn index(&self, placement: Placement) -> &T {
        match placement {
            Placement::OneNode => &self.one_node,
            Placement::EveryNode => &self.every_node,
        }
    }
}

impl<T> IndexMut<Placement> for ByPlacement<T> {
    fn index_mut(&mut self, placement: Placement) -> &mut T {
        match placement {
            Placement::OneNode => &mut self.one_node,
            Placement::EveryNode => &mut self.every_node,
        }
    }
}
