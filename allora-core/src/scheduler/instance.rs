//! One scheduler, from its start to its end.

use super::{
    claimer::Claimer,
    handle::Handle,
    node::{Node, Stop},
    supervisor::{Stopped, Supervisor},
};
use crate::event::Event;
use futures::future::{Either, join, pending, select};
use std::{
    fmt,
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

/// Runs jobs at their times, each occurrence on one of the nodes that share a backend.
///
/// ```
/// use allora_core::{Run, Scheduler, every};
/// # use allora_core::runtime::Sim;
/// use std::time::Duration;
///
/// # fn main() -> allora_core::Result {
/// # let sim = Sim::new(1);
/// # let store = allora_memory::Memory::new();
/// let scheduler = Scheduler::builder(store)
///     .job("empty_cache", every(Duration::from_secs(3_600)), async |run: Run| {
///         println!("{} of {}", run.name(), run.scheduled_at());
///     })
/// #   .runtime(sim.node())
///     .build()?;
/// let handle = scheduler.handle();
/// # handle.stop();
/// # sim.block_on(scheduler.run());
/// # Ok(())
/// # }
/// ```
pub struct Scheduler {
    pub(super) node: Arc<Node>,
}

impl Scheduler {
    /// A handle that stops and changes the scheduler.
    pub fn handle(&self) -> Handle {
        Handle::new(self.node.clone())
    }

    /// Runs until the scheduler is [stopped](Handle::stop).
    ///
    /// # Cancel safety
    /// Dropping the future drops all runs at once and records nothing in the store: their leases
    /// end by time. Stop the scheduler instead.
    pub async fn run(self) -> Stopped {
        self.run_until(pending()).await
    }

    /// Runs until `stop` is ready, then stops as [`Handle::stop`] does.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Stopped {
        let node = &self.node;
        let supervisor = Supervisor::new(node.clone());
        let taken = supervisor.is_run.clone();
        let take = async {
            Claimer::new(node.clone()).run().await;
            taken.store(true, Ordering::Release);
            node.supervisor.notify();
        };
        let work = pin!(join(take, supervisor.run()));
        let ((), stopped) = match select(work, pin!(stop)).await {
            Either::Left((ended, _)) => ended,
            Either::Right(((), work)) => {
                node.stop(Stop::Graceful);
                work.await
            }
        };
        let Stopped { cancelled, unrecorded } = stopped;
        node.emit([Event::Stopped { cancelled, unrecorded }]);
        stopped
    }
}

impl Drop for Scheduler {
    /// Ends all runs with the scheduler.
    fn drop(&mut self) {
        self.node.stop(Stop::Now);
        self.node.drop_runs();
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("node", &self.node.id).finish_non_exhaustive()
    }
}
