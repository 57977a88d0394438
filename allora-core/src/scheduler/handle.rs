//! A scheduler from outside.

use super::node::{Node, Stop};
use crate::{
    backend::{Change, Now, Occurrence, Schedules},
    error::{Error, Kind, Result},
    job::Entry,
    name::check_name,
};
use std::{fmt, sync::Arc};

/// Stops a scheduler, gives it more jobs, reaches its stored ones. A clone is the same handle.
#[derive(Clone)]
pub struct Handle {
    node: Arc<Node>,
}

impl Handle {
    pub(super) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// The id of this node: no other process has it, ever.
    pub fn node(&self) -> &str {
        &self.node.id
    }

    /// How many runs are alive on this node.
    pub fn running(&self) -> usize {
        self.node.inside().running
    }

    /// Stops the scheduler: it takes nothing more, its runs may go on for the
    /// [grace](super::Builder::grace). When a tenth of that is left (at most 5 s), runs are
    /// [cancelled](crate::Run::cancelled); at its end their futures are dropped. What was taken at
    /// least once is given back. Returns at once; `run` returns at the end.
    pub fn stop(&self) {
        self.node.stop(Stop::Graceful);
    }

    /// As [`stop`](Self::stop), without any grace.
    pub fn stop_now(&self) {
        self.node.stop(Stop::Now);
    }

    /// Adds a job while the scheduler runs.
    ///
    /// # Errors
    /// As [`Builder::build`](super::Builder::build).
    pub fn add(&self, name: impl Into<Arc<str>>, entry: impl Into<Entry>) -> Result {
        let (name, entry) = (name.into(), entry.into());
        super::builder::check(&name, &entry, &*self.node.backend)?;
        self.node.inside().planner.add(name, entry)?;
        self.node.taker.ring();
        Ok(())
    }

    /// Takes a job away from this node while the scheduler runs; answers whether it had the job.
    /// What runs goes on, other nodes go on, and the job's record stays in the store: a job of this
    /// name that is [added](Self::add) later goes on from there.
    pub fn remove(&self, name: &str) -> bool {
        self.node.inside().planner.remove(name)
    }

    /// One run of a job beside its schedule, now, on whatever node has room first; `id` is the
    /// trigger's own, and the same id again while it waits changes nothing. Does not work for jobs
    /// that run on every node.
    ///
    /// # Errors
    /// `Unsupported` if the backend has no [`Schedules`]; `NotFound`, `Invalid`, `Unavailable`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have pulled the trigger; pull it again with the same id.
    pub async fn trigger(&self, name: &str, id: &str) -> Result<Occurrence> {
        let node = &self.node;
        let now = Now::Store { node: node.runtime.wall() };
        let change = self.schedules()?.modify(name, Change::Trigger { id, at: None }, now);
        let state = super::within(node, "trigger", change).await?;
        node.inside().planner.heard_of(name);
        node.taker.ring();
        let pulled = |run: &Occurrence| run.trigger.as_deref() == Some(id);
        let at = state.head.filter(pulled).map_or_else(|| node.now(&node.inside()), |head| head.at);
        Ok(Occurrence { at, trigger: Some(id.to_owned()) })
    }

    /// Stops a job's schedule on all nodes, and says why; triggers still run. What runs goes on.
    ///
    /// # Errors
    /// As [`trigger`](Self::trigger).
    ///
    /// # Cancel safety
    /// A dropped call may or may not have paused it; pause it again.
    pub async fn pause(&self, name: &str, note: &str) -> Result {
        self.change(name, Change::Pause { note }).await
    }

    /// Starts a paused job's schedule again; its catch-up policy decides about what passed
    /// meanwhile.
    ///
    /// # Errors
    /// As [`trigger`](Self::trigger).
    ///
    /// # Cancel safety
    /// A dropped call may or may not have resumed it; resume it again.
    pub async fn resume(&self, name: &str) -> Result {
        self.change(name, Change::Resume { skip: None }).await
    }

    async fn change(&self, name: &str, change: Change<'_>) -> Result {
        let node = &self.node;
        check_name(name)?;
        let now = Now::Store { node: node.runtime.wall() };
        super::within(node, "change", self.schedules()?.modify(name, change, now)).await?;
        node.inside().planner.heard_of(name);
        node.taker.ring();
        Ok(())
    }

    fn schedules(&self) -> Result<&dyn Schedules> {
        self.node.backend.schedules().ok_or_else(|| {
            let cannot =
                format!("{:?} has no stored schedules; use another backend", self.node.backend);
            Error::new(Kind::Unsupported, cannot)
        })
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("node", &self.node.id).finish_non_exhaustive()
    }
}
