//! One execution of an occurrence, for the code of the job.

use crate::{
    backend::{Claimed, Completion, Cursor, Operation},
    error::{Error, ErrorKind, Result},
    time::Time,
};
use chrono::SecondsFormat;
use futures::task::AtomicWaker;
use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

/// The kind and the data of a stored schedule, for its runs.
pub(crate) struct Payload {
    pub(crate) kind: String,
    pub(crate) data: Arc<[u8]>,
}

/// One execution of an occurrence. A clone is the same run.
#[derive(Clone)]
pub struct Run {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) node: Arc<str>,
    pub(crate) claimed: Claimed,
    pub(crate) then: Cursor,
    pub(crate) data: Arc<[u8]>,
    pub(crate) payload: Option<Arc<Payload>>,
    /// The node, which extends the run's lease.
    pub(crate) heartbeat: Weak<dyn Heartbeat>,
    /// It is delivered at least once.
    pub(crate) can_retry: bool,
    pub(crate) control: Control,
}

impl Run {
    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// The job.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The node that runs it.
    pub fn node(&self) -> &str {
        &self.inner.node
    }

    /// The nominal time, the same for every attempt. For a manual trigger: the time of the trigger.
    pub fn scheduled_at(&self) -> Time {
        self.inner.claimed.occurrence.scheduled_at
    }

    /// The number of this attempt at the occurrence, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.claimed.attempt
    }

    /// The fencing token: grows with every claim of this job and never repeats. Pass it to the
    /// systems that the job writes to. A system that stores the highest fence it has seen can
    /// reject the writes of an older run.
    pub fn fence(&self) -> i64 {
        self.inner.claimed.fence
    }

    /// The fencing token of the job's [mutex group](crate::JobSpec::mutex): grows with every lock,
    /// over all jobs of the group. `None` without a group. Use it where several jobs of the group
    /// write to one system; [`fence`](Self::fence) grows for each job separately.
    pub fn mutex_fence(&self) -> Option<i64> {
        self.control().mutex_fence.get().copied()
    }

    /// The id of a manual trigger; `None` for an occurrence of the schedule.
    pub fn trigger(&self) -> Option<&str> {
        self.inner.claimed.occurrence.trigger.as_deref()
    }

    /// The payload of a stored schedule; empty for a job in code.
    pub fn data(&self) -> &[u8] {
        &self.inner.data
    }

    /// The kind of a stored schedule; empty for a job in code.
    pub fn kind(&self) -> &str {
        self.inner.payload.as_ref().map_or("", |payload| &payload.kind)
    }

    /// Requests a retry: when this run returns, it counts as failed, whatever its result, and is
    /// tried again after `after`. This replaces the wait of the retry policy and ignores its limit.
    /// The attempt counts.
    ///
    /// # Errors
    /// `Unsupported` if the job runs at most once.
    pub fn retry(&self, after: Duration, error: impl fmt::Display) -> Result {
        self.decide("retried", Requested::Retry { after, error: error.to_string() })
    }

    /// Requests a release: when this run returns, whatever its result, any node can claim the
    /// occurrence at once. The attempt does not count.
    ///
    /// # Errors
    /// `Unsupported` if the job runs at most once.
    pub fn release(&self) -> Result {
        self.decide("released", Requested::Release)
    }

    /// Rules out another attempt: if this run fails, the retry policy is not applied. An
    /// at-least-once occurrence becomes a dead letter.
    pub fn give_up(&self) {
        self.control().set_requested(Requested::GiveUp);
    }

    fn decide(&self, what: &str, decision: Requested) -> Result {
        if !self.inner.can_retry {
            let once = format!("{:?} runs at most once and cannot be {what}", self.name());
            return Err(Error::new(ErrorKind::Unsupported, once));
        }
        self.control().set_requested(decision);
        Ok(())
    }

    /// Extends the lease now and waits until the store has confirmed it. Rarely needed: the
    /// scheduler extends the lease when a third of it has passed.
    ///
    /// # Errors
    /// `LeaseLost` if the occurrence does not, or may not, belong to this run any more: stop
    /// working on it. `Unsupported` if there is no lease to extend.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait. The lease may be extended all the same.
    pub async fn heartbeat(&self) -> Result {
        let lost =
            || Error::new(ErrorKind::LeaseLost, format!("{:?} is not this run's", self.name()));
        let control = self.control();
        let before = control.confirmed();
        self.inner.heartbeat.upgrade().ok_or_else(lost)?.heartbeat(self.name(), self.fence());
        poll_fn(|cx| control.poll_confirmed(before, cx)).await.then_some(()).ok_or_else(lost)
    }

    /// An idempotency key: identifies the occurrence to other systems. It is the same for every
    /// attempt and different for every other occurrence, including those of a deleted job of the
    /// same name.
    pub fn occurrence_key(&self) -> String {
        let Inner { namespace, name, claimed: taken, .. } = &*self.inner;
        let at = taken.occurrence.scheduled_at.to_rfc3339_opts(SecondsFormat::Millis, true);
        let incarnation = taken.incarnation;
        match &taken.occurrence.trigger {
            Some(id) => format!("{namespace}/{name}/{incarnation}/{at}/{id}"),
            None => format!("{namespace}/{name}/{incarnation}/{at}"),
        }
    }

    /// `true` if the run should end: its lease is about to end, the job was deleted, or the
    /// scheduler's grace period is nearly over. The future is dropped soon.
    pub fn is_cancelled(&self) -> bool {
        self.inner.control.is_cancelled()
    }

    /// Waits until [`is_cancelled`](Self::is_cancelled).
    ///
    /// # Cancel safety
    /// Dropping the future only ends the wait.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled { run: self.clone() }
    }

    /// The operation that completes this run as succeeded. Backends use it to complete an
    /// occurrence inside the job's own transaction. The scheduler sends the same completion later;
    /// the store accepts the repetition.
    pub fn complete(&self) -> Operation<'_> {
        Operation::complete(self.name(), self.fence(), self.inner.then, Completion::Succeeded)
    }

    pub(crate) fn then(&self) -> Cursor {
        self.inner.then
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.inner.name.clone()
    }

    pub(crate) fn control(&self) -> &Control {
        &self.inner.control
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("name", &self.name())
            .field("scheduled_at", &self.scheduled_at())
            .field("attempt", &self.attempt())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}

/// The future of [`Run::cancelled`].
#[derive(Clone, Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Cancelled {
    run: Run,
}

impl Future for Cancelled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.run.inner.control.poll_cancelled(cx)
    }
}

/// Extends leases.
pub(crate) trait Heartbeat: Send + Sync {
    /// Extends the lease of this run now.
    fn heartbeat(&self, name: &str, fence: i64);
}

/// The result that a run has requested for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requested {
    Retry { after: Duration, error: String },
    Release,
    GiveUp,
}

/// The scheduler's control of a run: cancellation first, then the end of its future.
#[derive(Default)]
pub(crate) struct Control {
    /// [`RUNS`], [`CANCELLED`] or [`DROPPED`].
    stage: AtomicU8,
    /// The task that executes the run.
    pub(crate) execution: AtomicWaker,
    /// The number of confirmed extensions of its lease.
    confirmed: AtomicU64,
    /// The fence of its lock in its mutex group.
    mutex_fence: OnceLock<i64>,
    /// The result that the run has requested.
    requested: Mutex<Option<Requested>>,
    /// The tasks that wait for the cancellation or for a confirmation.
    waiting: Mutex<Vec<Waker>>,
}

const RUNS: u8 = 0;
const CANCELLED: u8 = 1;
const DROPPED: u8 = 2;

impl Control {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.stage.load(Ordering::Acquire) != RUNS
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.stage.load(Ordering::Acquire) == DROPPED
    }

    /// Cancels the run: its code is notified.
    pub(crate) fn cancel(&self) {
        self.advance(CANCELLED);
    }

    /// Drops the run's future.
    pub(crate) fn drop_now(&self) {
        self.advance(DROPPED);
        self.execution.wake();
    }

    /// Records that the store has extended the lease.
    pub(crate) fn confirm(&self) {
        self.confirmed.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    pub(crate) fn set_mutex_fence(&self, fence: i64) {
        // A run locks its group once.
        let _ = self.mutex_fence.set(fence);
    }

    fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Acquire)
    }

    pub(crate) fn requested(&self) -> Option<Requested> {
        self.requested.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_requested(&self, decision: Requested) {
        *self.requested.lock().unwrap_or_else(PoisonError::into_inner) = Some(decision);
    }

    fn advance(&self, to: u8) {
        self.stage.fetch_max(to, Ordering::AcqRel);
        self.wake();
    }

    fn wake(&self) {
        let waiting = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Returns `true` once an extension is confirmed after `since`, and `false` once the run is
    /// cancelled.
    fn poll_confirmed(&self, since: u64, cx: &mut Context<'_>) -> Poll<bool> {
        if self.confirmed() != since {
            return Poll::Ready(true);
        }
        match self.poll_cancelled(cx) {
            Poll::Ready(()) => Poll::Ready(false),
            // It may have been confirmed before the waker was in the list.
            Poll::Pending if self.confirmed() != since => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_cancelled(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_cancelled() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        // It may have been cancelled before the waker was in the list.
        if self.is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
    }
}
