//! Extensions and ends of runs on their way to the store.

use super::{
    active_run::{ActiveRun, LeaseTimers, RunId, RunResult},
    claimer::{OP, reschedule},
    node::{Node, SharedState},
    within::within,
};
use crate::{
    backend::{Action, Applied, Backend, Batch, Operation, Reply, TimeSource},
    error::{Error, Result},
    event::Event,
    planner::RunUpdate,
    run::Run,
};
use std::time::{Duration, Instant};

/// The extension or the end of one run, on its way to the store.
pub(super) struct PendingUpdate {
    id: RunId,
    run: Run,
    /// The result; `None`: the run is alive, and its lease is extended.
    result: Option<RunResult>,
    duration: Duration,
}

/// The updates whose operations failed individually, and the last error.
#[derive(Default)]
pub(super) struct Failed {
    /// Runs that have ended.
    pub(super) ended: Vec<RunId>,
    pub(super) error: Option<Error>,
}

impl PendingUpdate {
    /// The updates for these runs.
    pub(super) fn gather(node: &Node, extend: &[RunId], ended: &[RunId]) -> Vec<Self> {
        let shared = node.shared();
        // A run that has ended since needs no extension; its end is recorded in its turn.
        let is_alive =
            |id: &&RunId| shared.active.get(**id).is_some_and(|active| active.result.is_none());
        let updates = extend.iter().filter(is_alive).chain(ended).filter_map(|id| {
            let active = shared.active.get(*id)?;
            let (run, result) = (active.run.clone(), active.result.clone());
            Some(Self { id: *id, run, result, duration: active.timers.duration })
        });
        updates.collect()
    }

    fn operation(&self) -> Operation<'_> {
        let fence = self.run.fence();
        let action = match &self.result {
            Some(result) => result.action(fence, self.run.then()),
            None => Action::Extend { fence, duration: self.duration },
        };
        Operation::new(self.run.name(), action)
    }

    /// Applies the reply. Returns an event if the lease is lost.
    fn on_reply(&self, shared: &mut SharedState, reply: &Reply, sent: Instant) -> Option<Event> {
        let (name, fence) = (self.run.shared_name(), self.run.fence());
        let mut slot = shared.active.get(self.id)?.slot;
        if self.result.is_some() {
            slot = shared.active.remove(self.id).slot;
        } else if let Reply::Extended(_) = reply {
            let timers = LeaseTimers::new(sent, self.duration, self.duration);
            shared.active.get_mut(self.id)?.timers = timers;
            shared.scan_soon(timers.extend_at);
        } else {
            shared.active.get_mut(self.id)?.lost = true;
        }
        let completed = self.result.as_ref().filter(|result| result.is_completion());
        let update = RunUpdate {
            slot,
            name: self.run.name(),
            fence,
            scheduled_at: self.run.scheduled_at(),
            completed: completed.map(|_| self.run.then()),
        };
        shared.planner.on_run_update(update, reply);
        let is_kept = matches!(reply, Reply::Extended(_) | Reply::Accepted);
        (!is_kept).then_some(Event::LeaseLost { name, key: None, fence })
    }
}

/// Sends updates to the store as one batch, and applies the replies.
pub(super) async fn send(node: &Node, updates: &[PendingUpdate]) -> Result<Failed> {
    let time = TimeSource::Store { fallback: node.runtime.wall() };
    let sent = node.runtime.now();
    let applied = within(node, OP, apply(node, &*node.backend, time, updates)).await?;
    node.store_is_up();
    Ok(take_in(node, updates, applied, sent))
}

/// Applies updates of jobs that run on every node.
pub(super) async fn send_local(node: &Node, updates: &[PendingUpdate]) -> Result<Failed> {
    let time = TimeSource::Fixed(node.now(&node.shared()));
    let sent = node.runtime.now();
    let applied = apply(node, &node.local, time, updates).await?;
    Ok(take_in(node, updates, applied, sent))
}

async fn apply(
    node: &Node,
    backend: &dyn Backend,
    time: TimeSource,
    updates: &[PendingUpdate],
) -> Result<Applied> {
    let operations: Vec<Operation<'_>> = updates.iter().map(PendingUpdate::operation).collect();
    reschedule(backend, Batch::new(&node.id, time, &operations)).await
}

fn take_in(node: &Node, updates: &[PendingUpdate], applied: Applied, sent: Instant) -> Failed {
    let mut failed = Failed::default();
    let mut events = Vec::new();
    let (mut lost, mut extended) = (Vec::new(), Vec::new());
    let is_dirty = {
        let mut shared = node.shared();
        for (update, reply) in updates.iter().zip(applied.replies) {
            let reply = match reply {
                Ok(reply) => reply,
                Err(error) => {
                    failed.ended.extend(update.result.is_some().then_some(update.id));
                    failed.error = Some(error);
                    continue;
                }
            };
            let event = update.on_reply(&mut shared, &reply, sent);
            lost.extend(event.is_some().then_some(&update.run));
            extended.extend(reply.extended().map(|_| &update.run));
            events.extend(event);
        }
        shared.planner.is_dirty()
    };
    node.emit(events);
    // Waking user code must not happen under the lock.
    lost.into_iter().for_each(|run| run.control().drop_now());
    extended.into_iter().for_each(|run| run.control().confirm());
    // Another run may wait for the end of this one.
    if is_dirty {
        node.claimer.notify();
    }
    failed
}

/// `true` if the run belongs to a job that runs on every node.
pub(super) fn is_local(shared: &SharedState, id: RunId) -> bool {
    shared.active.get(id).is_some_and(ActiveRun::is_local)
}
