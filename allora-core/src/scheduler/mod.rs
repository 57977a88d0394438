//! The scheduler: a thin shell around the planner, in two halves that share one [`Node`].
//!
//! The [`Taker`] wins occurrences, the [`Keeper`] keeps what runs. Each waits for its own bell and
//! its own timers, so that a store that is slow to answer one does not keep the other from
//! extending leases.

mod around;
mod builder;
mod clock;
mod execution;
mod handle;
mod keeper;
mod local;
mod log;
mod mutex;
mod node;
mod search;
mod signal;
mod taker;

pub use around::Next;
pub use builder::Builder;
pub use handle::Handle;
pub use keeper::Stopped;

use crate::{
    backend::Backend,
    error::{Error, Kind, Result},
    event::Event,
};
use futures::future::{Either, join, pending, select};
use keeper::Keeper;
use node::{Node, Stop};
use std::{
    fmt,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use taker::Taker;

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
    node: Arc<Node>,
}

/// The settings of a node.
pub(crate) struct Config {
    /// How many runs at once.
    pub(crate) slots: usize,
    /// How often to look although nothing was heard.
    pub(crate) poll: Duration,
    /// How long one call of the store may take.
    pub(crate) deadline: Duration,
    /// How long runs may go on when the scheduler stops.
    pub(crate) grace: Duration,
    /// How long an at-most-once run of a silent node is believed to live.
    pub(crate) mark: Duration,
    /// The longest of the random waits that let another node be first.
    pub(crate) jitter: Duration,
    /// The payload of jobs in code.
    pub(crate) no_data: Arc<[u8]>,
}

impl Scheduler {
    /// Begins a scheduler on this backend.
    pub fn builder(backend: impl Backend) -> Builder {
        Builder::new(Arc::new(backend))
    }

    /// A handle to stop and to change it.
    pub fn handle(&self) -> Handle {
        Handle::new(self.node.clone())
    }

    /// Runs until it is [stopped](Handle::stop).
    ///
    /// # Cancel safety
    /// Dropping the future drops all runs at once and tells the store nothing: their leases and
    /// marks end by time. Stop it instead.
    pub async fn run(self) -> Stopped {
        self.run_until(pending()).await
    }

    /// Runs until `stop` is ready, then ends as [`Handle::stop`] says.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Stopped {
        let node = &self.node;
        let keeper = Keeper::new(node.clone());
        let taken = keeper.taken.clone();
        let take = async {
            Taker::new(node.clone()).run().await;
            taken.store(true, Ordering::Release);
            node.keeper.ring();
        };
        let work = pin!(join(take, keeper.run()));
        let ((), stopped) = match select(work, pin!(stop)).await {
            Either::Left((ended, _)) => ended,
            Either::Right(((), work)) => {
                node.stop(Stop::Graceful);
                work.await
            }
        };
        let Stopped { cancelled, unsettled } = stopped;
        node.emit([Event::Stopped { cancelled, unsettled }]);
        stopped
    }
}

impl Drop for Scheduler {
    /// Nothing of a scheduler outlives it.
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

/// Awaits a call of the store for as long as one may take.
async fn within<T>(
    node: &Node,
    op: &'static str,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let deadline = node.config.deadline;
    let limit = node.runtime.sleep_until(node::later(node.runtime.now(), deadline));
    match select(pin!(call), limit).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => {
            let late = format!("the store did not answer within {deadline:?}");
            Err(Error::new(Kind::Unavailable, late).op(op))
        }
    }
}
