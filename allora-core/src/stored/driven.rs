//! A future that each of its waiters drives: it goes on as long as one of them is polled.

use futures::future::BoxFuture;
use std::{
    collections::BTreeMap,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

/// A future with any number of waiters. A waiter that is dropped, or that its task does not poll, keeps
/// no other one waiting. Without waiters it stops.
///
/// `futures::future::Shared` loses a wake-up that comes while a waiter polls it, if that waiter is
/// dropped before its next poll.
pub(super) struct Driven<T> {
    call: Mutex<Call<T>>,
    waiters: Arc<Waiters>,
}

enum Call<T> {
    Active(BoxFuture<'static, T>),
    Ended(T),
}

/// The waker of the future: it wakes all waiters.
struct Waiters(Mutex<Waiting>);

struct Waiting {
    /// The future has to be polled.
    is_woken: bool,
    wakers: BTreeMap<u64, Waker>,
    /// The number of the last waiter.
    last: u64,
}

/// Waits for the end of the future, and drives it.
pub(super) struct Wait<T> {
    driven: Arc<Driven<T>>,
    number: u64,
}

impl<T: Clone> Driven<T> {
    pub(super) fn new(call: BoxFuture<'static, T>) -> Arc<Self> {
        let waiting = Waiting { is_woken: true, wakers: BTreeMap::new(), last: 0 };
        let waiters = Arc::new(Waiters(Mutex::new(waiting)));
        Arc::new(Self { call: Mutex::new(Call::Active(call)), waiters })
    }

    pub(super) fn wait(self: &Arc<Self>) -> Wait<T> {
        let mut waiting = self.waiters.lock();
        waiting.last += 1;
        Wait { driven: self.clone(), number: waiting.last }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.call.try_lock().as_deref(), Ok(Call::Ended(_)))
    }

    /// Polls the future, if it has to be polled.
    fn poll(&self) -> Poll<T> {
        let polled = {
            // Not `try_lock`: nothing wakes a waiter that finds another one reading the result.
            let mut call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
            match &mut *call {
                Call::Ended(result) => return Poll::Ready(result.clone()),
                Call::Active(future) => {
                    if !mem::take(&mut self.waiters.lock().is_woken) {
                        return Poll::Pending;
                    }
                    let waker = Waker::from(self.waiters.clone());
                    let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
                    if let Poll::Ready(result) = &polled {
                        *call = Call::Ended(result.clone());
                    }
                    polled
                }
            }
        };
        if polled.is_ready() {
            self.waiters.wake_by_ref();
        }
        polled
    }
}

impl<T: Clone> Future for Wait<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Before the future is polled: a later wake-up is for this waiter, too.
        self.driven.waiters.lock().wakers.insert(self.number, cx.waker().clone());
        self.driven.poll()
    }
}

impl<T> Drop for Wait<T> {
    fn drop(&mut self) {
        self.driven.waiters.lock().wakers.remove(&self.number);
    }
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Waiters {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let wakers = {
            let mut waiting = self.lock();
            waiting.is_woken = true;
            mem::take(&mut waiting.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{channel::oneshot, executor::block_on, future::FutureExt};
    use std::{
        sync::{
            atomic::{AtomicUsize, Ordering::SeqCst},
            mpsc,
        },
        thread,
        time::Duration,
    };

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// Polls it with a waker that counts.
    fn poll<T: Clone>(wait: &mut Wait<T>) -> (Poll<T>, Arc<Count>) {
        let count = Arc::<Count>::default();
        let waker = Waker::from(count.clone());
        (Pin::new(wait).poll(&mut Context::from_waker(&waker)), count)
    }

    fn driven() -> (oneshot::Sender<u32>, Arc<Driven<u32>>) {
        let (sender, receiver) = oneshot::channel();
        (sender, Driven::new(receiver.map(|sent| sent.unwrap_or_default()).boxed()))
    }

    #[test]
    fn every_waiter_is_woken_and_receives_the_result() {
        let (sender, driven) = driven();
        let mut waits = [driven.wait(), driven.wait()];
        let woken = waits.each_mut().map(|wait| poll(wait).1);
        sender.send(7).unwrap();
        assert!(woken.iter().all(|count| count.0.load(SeqCst) == 1));
        assert!(waits.iter_mut().all(|wait| poll(wait).0 == Poll::Ready(7)));
        assert_eq!(poll(&mut driven.wait()).0, Poll::Ready(7), "also a later one");
    }

    #[test]
    fn a_waiter_that_is_woken_and_dropped_leaves_the_future_to_another_one() {
        let (sender, driven) = driven();
        let (mut first, mut second) = (driven.wait(), driven.wait());
        assert!(poll(&mut first).0.is_pending());
        let (_, woken) = poll(&mut second);
        sender.send(7).unwrap();
        drop(first);
        assert_eq!(woken.0.load(SeqCst), 1);
        assert_eq!(poll(&mut second).0, Poll::Ready(7));
    }

    /// Its copies take a while, as those of a long result.
    struct Slow;

    #[expect(clippy::disallowed_methods, reason = "threads that really run at the same time")]
    impl Clone for Slow {
        fn clone(&self) -> Self {
            thread::sleep(Duration::from_millis(100));
            Slow
        }
    }

    #[test]
    fn waiters_that_read_the_result_at_the_same_time_all_receive_it() {
        let (sender, receiver) = oneshot::channel::<()>();
        let driven = Driven::new(receiver.map(|_| Slow).boxed());
        let (done, ended) = mpsc::channel();
        for _ in 0..8 {
            let (wait, done) = (driven.wait(), done.clone());
            thread::spawn(move || {
                let Slow = block_on(wait);
                done.send(())
            });
        }
        while driven.waiters.lock().wakers.len() < 8 {
            thread::yield_now();
        }
        sender.send(()).unwrap();
        for waiter in 0..8 {
            let received = ended.recv_timeout(Duration::from_secs(20));
            assert!(received.is_ok(), "{waiter} of 8 were woken");
        }
    }

    #[test]
    fn a_dropped_waiter_keeps_no_waker() {
        let (_sender, driven) = driven();
        let mut wait = driven.wait();
        let (_, woken) = poll(&mut wait);
        drop(wait);
        assert_eq!(Arc::strong_count(&woken), 1);
    }
}
