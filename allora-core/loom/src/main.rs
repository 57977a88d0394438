//! Every order in which threads may meet in the wake-up of a task and in the control of a run: these files of the
//! product, with the atomics, locks and wakers of `loom`.
//!
//! A waiter that nobody wakes is a deadlock, which `loom` reports. `cargo xtask model` runs the searches.

#[expect(dead_code, reason = "no thread shares the rest")]
#[path = "../../src/notify.rs"]
mod notify;
mod run;
mod sync;

/// What the control of a run names of the rest.
mod backend {
    pub(crate) type Outcome = ();
}

use allora_conformance::explore::{Explored, Violation};
use futures::{FutureExt, future::join, task::noop_waker_ref};
use loom::{future::block_on, sync::Arc, thread};
use notify::Notify;
use run::Control;
use std::{
    future::poll_fn,
    panic::catch_unwind,
    pin::pin,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    task::{Context, Poll},
};

fn main() {
    let search = [
        Search::of("two notifications, one waiter", || notifications::<Notify>()),
        Search::of("a cancellation and a confirmation, two waiters", two_waiters),
        Search::of("two confirmations, one waiter", two_confirmations),
        Search::of("a cancellation, a waiter that gives up and one that stays", one_gives_up),
    ];
    assert!(search.iter().all(|search| search.holds()), "see above");
    let broken = Search::of("NotifiedBeforeTheWaker", || notifications::<Forgetful>());
    assert!(!broken.holds(), "a defect was not found");
}

/// A search that has ended.
struct Search(Explored);

impl Search {
    fn of(what: &str, threads: fn()) -> Self {
        static ORDERS: AtomicUsize = AtomicUsize::new(0);
        ORDERS.store(0, Ordering::Relaxed);
        let all = catch_unwind(|| {
            loom::model(move || {
                ORDERS.fetch_add(1, Ordering::Relaxed);
                threads();
            });
        });
        let violation = all.err().map(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
            Violation { what: text.lines().next().unwrap_or_default().to_owned(), way: Vec::new() }
        });
        let states = ORDERS.load(Ordering::Relaxed);
        let explored = Explored { states, is_whole: true, violation, ..Explored::default() };
        explored.note("threads", what);
        Self(explored)
    }

    fn holds(&self) -> bool {
        self.0.violation.is_none()
    }
}

trait WakeUp: Default + Send + Sync + 'static {
    fn notify(&self);
    fn notified(&self) -> impl Future<Output = ()>;
}

impl WakeUp for Notify {
    fn notify(&self) {
        Notify::notify(self);
    }

    fn notified(&self) -> impl Future<Output = ()> {
        Notify::notified(self)
    }
}

/// As `Notify`, but it does not look again after it has registered its waker.
#[derive(Default)]
struct Forgetful {
    notified: sync::AtomicBool,
    waker: sync::AtomicWaker,
}

impl WakeUp for Forgetful {
    fn notify(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    fn notified(&self) -> impl Future<Output = ()> {
        poll_fn(|cx| {
            if self.notified.swap(false, Ordering::AcqRel) {
                return Poll::Ready(());
            }
            self.waker.register(cx.waker());
            Poll::Pending
        })
    }
}

/// Each is received after it was sent, though both may be received as one.
fn notifications<N: WakeUp>() {
    let shared = Arc::new((N::default(), [AtomicBool::new(false), AtomicBool::new(false)]));
    for sender in 0..2 {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.1[sender].store(true, Ordering::Release);
            shared.0.notify();
        });
    }
    while !shared.1.iter().all(|sent| sent.load(Ordering::Acquire)) {
        block_on(shared.0.notified());
    }
}

fn two_waiters() {
    let control = Arc::new(Control::default());
    let other = control.clone();
    thread::spawn(move || other.confirm());
    let other = control.clone();
    thread::spawn(move || other.cancel());
    block_on(join(control.cancelled(), control.cancelled()));
}

fn two_confirmations() {
    let control = Arc::new(Control::default());
    for _ in 0..2 {
        let other = control.clone();
        thread::spawn(move || other.confirm());
    }
    block_on(control.confirmed_twice());
}

fn one_gives_up() {
    let control = Arc::new(Control::default());
    let other = control.clone();
    thread::spawn(move || other.cancel());
    {
        let mut waits = pin!(control.cancelled());
        let _ = waits.poll_unpin(&mut Context::from_waker(noop_waker_ref()));
    }
    block_on(control.cancelled());
}
