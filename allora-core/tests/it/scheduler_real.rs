//! Schedulers on the runtimes of the real world: each passes the same short check. Nothing is said
//! about how fast, but for a time-out that no machine reaches.

use allora_core::{Run, Runtime, Scheduler, Stopped, every};
use allora_memory::Memory;
use futures::{
    StreamExt,
    channel::{mpsc, oneshot},
    executor::block_on,
    future::{Either, select},
};
use std::{future::pending, pin::pin, sync::Arc, time::Duration};

const MS: Duration = Duration::from_millis(1);

/// Longer than anything here takes on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Run on a thread that is inside no executor of its own.
fn check(runtime: impl Runtime) {
    let runtime: Arc<dyn Runtime> = Arc::new(runtime);
    two_schedulers_share_a_job_and_stop(&runtime);
    a_dropped_scheduler_takes_its_runs_along(&runtime);
}

fn two_schedulers_share_a_job_and_stop(runtime: &Arc<dyn Runtime>) {
    let store = Memory::new();
    let (began, mut runs) = mpsc::unbounded();
    let members: Vec<_> = (0..2)
        .map(|_| {
            let began = began.clone();
            let scheduler = Scheduler::builder(store.clone())
                .runtime(runtime.clone())
                .job("job", every(20 * MS), async move |run: Run| {
                    let _ = began.unbounded_send((run.scheduled_at(), run.fence()));
                })
                .build()
                .unwrap();
            let handle = scheduler.handle();
            let (told, stopped) = oneshot::channel::<Stopped>();
            runtime.spawn(Box::pin(async move {
                let _ = told.send(scheduler.run().await);
            }));
            (handle, stopped)
        })
        .collect();
    let mut seen: Vec<_> = (0..10).map(|_| in_time(runtime, runs.next()).unwrap()).collect();
    for (handle, stopped) in members {
        handle.stop();
        assert_eq!(in_time(runtime, stopped).unwrap().unrecorded, 0);
    }
    seen.sort();
    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
}

fn a_dropped_scheduler_takes_its_runs_along(runtime: &Arc<dyn Runtime>) {
    let (began, mut runs) = mpsc::unbounded();
    let scheduler = Scheduler::builder(Memory::new())
        .runtime(runtime.clone())
        .job("endless", every(20 * MS), async move |_: Run| {
            let (held, dropped) = oneshot::channel::<()>();
            let _ = began.unbounded_send(dropped);
            let _held = held;
            pending::<()>().await;
        })
        .build()
        .unwrap();
    let (told, ended) = oneshot::channel::<()>();
    let (stop, stopped) = oneshot::channel::<()>();
    runtime.spawn(Box::pin(async move {
        let _ = select(pin!(scheduler.run()), stopped).await;
        let _ = told.send(());
    }));
    let dropped = in_time(runtime, runs.next()).unwrap();
    stop.send(()).unwrap();
    in_time(runtime, ended).unwrap();
    assert!(in_time(runtime, dropped).is_err(), "the run's future is gone");
}

fn in_time<T>(runtime: &Arc<dyn Runtime>, what: impl Future<Output = T>) -> T {
    let late = runtime.sleep_until(runtime.now() + PATIENCE);
    match block_on(select(pin!(what), late)) {
        Either::Left((done, _)) => done,
        Either::Right(_) => panic!("not within {PATIENCE:?}"),
    }
}

#[cfg(feature = "smol")]
#[test]
fn smol() {
    check(allora_core::runtime::Smol);
}

#[cfg(feature = "async-std")]
#[test]
fn async_std() {
    check(allora_core::runtime::AsyncStd);
}

#[cfg(feature = "tokio")]
mod on_tokio {
    use super::*;
    use allora_core::{BoxError, Job, Time, runtime::Tokio};
    use async_trait::async_trait;
    use std::sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    };
    use tokio::runtime::Builder;

    #[test]
    fn tokio_with_several_threads() {
        let tokio = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        check(Tokio::from_handle(tokio.handle().clone()).unwrap());
    }

    /// A job whose schedule blocks the thread that asks it, once it `may_block`, until it is released.
    struct Blocking {
        may_block: Arc<AtomicBool>,
        blocks: Arc<AtomicBool>,
        release: Mutex<Receiver<()>>,
    }

    #[async_trait]
    impl Job for Blocking {
        fn next_at(&self, after: Time) -> Option<Time> {
            if self.may_block.load(Ordering::Acquire) && !self.blocks.swap(true, Ordering::AcqRel) {
                let released = self.release.lock().unwrap().recv_timeout(PATIENCE);
                assert!(released.is_ok(), "nothing else went on");
            }
            Some(after + 20 * MS)
        }

        async fn run(&self, _: Run) -> Result<(), BoxError> {
            Ok(())
        }
    }

    #[test]
    fn a_schedule_that_blocks_its_thread_keeps_no_lease_from_being_extended() {
        let tokio = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        let runtime: Arc<dyn Runtime> =
            Arc::new(Tokio::from_handle(tokio.handle().clone()).unwrap());
        let (may_block, blocks): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
        let (release, released) = channel();
        let release_by = released.into();
        let blocking =
            Blocking { may_block: may_block.clone(), blocks: blocks.clone(), release: release_by };
        let (extended, extensions) = oneshot::channel();
        let extended = Mutex::new(Some((release, extended)));
        let clock = runtime.clone();
        let extends = async move |run: Run| {
            let Some((release, extended)) = extended.lock().unwrap().take() else { return };
            may_block.store(true, Ordering::Release);
            // A wake-up by the blocked thread would wait for that thread.
            while !blocks.load(Ordering::Acquire) {
                clock.sleep_until(clock.now() + MS).await;
            }
            let _ = extended.send(run.heartbeat().await);
            release.send(()).unwrap();
        };
        let extends = Arc::new(extends);
        let scheduler = Scheduler::builder(Memory::new())
            .runtime(runtime.clone())
            .add("blocking", blocking)
            .job("extends", every(20 * MS), async move |run: Run| extends(run).await)
            .build()
            .unwrap();
        let handle = scheduler.handle();
        runtime.spawn(Box::pin(async move {
            scheduler.run().await;
        }));
        assert!(in_time(&runtime, extensions).unwrap().is_ok());
        handle.stop();
    }

    /// The test's own thread drives it, and another one checks.
    #[test]
    fn tokio_with_one_thread() {
        let tokio = Builder::new_current_thread().enable_time().build().unwrap();
        let runtime = Tokio::from_handle(tokio.handle().clone()).unwrap();
        let (told, done) = oneshot::channel::<()>();
        let checks = std::thread::spawn(move || {
            check(runtime);
            let _ = told.send(());
        });
        let _ = tokio.block_on(done);
        checks.join().unwrap();
    }
}
