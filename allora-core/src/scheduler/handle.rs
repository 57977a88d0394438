//! The handle to a running scheduler.

use super::{
    node::{Node, Stop},
    store_request::{OP, reschedule, within},
};
use crate::{
    backend::{Action, Batch, JobState, OPERATOR, Occurrence, Operation, TimeSource},
    error::{Error, ErrorKind, Result},
    job::JobSpec,
    name::check_name,
};
use std::{fmt, sync::Arc};

/// A handle that stops a scheduler, adds jobs to it, and operates on jobs in its store. A clone is
/// the same handle.
#[derive(Clone)]
pub struct Handle {
    node: Arc<Node>,
}

impl Handle {
    pub(super) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// The id of this node. It is unique among all processes.
    pub fn node(&self) -> &str {
        &self.node.id
    }

    /// The number of active runs on this node.
    pub fn running(&self) -> usize {
        self.node.shared().running
    }

    /// Stops the scheduler. It claims nothing more, and its runs may continue for the [grace
    /// period](super::Builder::grace). When a tenth of the period is left (at most 5 s), runs are
    /// [cancelled](crate::Run::cancelled); at its end their futures are dropped. At-least-once
    /// occurrences are then released. This call returns at once; `run` returns at the end.
    pub fn stop(&self) {
        self.node.stop(Stop::Graceful);
    }

    /// Stops the scheduler without a grace period; otherwise as [`stop`](Self::stop).
    pub fn stop_now(&self) {
        self.node.stop(Stop::Now);
    }

    /// Adds a job while the scheduler runs.
    ///
    /// # Errors
    /// As [`Builder::build`](super::Builder::build).
    pub fn add(&self, name: impl Into<Arc<str>>, spec: impl Into<JobSpec>) -> Result {
        let (name, spec) = (name.into(), spec.into());
        super::config::check(&name, &spec)?;
        self.node.add(name, spec)
    }

    /// Removes a job from this node while the scheduler runs. Returns whether the node had the job.
    /// Active runs continue, other nodes are not affected, and the job's record stays in the store.
    /// A job of this name that is [added](Self::add) later continues from there. A job that runs on
    /// every node has no record and begins again.
    pub fn remove(&self, name: &str) -> bool {
        self.node.remove(name)
    }

    /// Triggers one run of a job, now and independently of its schedule, on the first node with
    /// capacity. `id` identifies the trigger: the same id again, while it waits, changes nothing.
    /// Jobs that run on every node cannot be triggered.
    ///
    /// # Errors
    /// `Unsupported` if the backend has no [queries](crate::Backend::queries); `NotFound`,
    /// `Invalid`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have triggered the run. Trigger it again with the same id.
    pub async fn trigger(&self, name: &str, id: &str) -> Result<Occurrence> {
        let node = &self.node;
        let state = self.change(name, Action::Trigger { id, scheduled_at: None }).await?;
        let triggered = |run: &Occurrence| run.trigger.as_deref() == Some(id);
        let at = state
            .head
            .filter(triggered)
            .map_or_else(|| node.now(&node.shared()), |head| head.scheduled_at);
        Ok(Occurrence { scheduled_at: at, trigger: Some(id.to_owned()) })
    }

    /// Pauses a job's schedule on all nodes and records the reason. Triggers still run. Active runs
    /// continue.
    ///
    /// # Errors
    /// As [`trigger`](Self::trigger).
    ///
    /// # Cancel safety
    /// A dropped call may or may not have paused the job. Pause it again.
    pub async fn pause(&self, name: &str, note: &str) -> Result {
        self.change(name, Action::Pause { note }).await.map(|_| ())
    }

    /// Resumes a paused job's schedule. The catch-up policy decides about the occurrences of the
    /// pause.
    ///
    /// # Errors
    /// As [`trigger`](Self::trigger).
    ///
    /// # Cancel safety
    /// A dropped call may or may not have resumed the job. Resume it again.
    pub async fn resume(&self, name: &str) -> Result {
        self.change(name, Action::Resume { skip: None }).await.map(|_| ())
    }

    async fn change(&self, name: &str, action: Action<'_>) -> Result<JobState> {
        let node = &self.node;
        check_name(name)?;
        if node.backend.queries().is_none() {
            let backend = &node.backend;
            let text = format!(
                "{backend:?} has no queries, so that no node would find the change; use another \
                 backend"
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let time = TimeSource::Store { fallback: node.runtime.wall() };
        let operations = [Operation::new(name, action)];
        let batch = Batch::new(OPERATOR, time, &operations);
        let applied = within(node, OP, reschedule(&*node.backend, batch)).await?;
        let state = applied.single()?.state().unwrap_or_default();
        node.changed(name);
        Ok(state)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("node", &self.node.id).finish_non_exhaustive()
    }
}
