//! One execution of an occurrence, as the job sees it.

use crate::{
    backend::{Cursor, End, Ended, Ending, Taken},
    error::{Error, Kind, Result},
    job::Payload,
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

/// One execution of an occurrence. A clone is the same run.
#[derive(Clone)]
pub struct Run {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) node: Arc<str>,
    pub(crate) taken: Taken,
    pub(crate) then: Cursor,
    pub(crate) data: Arc<[u8]>,
    pub(crate) payload: Option<Arc<Payload>>,
    /// Who extends its lease or mark, if it has one.
    pub(crate) beats: Option<Weak<dyn Beats>>,
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

    /// The nominal instant, the same for every attempt; of a manual trigger, when it was pulled.
    pub fn scheduled_at(&self) -> Time {
        self.inner.taken.run.at
    }

    /// Which attempt at the occurrence this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.taken.attempt
    }

    /// A number that grows with every take of this job and never repeats. Hand it to what the job
    /// writes to: where the highest fence seen is kept, a writer that was believed dead is refused.
    pub fn fence(&self) -> i64 {
        self.inner.taken.fence
    }

    /// A number that grows with every turn in the job's [mutex group](crate::Entry::mutex), over
    /// all its jobs; `None` without a group. To be used as [`fence`](Self::fence), which grows for
    /// each job by itself, where several jobs of the group write to one thing.
    pub fn mutex_fence(&self) -> Option<i64> {
        self.control().mutex_fence.get().copied()
    }

    /// The id of a manual trigger; `None` for an occurrence of the schedule.
    pub fn trigger(&self) -> Option<&str> {
        self.inner.taken.run.trigger.as_deref()
    }

    /// The payload of a stored schedule; empty for a job in code.
    pub fn data(&self) -> &[u8] {
        &self.inner.data
    }

    /// The kind of a stored schedule; empty for a job in code.
    pub fn kind(&self) -> &str {
        self.inner.payload.as_ref().map_or("", |payload| &payload.kind)
    }

    /// Has this run counted as failed when it returns, whatever it returns, and tried again after
    /// so long: in place of the retry policy's wait, and beyond its limit. The attempt counts.
    ///
    /// # Errors
    /// `Unsupported` if it is delivered at most once.
    pub fn retry(&self, after: Duration, error: impl fmt::Display) -> Result {
        self.decide("tried again", Decision::Retry { after, error: error.to_string() })
    }

    /// Gives the occurrence back when this run returns, whatever it returns: any node takes it at
    /// once, and the attempt does not count.
    ///
    /// # Errors
    /// `Unsupported` if it is delivered at most once.
    pub fn release(&self) -> Result {
        self.decide("given back", Decision::Release)
    }

    /// If this run fails, it is not tried again, whatever the retry policy says: at least once, it
    /// is a dead letter.
    pub fn give_up(&self) {
        self.control().set_decision(Decision::GiveUp);
    }

    fn decide(&self, what: &str, decision: Decision) -> Result {
        if !self.inner.can_retry {
            let once = format!("{:?} is delivered at most once, and cannot be {what}", self.name());
            return Err(Error::new(Kind::Unsupported, once));
        }
        self.control().set_decision(decision);
        Ok(())
    }

    /// Extends the lease or mark now, instead of when a third of it has passed, and waits until the
    /// store has confirmed that: the occurrence is still this run's. Seldom needed: runs are kept
    /// alive by the scheduler.
    ///
    /// # Errors
    /// `LeaseLost` if it is not, or may not be: stop working on it. `Unsupported` if there is no
    /// lease to extend.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait; the lease may be extended all the same.
    pub async fn heartbeat(&self) -> Result {
        let lost = || Error::new(Kind::LeaseLost, format!("{:?} is not this run's", self.name()));
        let Some(beats) = &self.inner.beats else {
            let none = format!("the backend keeps no lease of {:?}", self.name());
            return Err(Error::new(Kind::Unsupported, none));
        };
        let control = self.control();
        let before = control.confirmed();
        beats.upgrade().ok_or_else(lost)?.beat(self.name(), self.fence());
        poll_fn(|cx| control.poll_confirmed(before, cx)).await.then_some(()).ok_or_else(lost)
    }

    /// Names the occurrence for the outside world: the same for every attempt, different from every
    /// other occurrence, also of a job of the same name that was deleted before. An idempotency key.
    pub fn occurrence_key(&self) -> String {
        let Inner { namespace, name, taken, .. } = &*self.inner;
        let at = taken.run.at.to_rfc3339_opts(SecondsFormat::Millis, true);
        let incarnation = taken.incarnation;
        match &taken.run.trigger {
            Some(id) => format!("{namespace}/{name}/{incarnation}/{at}/{id}"),
            None => format!("{namespace}/{name}/{incarnation}/{at}"),
        }
    }

    /// Whether the run should end: its lease is running out, it was deleted, or the scheduler's
    /// grace is nearly over. Its future is dropped soon.
    pub fn is_cancelled(&self) -> bool {
        self.inner.control.is_cancelled()
    }

    /// Waits until [`is_cancelled`](Self::is_cancelled).
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait, nothing else.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled { run: self.clone() }
    }

    /// The ending that says this run has ended well: for backends that let a job finish its
    /// occurrence inside its own transaction. What the scheduler itself tells the store afterwards
    /// is then a repetition, and answered alike.
    pub fn finish(&self) -> Ending<'_> {
        let end = End::Finish { then: self.inner.then, outcome: Ended::Ran };
        Ending::new(self.name(), self.fence(), end)
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

/// Who extends leases and marks.
pub(crate) trait Beats: Send + Sync {
    /// Extends that of this run now.
    fn beat(&self, name: &str, fence: i64);
}

/// What a run has said about its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Retry { after: Duration, error: String },
    Release,
    GiveUp,
}

/// How the scheduler reaches a run: first it asks, then it takes the future away.
#[derive(Default)]
pub(crate) struct Control {
    /// [`RUNS`], [`CANCELLED`] or [`DROPPED`].
    stage: AtomicU8,
    /// The execution's task.
    pub(crate) execution: AtomicWaker,
    /// How often an extension of its lease was confirmed.
    confirmed: AtomicU64,
    /// The fence of its turn in its mutex group.
    mutex_fence: OnceLock<i64>,
    /// What it has said about its end.
    decision: Mutex<Option<Decision>>,
    /// Those who wait for the cancellation, or for a confirmation.
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

    /// Asks the run to end.
    pub(crate) fn cancel(&self) {
        self.advance(CANCELLED);
    }

    /// Ends it.
    pub(crate) fn drop_now(&self) {
        self.advance(DROPPED);
        self.execution.wake();
    }

    /// The store has extended its lease or mark.
    pub(crate) fn confirm(&self) {
        self.confirmed.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    pub(crate) fn set_mutex_fence(&self, fence: i64) {
        // A run has one turn.
        let _ = self.mutex_fence.set(fence);
    }

    fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Acquire)
    }

    pub(crate) fn decision(&self) -> Option<Decision> {
        self.decision.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_decision(&self, decision: Decision) {
        *self.decision.lock().unwrap_or_else(PoisonError::into_inner) = Some(decision);
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

    /// Whether an extension was confirmed since; false if the run is to end.
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
