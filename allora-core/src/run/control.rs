//! The scheduler's side of a run: what the code of the run has set, and what it waits for.

use crate::{
    backend::Outcome,
    sync::{AtomicBool, AtomicU8, AtomicU64, AtomicWaker, Mutex, MutexGuard},
};
use slab::Slab;
use std::{
    future::poll_fn,
    sync::{Arc, OnceLock, PoisonError, atomic::Ordering},
    task::{Context, Poll, Waker},
    time::Duration,
};

/// The result that a run has requested for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requested {
    Retry { after: Duration, error: String },
    Release,
    ReleaseFor(Duration),
    GiveUp,
}

/// The scheduler's control of a run: cancellation first, then the end of its future.
#[derive(Default)]
pub(crate) struct Control {
    /// [`RUNS`], [`CANCELLED`] or [`DROPPED`].
    stage: AtomicU8,
    /// The cancellation was requested in the store.
    pub(super) cancel_requested: AtomicBool,
    /// The task that executes the run.
    pub(crate) execution: AtomicWaker,
    /// The number of confirmed extensions of its lease.
    confirmed: AtomicU64,
    /// The fence of its place of its concurrency key.
    pub(super) mutex_fence: OnceLock<i64>,
    /// The result that the run has requested.
    requested: Mutex<Option<Requested>>,
    /// The run has the operation that completes it, and may have sent it.
    pub(super) completion_made: AtomicBool,
    /// The output that the run has set.
    pub(super) output: Mutex<Option<String>>,
    /// The outcome that the store has recorded; `None`: it has rejected the end.
    pub(super) recorded: OnceLock<Option<Outcome>>,
    /// The progress that the run has set.
    pub(super) progress: Mutex<Option<String>>,
    /// The value that the run has set.
    pub(super) value: Mutex<Option<String>>,
    /// The node has begun to stop.
    stopping: AtomicBool,
    /// The last checkpoint of the run.
    checkpoint: Mutex<Option<Checkpoint>>,
    /// The futures that wait for the cancellation or for a confirmation. Each has one place, from
    /// its first poll to its end; the place is empty after a wake-up.
    waiting: Mutex<Slab<Option<Waker>>>,
}

/// A checkpoint of a run, on its way to the store.
#[derive(Clone)]
pub(crate) struct Checkpoint {
    pub(crate) value: Arc<[u8]>,
    /// The number of the checkpoint among those of the run.
    pub(crate) number: u64,
    /// That of the last one that the store has.
    saved: u64,
}

/// Nothing panics under the lock.
pub(super) fn lock<T>(value: &Mutex<Option<T>>) -> MutexGuard<'_, Option<T>> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Notes that the cancellation was requested in the store, before the run is cancelled for that.
    pub(crate) fn request_cancel(&self) {
        self.cancel_requested.store(true, Ordering::Release);
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

    /// The store has recorded this outcome, or rejected the end of the run.
    pub(crate) fn record(&self, outcome: Option<Outcome>) {
        let _ = self.recorded.set(outcome);
        self.wake();
    }

    pub(crate) fn set_mutex_fence(&self, fence: i64) {
        // A run has one place of its key.
        let _ = self.mutex_fence.set(fence);
    }

    /// The node has begun to stop.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) || self.is_cancelled()
    }

    /// The store has recorded or rejected the end of the run.
    pub(super) fn has_ended(&self) -> bool {
        self.recorded.get().is_some()
    }

    /// Sets the checkpoint. Returns its number.
    pub(super) fn set_checkpoint(&self, value: Vec<u8>) -> u64 {
        let mut checkpoint = lock(&self.checkpoint);
        let (number, saved) =
            checkpoint.as_ref().map_or((1, 0), |last| (last.number + 1, last.saved));
        *checkpoint = Some(Checkpoint { value: value.into(), number, saved });
        number
    }

    /// The checkpoint that the store does not have yet.
    pub(crate) fn unsaved_checkpoint(&self) -> Option<Checkpoint> {
        lock(&self.checkpoint).as_ref().filter(|last| last.saved < last.number).cloned()
    }

    /// The store has the checkpoint with this number.
    pub(crate) fn saved(&self, number: u64) {
        if let Some(last) = lock(&self.checkpoint).as_mut() {
            last.saved = last.saved.max(number);
        }
    }

    /// The store has the checkpoint with this number, or a later one.
    pub(super) fn has_saved(&self, number: u64) -> bool {
        lock(&self.checkpoint).as_ref().is_some_and(|last| last.saved >= number)
    }

    pub(super) fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Acquire)
    }

    pub(crate) fn requested(&self) -> Option<Requested> {
        self.requested.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The code of the run may have completed it in a transaction of its own.
    pub(crate) fn may_be_completed(&self) -> bool {
        self.completion_made.load(Ordering::Acquire)
    }

    pub(crate) fn output(&self) -> Option<String> {
        lock(&self.output).clone()
    }

    pub(crate) fn progress(&self) -> Option<String> {
        lock(&self.progress).clone()
    }

    pub(crate) fn value(&self) -> Option<String> {
        lock(&self.value).clone()
    }

    pub(super) fn set_requested(&self, decision: Requested) {
        *self.requested.lock().unwrap_or_else(PoisonError::into_inner) = Some(decision);
    }

    fn advance(&self, to: u8) {
        self.stage.fetch_max(to, Ordering::AcqRel);
        self.wake();
    }

    fn wake(&self) {
        let waiting: Vec<Waker> =
            self.waiting().iter_mut().filter_map(|(_, waker)| waker.take()).collect();
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(super) fn poll_cancelled(
        &self,
        waiter: &mut Option<usize>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        self.poll_until(Self::is_cancelled, waiter, cx)
    }

    /// Waits until the run is in this state.
    pub(super) async fn reached(&self, is_reached: impl Fn(&Self) -> bool) {
        let mut waiter = Waiter { control: self, place: None };
        poll_fn(|cx| self.poll_until(&is_reached, &mut waiter.place, cx)).await;
    }

    /// Registers the waiter, unless the run is in the state for which it waits.
    fn poll_until(
        &self,
        is_reached: impl Fn(&Self) -> bool,
        waiter: &mut Option<usize>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if is_reached(self) {
            return Poll::Ready(());
        }
        let waker = Some(cx.waker().clone());
        let before = {
            let mut waiting = self.waiting();
            match *waiter {
                Some(waiter) => std::mem::replace(&mut waiting[waiter], waker),
                None => {
                    *waiter = Some(waiting.insert(waker));
                    None
                }
            }
        };
        drop(before);
        // It may have been reached before the waker was registered.
        if is_reached(self) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Removes a waiter.
    pub(super) fn forget(&self, waiter: usize) {
        let waker = self.waiting().remove(waiter);
        drop(waker);
    }

    fn waiting(&self) -> MutexGuard<'_, Slab<Option<Waker>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the waiters of a run, which is left at its end.
struct Waiter<'a> {
    control: &'a Control,
    place: Option<usize>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.control.forget(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, future::join_all, task::noop_waker_ref};

    fn control(waiters: usize, polls: usize) -> usize {
        let control = Control::default();
        let mut places = vec![None; waiters];
        let mut cx = Context::from_waker(noop_waker_ref());
        for _ in 0..polls {
            for place in &mut places {
                assert_eq!(control.poll_cancelled(place, &mut cx), Poll::Pending);
            }
        }
        let registered = control.waiting().len();
        for place in places.into_iter().flatten() {
            control.forget(place);
        }
        assert!(control.waiting().is_empty());
        registered
    }

    /// A search of the list at every poll would be quadratic.
    #[test]
    fn each_waiter_has_one_place_and_leaves_it() {
        assert_eq!(control(50_000, 2), 50_000);
    }

    #[test]
    fn every_waiter_is_woken_by_each_confirmation_and_by_the_cancellation() {
        let control = Control::default();
        let (mut confirmed, mut woken) = (None, 0);
        let mut places = vec![None; 100];
        for stage in 0..3 {
            let waits: Vec<_> = places
                .iter_mut()
                .map(|place| poll_fn(|cx| control.poll_cancelled(place, cx)))
                .collect();
            let mut all = join_all(waits);
            let is_over = (&mut all).now_or_never().is_some();
            assert_eq!(is_over, stage == 2);
            drop(all);
            match stage {
                0 => control.confirm(),
                1 => control.cancel(),
                _ => {}
            }
            let asleep = control.waiting().iter().filter(|(_, waker)| waker.is_some()).count();
            woken += 100 - asleep;
            confirmed = Some(control.confirmed());
        }
        assert_eq!((confirmed, woken), (Some(1), 300));
    }
}
