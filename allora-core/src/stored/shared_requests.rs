//! Requests that concurrent calls share: a call that is alone sends its operation itself, and a task
//! sends the operations of the others, all that have come while its last request was on its way.
//!
//! A call waits for the store only: neither for a call that was dropped, nor for one that is not
//! polled. It waits for a request without a reply until that is late.

use super::{
    owned_operation::OwnedOperation,
    requests::{BATCH, Requests},
};
use crate::{
    backend::{MAX_BYTES, Operation, Reply},
    error::{Error, ErrorKind, Result},
    notify::yield_now,
};
use futures::{
    FutureExt, StreamExt,
    channel::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded},
        oneshot,
    },
    future::{Either, join_all, select},
};
use std::{
    panic::AssertUnwindSafe,
    pin::pin,
    slice,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

pub(super) struct SharedRequests {
    requests: Arc<Requests>,
    load: Arc<Load>,
    /// The way to the task that sends; `None` until a call needs it.
    sender: Mutex<Option<UnboundedSender<Call>>>,
}

#[derive(Default)]
struct Load {
    /// The number of calls that wait for replies.
    calls: AtomicUsize,
    /// The last shared request had operations of several calls, which probably come again.
    is_busy: AtomicBool,
}

/// A call that waits for the task.
struct Call {
    operation: OwnedOperation,
    patience: Duration,
    reply: oneshot::Sender<Result<Result<Reply>>>,
}

impl SharedRequests {
    pub(super) fn new(requests: Arc<Requests>) -> Self {
        Self { requests, load: Arc::default(), sender: Mutex::default() }
    }

    /// Sends an operation: at once if no other call is there, else together with those of other calls.
    /// Returns the reply to it, or the error of the request. A request that takes longer than
    /// `patience` does not keep others waiting.
    pub(super) async fn send(
        &self,
        operation: &Operation<'_>,
        patience: Duration,
    ) -> Result<Result<Reply>> {
        let is_alone = self.load.calls.fetch_add(1, Relaxed) == 0;
        let _counted = Counted(&self.load);
        let owned = if is_alone && !self.load.is_busy.load(Relaxed) {
            None
        } else {
            OwnedOperation::of(operation)
        };
        let Some(operation) = owned else {
            return Ok(self.requests.send(slice::from_ref(operation)).await?.single());
        };
        let (reply, received) = oneshot::channel();
        self.join(Call { operation, patience, reply });
        received.await.unwrap_or_else(|_| {
            let ended = "the runtime that sends the requests of this client has ended, and the outcome is \
                         unknown; repeat the call";
            Err(Error::new(ErrorKind::Unavailable, ended))
        })
    }

    /// Gives a call to the task. Begins it, if there is none or its runtime has ended.
    fn join(&self, call: Call) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let call = match &*sender {
            Some(sender) => match sender.unbounded_send(call) {
                Ok(()) => return,
                Err(rest) => rest.into_inner(),
            },
            None => call,
        };
        let (begun, calls) = unbounded();
        let _ = begun.unbounded_send(call);
        *sender = Some(begun);
        drop(sender);
        let (requests, load) = (self.requests.clone(), self.load.clone());
        self.requests.runtime.spawn(send_all(requests, load, calls).boxed());
    }
}

/// Sends what waits, one request after another, until the client is dropped.
async fn send_all(requests: Arc<Requests>, load: Arc<Load>, calls: UnboundedReceiver<Call>) {
    let (runtime, mut calls) = (&requests.runtime, pin!(calls.peekable()));
    while calls.as_mut().peek().await.is_some() {
        // Calls that were woken by the same reply come before the next request is sent.
        yield_now().await;
        let (mut batch, mut bytes, mut patience) = (Vec::new(), 0, Duration::ZERO);
        loop {
            let has_room = |call: &Call| {
                batch.is_empty()
                    || batch.len() < BATCH && bytes + call.operation.bytes() <= MAX_BYTES
            };
            let next = calls.as_mut().next_if(has_room).now_or_never();
            let Some(call) = next.flatten() else { break };
            // The operation of a call that was dropped is not sent.
            if !call.reply.is_canceled() {
                bytes += call.operation.bytes();
                patience = patience.max(call.patience);
                batch.push(call);
            }
        }
        if batch.is_empty() {
            continue;
        }
        load.is_busy.store(batch.len() > 1, Relaxed);
        let late = runtime.sleep_until(runtime.now() + patience);
        let request = send(requests.clone(), batch).boxed();
        if let Either::Right(((), request)) = select(request, late).await {
            runtime.spawn(request);
        }
    }
}

/// Sends the operations of these calls, until all of them are dropped.
async fn send(requests: Arc<Requests>, batch: Vec<Call>) {
    let split = |call: Call| (call.operation, call.reply);
    let (operations, mut calls): (Vec<_>, Vec<_>) = batch.into_iter().map(split).unzip();
    let borrowed: Vec<Operation<'_>> = operations.iter().map(OwnedOperation::borrowed).collect();
    // The panic would be that of one call, and the others would wait.
    let applied = pin!(AssertUnwindSafe(requests.send(&borrowed)).catch_unwind());
    let dropped = join_all(calls.iter_mut().map(oneshot::Sender::cancellation));
    let Either::Left((applied, _)) = select(applied, dropped).await else { return };
    let panicked = |_| {
        let wrong = "the backend panicked; report it to its author";
        Err(Error::new(ErrorKind::Other, wrong).op("reschedule"))
    };
    let replies = match applied.unwrap_or_else(panicked) {
        Ok(applied) => applied.replies.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); operations.len()],
    };
    for (call, reply) in calls.into_iter().zip(replies) {
        let _ = call.send(reply);
    }
}

/// A call, until it ends or is dropped.
struct Counted<'a>(&'a Load);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Relaxed);
    }
}
