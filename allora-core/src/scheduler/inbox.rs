//! The inputs that the other parts of the scheduler leave for the planners.
//!
//! A planner runs user code, so it must have no lock, and belongs to its claimer alone. All other
//! parts put their inputs here.

use super::runs::active_run::RunResult;
use crate::{
    backend::Reply,
    job::Placement,
    planner::{Input, RunUpdate, SlotId},
    run::Run,
};
use std::ops::{Index, IndexMut};

/// The store's reply to an extension or an end of a run. `result`: the result of the run; `None` for an
/// extension.
pub(super) fn updated(
    slot: Option<SlotId>,
    run: &Run,
    result: Option<&RunResult>,
    reply: Reply,
) -> RunUpdate {
    let completed = result.filter(|result| result.is_completion()).map(|_| run.then());
    let (name, fence, scheduled_at) = (run.shared_name(), run.fence(), run.scheduled_at());
    RunUpdate { slot, name, fence, scheduled_at, completed, window: None, reply }
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
