//! The requests of a client, and the store's time in its last reply.

use crate::{
    backend::{Applied, Backend, Batch, OPERATOR, Operation, TimeSource, no_reply},
    error::Result,
    runtime::Runtime,
    store_clock::StoreClock,
    time::{Time, since, whole_millis},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The largest number of schedules that one request adds.
pub(super) const BATCH: usize = 500;

/// The client's access to the store, which its clones share.
pub(super) struct Requests {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) runtime: Arc<dyn Runtime>,
    last_reply: Mutex<Option<LastReply>>,
}

/// The store's time at its last reply, and this machine's clocks at that moment.
#[derive(Clone, Copy)]
struct LastReply {
    clock: StoreClock,
    monotonic: Instant,
    wall: Time,
}

/// The age up to which the last reply serves to work out the store's time.
const CLOCK_VALID: Duration = Duration::from_secs(60);

/// The largest difference between the wall clock and the monotonic clock about that age.
/// More means that the machine slept, or that its wall clock was set.
const CLOCK_DRIFT: Duration = Duration::from_secs(1);

impl Requests {
    pub(super) fn new(backend: Arc<dyn Backend>, runtime: Arc<dyn Runtime>) -> Self {
        Self { backend, runtime, last_reply: Mutex::default() }
    }

    /// Sends operations as one batch, and checks that each has a reply.
    pub(super) async fn send(&self, operations: &[Operation<'_>]) -> Result<Applied> {
        let batch = Batch::new(OPERATOR, self.time(), operations);
        let sent = self.runtime.now();
        let applied = self.backend.reschedule(batch).await?;
        self.observe(sent, applied.now);
        applied.checked(operations.len())
    }

    /// The clock that decides.
    pub(super) fn time(&self) -> TimeSource {
        TimeSource::Store { fallback: self.runtime.wall() }
    }

    /// The store's time, worked out from its last reply if that is recent.
    pub(super) fn recent_store_time(&self) -> Option<Time> {
        let last = *self.last_reply.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, wall) = (self.runtime.now(), self.runtime.wall());
        let recent = last.filter(|last| {
            let age = now.saturating_duration_since(last.monotonic);
            let wall_age = since(wall, last.wall);
            age < CLOCK_VALID && age.abs_diff(wall_age) < CLOCK_DRIFT
        });
        recent.map(|last| whole_millis(last.clock.now(now)))
    }

    /// The store replied with its time to a request sent at `sent`.
    fn observe(&self, sent: Instant, time: Time) {
        let (monotonic, wall) = (self.runtime.now(), self.runtime.wall());
        let mut last = self.last_reply.lock().unwrap_or_else(PoisonError::into_inner);
        let mut clock = last.map_or_else(|| StoreClock::new(time, sent), |last| last.clock);
        clock.observe(sent, monotonic, time);
        *last = Some(LastReply { clock, monotonic, wall });
    }
}

/// The reply to an operation that was not sent, because its job may not be stored.
pub(super) fn sent_or<T>(
    noted: Vec<Result>,
    mut replies: impl Iterator<Item = Result<T>>,
) -> Vec<Result<T>> {
    let reply = |noted: Result| match noted {
        Ok(()) => replies.next().unwrap_or_else(|| Err(no_reply())),
        Err(error) => Err(error),
    };
    noted.into_iter().map(reply).collect()
}
