//! One execution of an occurrence, as the job sees it.

use crate::{
    backend::{Cursor, End, Ended, Ending, Taken},
    time::Time,
};
use chrono::SecondsFormat;
use futures::task::AtomicWaker;
use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Waker},
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

    /// The id of a manual trigger; `None` for an occurrence of the schedule.
    pub fn trigger(&self) -> Option<&str> {
        self.inner.taken.run.trigger.as_deref()
    }

    /// The payload of a stored schedule; empty for a job in code.
    pub fn data(&self) -> &[u8] {
        &self.inner.data
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

/// How the scheduler reaches a run: first it asks, then it takes the future away.
#[derive(Default)]
pub(crate) struct Control {
    /// [`RUNS`], [`CANCELLED`] or [`DROPPED`].
    stage: AtomicU8,
    /// The execution's task.
    pub(crate) execution: AtomicWaker,
    /// Those who wait for the cancellation.
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

    fn advance(&self, to: u8) {
        self.stage.fetch_max(to, Ordering::AcqRel);
        let waiting = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
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
