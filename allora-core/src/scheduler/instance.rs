//! One scheduler, from its start to its end.

use super::{
    claims::{claimer::Claimer, local_claimer::LocalClaimer},
    handle::Handle,
    node::{Node, Stop, random},
    runs::{
        spawned::Spawned,
        supervisor::{Stopped, Supervisor},
    },
    upkeep::{calendars, chain_delivery, registry::Registry, watcher::Watcher},
};
use crate::{
    condition::Code,
    event::Event,
    planner::{Planner, PlannerConfig},
};
use futures::future::{Either, join, join4, pending, select};
use std::{
    fmt,
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

/// Runs jobs at their times, each occurrence on one of the nodes that share a backend.
///
/// ```
/// use allora::{Run, Scheduler, every};
/// # use allora::runtime::Sim;
/// use std::time::Duration;
///
/// # fn main() -> allora::Result {
/// # let sim = Sim::new(1);
/// # let store = allora::Memory::new();
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

    /// Runs until the scheduler is [stopped](Handle::stop), or until its runtime ends.
    ///
    /// The claims are a part of this future. The extensions and ends of runs, and the runs themselves,
    /// are tasks of the runtime.
    ///
    /// # Cancel safety
    /// Dropping the future drops all runs at once and sends nothing more to the store: their leases
    /// end by time. Ends that were sent before may be recorded. Stop the scheduler instead.
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
        let has_claimed = supervisor.has_claimed.clone();
        let supervisor = Spawned::new(&*node.runtime, supervisor.run());
        let mut config = self.planner();
        if !node.router().is_empty() {
            let of_node = node.clone();
            config.route = Some(Arc::new(move |state| of_node.route(state)));
        }
        if node.backend.queries().is_some_and(|queries| queries.claims_due()) {
            let of_node = node.clone();
            config.claims_kind = Some(Arc::new(move |kind| !of_node.router().is_limited(kind)));
        }
        let claimer = Claimer::new(node.clone(), Planner::new(config));
        let local = PlannerConfig { every_node: Some(node.id.clone()), ..self.planner() };
        let local = LocalClaimer::new(node.clone(), Planner::new(local));
        let watcher = Watcher::new(node.clone());
        let registry = Registry::new(node.clone());
        let is_over = registry.is_over.clone();
        let claim = async {
            let calendars = calendars::read(node.clone());
            // Boxed: the future of the whole scheduler is on the stack of its caller.
            let (claimer, local) = (Box::pin(claimer.run()), Box::pin(local.run()));
            join4(claimer, local, watcher.run(), calendars).await;
            has_claimed.store(true, Ordering::Release);
            node.supervisor.notify();
        };
        let work = async {
            match select(pin!(claim), pin!(supervisor.output())).await {
                Either::Left(((), supervisor)) => supervisor.await,
                // The time for unresolved claims is over.
                Either::Right((stopped, _)) => stopped,
            }
        };
        let chains = chain_delivery::deliver(node.clone(), is_over.clone());
        let upkeep = Box::pin(async { join(registry.run(), chains).await.0 });
        let work = async {
            let stopped = match select(pin!(work), upkeep).await {
                Either::Left((Some(stopped), upkeep)) => {
                    is_over.store(true, Ordering::Release);
                    node.registry.notify();
                    node.chains.wake.notify();
                    upkeep.await;
                    Some(stopped)
                }
                Either::Left((None, _)) => None,
                Either::Right(((), work)) => work.await,
            };
            // The executor has ended, and with it all runs.
            stopped.unwrap_or_else(|| Stopped::with_runtime(node))
        };
        let work = pin!(work);
        let stopped = match select(work, pin!(stop)).await {
            Either::Left((ended, _)) => ended,
            Either::Right(((), work)) => {
                node.stop(Stop::Graceful);
                work.await
            }
        };
        for over in [Code::CapacityFull, Code::KeyBusy] {
            node.set_conditions(over, None);
        }
        let Stopped { cancelled, unrecorded, unresolved } = stopped;
        node.emit([Event::Stopped { cancelled, unrecorded, unresolved }]);
        stopped
    }

    fn planner(&self) -> PlannerConfig {
        let config = &self.node.config;
        PlannerConfig {
            random: random(&*self.node.runtime),
            poll: config.poll_interval,
            lost_after: config.lost_after,
            store_timeout: config.store_timeout,
            extra_attempts: config.extra_attempts,
            every_node: None,
            runs: config.concurrency,
            route: None,
            claims_kind: None,
        }
    }
}

impl Drop for Scheduler {
    /// Ends all runs with the scheduler.
    fn drop(&mut self) {
        self.node.stop(Stop::Now);
        self.node.drop_runs();
        self.node.close();
        let active: Vec<_> = self.node.board.seen().active.all().cloned().collect();
        self.node.metrics.ended(&active);
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("node", &self.node.id).finish_non_exhaustive()
    }
}
