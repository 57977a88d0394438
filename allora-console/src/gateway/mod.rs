//! Workers in any language: a handler of this process that gives each run to a worker over HTTP, and waits for its
//! result.
//!
//! The node claims only what a waiting worker has asked for: its capacity is the number of runs for which workers wait,
//! and its kinds are theirs.

mod demand;
mod pool;
mod ticket;

use pool::Seat;
pub(crate) use pool::{Asked, Key, Pool, Verdict};
pub(crate) use ticket::Tickets;

use allora_core::{BoxError, Handle, Run, Runtime, SchedulerBuilder};
use futures::future::{Either, select};
use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

/// The id of the handler.
const HANDLER: &str = "workers";

/// The time for which a run is kept for a worker that asks again.
const HELD: Duration = Duration::from_millis(500);

/// The attempts of a job that runs at least once, after which workers that stop answering are no reason for another one:
/// its occurrence becomes a dead letter, since it may be what stops them.
const ATTEMPTS: u32 = 5;

/// Gives runs to workers that ask for them over HTTP: see the guide *Workers in any language*.
///
/// ```
/// use allora::{Memory, Scheduler, Schedules};
/// use allora_console::{Access, Console, Gateway, Scope};
///
/// # fn main() -> allora::Result {
/// # let sim = allora::runtime::Sim::new(1);
/// # let (store, key) = (Memory::new(), [7; 32]);
/// let gateway = Gateway::new(&key)?;
/// let builder = gateway.handle_on(Scheduler::builder(store.clone()));
/// # let builder = builder.runtime(sim.node());
/// let scheduler = builder.build()?;
/// # let schedules = Schedules::on(store, sim.node())?;
/// let router = Console::new(schedules)
///     .handle(scheduler.handle())
///     .gateway(gateway)
///     .access(|_| Some(Access::new("worker").with(Scope::Work)))
///     .into_router();
/// # drop((router, scheduler));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Gateway {
    pub(crate) pool: Arc<Pool>,
    pub(crate) tickets: Tickets,
}

impl Gateway {
    /// A gateway whose tokens of runs are signed with this key of at least 32 random bytes. Gateways with the same key
    /// accept completions of each other's runs.
    ///
    /// # Errors
    /// `Invalid` for a shorter key.
    pub fn new(key: &[u8]) -> allora_core::Result<Self> {
        Ok(Self { pool: Arc::default(), tickets: Tickets::new(key)? })
    }

    /// Adds the handler to a node. It declines its runs once this value and its clones, one of which the console has,
    /// are gone. Its kinds are those for which workers wait, except the kinds of handlers that are
    /// declared before it.
    pub fn handle_on(&self, builder: SchedulerBuilder) -> SchedulerBuilder {
        let pool = Arc::downgrade(&self.pool);
        let none: [&str; 0] = [];
        builder.named_handler(HANDLER, none, Some(0), move |run: Run| work(pool.clone(), run))
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}

/// The run of a worker: gives it away, and waits for the result, or until the worker has been silent for a lease.
async fn work(pool: Weak<Pool>, run: Run) -> Result<(), BoxError> {
    let pool = pool.upgrade();
    let node = pool.as_ref().and_then(|pool| Some((pool, pool.node()?.runtime.clone())));
    let Some((pool, runtime)) = node else {
        run.decline();
        return Ok(());
    };
    let Some(mut seat) = taken(pool, &run, &*runtime).await else {
        run.decline();
        return Ok(());
    };
    while let Some((worker, heard)) = seat.worker() {
        let silent_at = heard + run.lease();
        if runtime.now() >= silent_at {
            return silent(&run, &worker);
        }
        let result = select(&mut seat.verdict, runtime.sleep_until(silent_at)).await;
        if let Either::Left((Ok(verdict), _)) = result {
            return apply(&run, verdict);
        }
    }
    Ok(run.release()?)
}

/// Gives the run to a worker. The request for which it was claimed may have ended with other runs just now, and its
/// worker asks again in a moment; `None` if none does.
async fn taken(pool: &Arc<Pool>, run: &Run, runtime: &dyn Runtime) -> Option<Seat> {
    let end = runtime.now() + HELD;
    loop {
        let asked = match Pool::offer(pool, run, runtime.now()) {
            Ok(seat) => return Some(seat),
            Err(asked) => asked,
        };
        if let Either::Right(_) = select(asked, runtime.sleep_until(end)).await {
            pool.hold_back(run.kind());
            return None;
        }
    }
}

fn apply(run: &Run, verdict: Verdict) -> Result<(), BoxError> {
    match verdict {
        Verdict::Complete { output, value } => {
            if let Some(output) = output {
                run.set_output(output);
            }
            if let Some(value) = value {
                run.set_value(value)?;
            }
            Ok(())
        }
        Verdict::Fail { error, retry_after, is_final } => {
            if is_final {
                run.give_up();
            } else if let Some(after) = retry_after.filter(|_| run.is_at_least_once()) {
                run.retry(after, &error)?;
            }
            Err(error.into())
        }
        Verdict::Release(Duration::ZERO) => Ok(run.release()?),
        Verdict::Release(after) => Ok(run.release_after(after)?),
    }
}

/// The worker does not answer: as if its node had stopped, the occurrence is run again at least once.
fn silent(run: &Run, worker: &str) -> Result<(), BoxError> {
    let error = format!("the worker {worker:?} did not send a heartbeat for {:?}", run.lease());
    if run.is_at_least_once() && run.attempt() < ATTEMPTS {
        run.retry(Duration::ZERO, &error)?;
    } else {
        run.give_up();
    }
    Err(error.into())
}

/// The node of the gateway, and its clock.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) handle: Handle,
    pub(crate) runtime: Arc<dyn Runtime>,
}
