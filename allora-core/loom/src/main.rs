//! Every order in which threads may meet in the wake-up of a task and in the control of a run: these files of the
//! product, with the atomics, locks and wakers of `loom`.
//!
//! A waiter that nobody wakes is a deadlock, which `loom` reports. `cargo xtask model` runs the searches.

#[expect(dead_code, reason = "no thread shares the rest")]
#[path = "../../src/notify.rs"]
mod notify;
mod run;
mod sync;

/// The rest, as far as the control of a run names it.
mod backend {
    pub(crate) type Outcome = ();
}

use allora_conformance::explore::{Explored, Violation};
use futures::{FutureExt, future::join, task::noop_waker_ref};
use loom::{future::block_on, model::Builder, sync::Arc, thread};
use notify::Notify;
use run::Control;
use std::{
    env,
    future::poll_fn,
    pin::pin,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    task::{Context, Poll},
};

/// The number of times that threads are interrupted though they could go on: with more, there are too many orders, and
/// by experience few defects.
const PREEMPTIONS: usize = 4;

/// The argument with which this program searches what is known to be broken.
const BROKEN: &str = "broken";

fn main() {
    if env::args().nth(1).as_deref() == Some(BROKEN) {
        search(notifications::<Forgetful>);
        return;
    }
    for (what, threads) in [
        ("two notifications, one waiter", notifications::<Notify> as fn()),
        ("a cancellation and a confirmation, two waiters", two_waiters),
        ("two confirmations, one waiter", two_confirmations),
        ("a cancellation, a waiter that gives up, one that stays", one_gives_up),
    ] {
        let what = format!("{what}, {PREEMPTIONS} interruptions");
        let explored = Explored { states: search(threads), is_whole: true, ..Explored::default() };
        explored.note("threads", &what);
    }
    // A process of its own: after a violation the engine cannot go on.
    let program = env::current_exe().expect("this program");
    let found = Command::new(program).arg(BROKEN).output().expect("this program starts");
    let said = String::from_utf8_lossy(&found.stderr);
    assert!(!found.status.success() && said.contains("deadlock"), "not found: {said}");
    let violation = Violation { what: "a waiter that nobody wakes".into(), way: Vec::new() };
    let explored = Explored { violation: Some(violation), ..Explored::default() };
    explored.note("threads", "NotifiedBeforeTheWaker");
}

/// Tries all orders of what these threads do. Returns their number.
fn search(threads: fn()) -> usize {
    let orders = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = orders.clone();
    let mut search = Builder::new();
    search.preemption_bound = Some(PREEMPTIONS);
    search.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        threads();
    });
    orders.load(Ordering::Relaxed)
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
