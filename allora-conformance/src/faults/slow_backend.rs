//! A slow store: time for each request and each operation, and few connections.

use super::{Hooks, Wrapped};
use allora_core::{
    Backend, Result, Runtime,
    backend::{
        Applied, Batch, ClaimDue, ClaimedDue, Due, DueQuery, JobState, Page, Queries, TimeSource,
    },
};
use async_trait::async_trait;
use futures::channel::oneshot;
use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The speed of a store. Nodes that share a clone of it share its connections, and so its rate.
///
/// A request waits for a connection, then takes `per_request` and `per_operation` for each
/// operation, and is applied as a whole at the end of that time. A request that the caller drops
/// before is rolled back: it has no effect, and its connection is free again.
#[derive(Clone)]
pub struct Speed(Arc<Mutex<Lines>>);

struct Lines {
    per_request: Duration,
    per_operation: Duration,
    free: usize,
    waiting: VecDeque<oneshot::Sender<Line>>,
}

impl Speed {
    /// The time of an operation, with one connection, so that the store serves `1 / per_operation`
    /// operations each second to all nodes together. Default of the others: no time per request.
    pub fn new(per_operation: Duration) -> Self {
        let per_request = Duration::ZERO;
        Self(Arc::new(Mutex::new(Lines {
            per_request,
            per_operation,
            free: 1,
            waiting: VecDeque::new(),
        })))
    }

    /// With this time for each request in addition.
    #[must_use]
    pub fn per_request(self, time: Duration) -> Self {
        self.lines().per_request = time;
        self
    }

    /// With this number of connections. Range: at least 1. Default: 1.
    #[must_use]
    pub fn connections(self, number: usize) -> Self {
        self.lines().free = number.max(1);
        self
    }

    /// Changes the time of an operation.
    pub fn set(&self, per_operation: Duration) {
        self.lines().per_operation = per_operation;
    }

    fn cost(&self, operations: usize) -> Duration {
        let lines = self.lines();
        let operations = u32::try_from(operations).unwrap_or(u32::MAX);
        lines.per_request + lines.per_operation.saturating_mul(operations)
    }

    async fn line(&self) -> Line {
        let turn = {
            let mut lines = self.lines();
            if lines.free > 0 {
                lines.free -= 1;
                return Line(Some(self.clone()));
            }
            let (sender, turn) = oneshot::channel();
            lines.waiting.push_back(sender);
            turn
        };
        turn.await.unwrap_or(Line(None))
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        f.debug_struct("Speed")
            .field("per_request", &lines.per_request)
            .field("per_operation", &lines.per_operation)
            .finish_non_exhaustive()
    }
}

/// A connection in use. Dropping it serves the next request.
struct Line(Option<Speed>);

impl Drop for Line {
    fn drop(&mut self) {
        let Some(speed) = self.0.take() else { return };
        loop {
            let next = {
                let mut lines = speed.lines();
                let Some(next) = lines.waiting.pop_front() else {
                    lines.free += 1;
                    return;
                };
                next
            };
            match next.send(Line(Some(speed.clone()))) {
                Ok(()) => return,
                // The caller has dropped its request: the connection is for the next one.
                Err(mut line) => line.0 = None,
            }
        }
    }
}

/// A node's way to a slow store.
///
/// ```
/// use allora_conformance::faults::{SlowBackend, Speed};
/// use allora_core::runtime::Sim;
/// use allora_memory::Memory;
/// use std::time::Duration;
///
/// // Of 1.2 ms per operation: a batch of 1,000 operations takes longer than a store timeout of 1 s.
/// let sim = Sim::new(7);
/// let store = SlowBackend::new(Memory::new(), sim.node(), Speed::new(Duration::from_micros(1_200)));
/// # drop(store);
/// ```
pub type SlowBackend = Wrapped<Slow>;

/// The hooks of a [`SlowBackend`].
#[derive(Debug)]
pub struct Slow {
    runtime: Arc<dyn Runtime>,
    speed: Speed,
}

impl Wrapped<Slow> {
    /// `store` at this speed, by the clock of `runtime`.
    pub fn new(store: impl Backend, runtime: impl Runtime, speed: Speed) -> Self {
        Self::around(store, Slow { runtime: Arc::new(runtime), speed })
    }
}

impl Slow {
    async fn spend(&self, operations: usize) {
        let cost = self.speed.cost(operations);
        if !cost.is_zero() {
            self.runtime.sleep_until(self.runtime.now() + cost).await;
        }
    }
}

#[async_trait]
impl Hooks for Slow {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        let _line = self.speed.line().await;
        self.spend(batch.operations.len()).await;
        store.reschedule(batch).await
    }

    async fn find_due(
        &self,
        store: &dyn Queries,
        query: DueQuery<'_>,
        time: TimeSource,
    ) -> Result<Due> {
        let _line = self.speed.line().await;
        let due = store.find_due(query, time).await?;
        self.spend(due.found.len()).await;
        Ok(due)
    }

    async fn claim_due(
        &self,
        store: &dyn Queries,
        query: ClaimDue<'_>,
        time: TimeSource,
    ) -> Result<ClaimedDue> {
        let _line = self.speed.line().await;
        let find = DueQuery::new(query.kinds, self.runtime.wall(), query.limit).node(query.node);
        // A query that is dropped has no effect.
        self.spend(store.find_due(find, time).await?.found.len()).await;
        store.claim_due(query, time).await
    }

    async fn get(&self, store: &dyn Queries, name: &str) -> Result<JobState> {
        let _line = self.speed.line().await;
        self.spend(1).await;
        store.get(name).await
    }

    async fn list(&self, store: &dyn Queries, page: Page<'_>) -> Result<Vec<JobState>> {
        let _line = self.speed.line().await;
        let listed = store.list(page).await?;
        self.spend(listed.len()).await;
        Ok(listed)
    }

    async fn kinds(&self, store: &dyn Queries) -> Result<Vec<String>> {
        let _line = self.speed.line().await;
        let kinds = store.kinds().await?;
        self.spend(kinds.len()).await;
        Ok(kinds)
    }
}
