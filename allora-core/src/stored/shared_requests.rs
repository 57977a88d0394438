//! Requests that concurrent calls share: operations of calls that come while a request is on its way
//! are gathered, and sent together.
//!
//! There is no task that sends them, and no wait for more calls. Each call of a batch sends it when it
//! may, and each drives the requests that it waits for ([`Driven`]), also those with operations of
//! other calls. So a call waits for the store only: neither for a call that was dropped, nor for one
//! that is not polled. It waits for a request without a reply until that is late.

use super::{
    driven::Driven,
    owned_operation::OwnedOperation,
    requests::{BATCH, Requests},
};
use crate::{
    backend::{MAX_BYTES, Operation, Reply},
    error::{Error, ErrorKind, Result},
    notify::yield_now,
};
use futures::future::{FutureExt, select, select_all};
use std::{
    collections::VecDeque,
    mem,
    panic::AssertUnwindSafe,
    slice,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};

/// The largest number of shared requests on their way, unless they are late.
const MAX_ON_WAY: usize = 1;

pub(super) struct SharedRequests {
    requests: Arc<Requests>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of requests on their way that a call made for itself.
    alone: usize,
    /// The batches that have not been sent, the oldest first. Calls join the last one.
    gathering: VecDeque<Weak<Batch>>,
    on_way: Vec<OnWay>,
    /// The last shared request had operations of several calls, which probably come again.
    is_busy: bool,
}

/// A shared request on its way.
struct OnWay {
    request: Weak<SharedRequest>,
    sent: Instant,
}

type SharedRequest = Driven<Result<Arc<Replies>>>;

/// The replies by position, each until its call takes it.
struct Replies(Mutex<Vec<Option<Result<Reply>>>>);

/// The operations of concurrent calls. It belongs to these calls: without them it is never sent.
#[derive(Default)]
struct Batch {
    gathered: Mutex<Gathered>,
    /// The request, when it was sent.
    request: OnceLock<Arc<SharedRequest>>,
}

#[derive(Default)]
struct Gathered {
    /// By position; `None` for a call that was dropped. Empty when they were sent.
    operations: Vec<Option<OwnedOperation>>,
    bytes: usize,
}

/// The place of a call in a batch.
struct Member {
    batch: Arc<Batch>,
    position: usize,
}

/// The requests that keep a batch waiting.
struct Blocked {
    by: Vec<Arc<SharedRequest>>,
    /// The time at which the oldest of them is late.
    until: Instant,
}

impl SharedRequests {
    pub(super) fn new(requests: Arc<Requests>) -> Self {
        Self { requests, state: Mutex::default() }
    }

    /// Sends an operation: at once if no other call is there, else together with those of other calls.
    /// Returns the reply to it, or the error of the request. A request that takes longer than
    /// `patience` does not keep others waiting.
    pub(super) async fn send(
        &self,
        operation: &Operation<'_>,
        patience: Duration,
    ) -> Result<Result<Reply>> {
        let Some(member) = self.join(operation) else {
            let _alone = Alone(self);
            return Ok(self.requests.send(slice::from_ref(operation)).await?.single());
        };
        let request = loop {
            // Calls that were woken by the same reply join before the batch is sent.
            yield_now().await;
            if let Some(request) = member.batch.request.get() {
                break request;
            }
            if let Some(Blocked { by, until }) = self.send_next(patience) {
                let late = self.requests.runtime.sleep_until(until);
                select(select_all(by.iter().map(Driven::wait)), late).await;
            }
        };
        Ok(request.wait().await?.take(member.position))
    }

    /// Joins a batch. `None` if the operation is to be sent alone.
    fn join(&self, operation: &Operation<'_>) -> Option<Member> {
        if self.lock().starts_alone() {
            return None;
        }
        let operation = OwnedOperation::of(operation);
        let mut state = self.lock();
        let Some(operation) = operation else {
            state.alone += 1;
            return None;
        };
        Some(state.join(operation))
    }

    /// Sends the oldest batch, unless too many requests are on their way.
    fn send_next(&self, patience: Duration) -> Option<Blocked> {
        let now = self.requests.runtime.now();
        let mut state = self.lock();
        let by = state.not_late(now, patience);
        if by.len() >= MAX_ON_WAY
            && let Some(sent) = state.on_way.iter().map(|on_way| on_way.sent).min()
        {
            return Some(Blocked { by, until: sent + patience });
        }
        while let Some(batch) = state.gathering.pop_front() {
            if let Some((request, calls)) = batch.upgrade().and_then(|it| it.send(&self.requests)) {
                state.is_busy = calls > 1;
                state.on_way.push(OnWay { request: Arc::downgrade(&request), sent: now });
                break;
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts a call that sends its operation alone, if no other call is there.
    fn starts_alone(&mut self) -> bool {
        let is_quiet = !self.is_busy && self.alone == 0 && self.gathering.is_empty();
        self.alone += usize::from(is_quiet);
        is_quiet
    }

    fn join(&mut self, operation: OwnedOperation) -> Member {
        let last = self.gathering.back().and_then(Weak::upgrade);
        let batch = last.filter(|batch| batch.has_room_for(&operation)).unwrap_or_else(|| {
            let batch = Arc::new(Batch::default());
            self.gathering.push_back(Arc::downgrade(&batch));
            batch
        });
        let position = batch.push(operation);
        Member { batch, position }
    }

    /// The requests on their way that are not late. Forgets the others.
    fn not_late(&mut self, now: Instant, patience: Duration) -> Vec<Arc<SharedRequest>> {
        let mut not_late = Vec::new();
        self.on_way.retain(|on_way| {
            let is_late = now.saturating_duration_since(on_way.sent) >= patience;
            let request = on_way.request.upgrade();
            let request = request.filter(|request| !is_late && !request.has_ended());
            let is_there = request.is_some();
            not_late.extend(request);
            is_there
        });
        not_late
    }
}

impl Batch {
    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room_for(&self, operation: &OwnedOperation) -> bool {
        let gathered = self.lock();
        gathered.operations.len() < BATCH && gathered.bytes + operation.bytes() <= MAX_BYTES
    }

    /// Adds an operation and returns its position.
    fn push(&self, operation: OwnedOperation) -> usize {
        let mut gathered = self.lock();
        gathered.bytes += operation.bytes();
        gathered.operations.push(Some(operation));
        gathered.operations.len() - 1
    }

    /// Makes the request, which its waiters drive. Returns it with the number of its operations; `None`
    /// if there are none, as all calls were dropped.
    fn send(&self, requests: &Arc<Requests>) -> Option<(Arc<SharedRequest>, usize)> {
        let operations = mem::take(&mut self.lock().operations);
        let count = operations.iter().flatten().count();
        if count == 0 {
            return None;
        }
        let make = || Driven::new(send(requests.clone(), operations).boxed());
        Some((self.request.get_or_init(make).clone(), count))
    }
}

/// Sends the operations of a batch.
async fn send(
    requests: Arc<Requests>,
    operations: Vec<Option<OwnedOperation>>,
) -> Result<Arc<Replies>> {
    let borrowed: Vec<Operation<'_>> =
        operations.iter().flatten().map(OwnedOperation::borrowed).collect();
    // The panic would be that of one call, and the others would wait.
    let applied = AssertUnwindSafe(requests.send(&borrowed)).catch_unwind().await;
    let panicked = |_| {
        let wrong = "the backend panicked; report it to its author";
        Err(Error::new(ErrorKind::Other, wrong).op("reschedule"))
    };
    let mut replies = applied.unwrap_or_else(panicked)?.replies.into_iter();
    let by_position = operations.iter().map(|operation| {
        operation.as_ref()?;
        replies.next()
    });
    Ok(Arc::new(Replies(Mutex::new(by_position.collect()))))
}

impl Drop for Member {
    /// An operation that was not sent is sent no more: its call was dropped.
    fn drop(&mut self) {
        if let Some(operation) = self.batch.lock().operations.get_mut(self.position) {
            *operation = None;
        }
    }
}

impl Replies {
    fn take(&self, position: usize) -> Result<Reply> {
        let mut replies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        replies
            .get_mut(position)
            .and_then(Option::take)
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Other, "the backend returned no reply")))
    }
}

/// A call that sends its operation alone, until it ends or is dropped.
struct Alone<'a>(&'a SharedRequests);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.lock().alone -= 1;
    }
}
