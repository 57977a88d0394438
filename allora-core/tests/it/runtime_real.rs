//! The runtimes of the real world: each passes the same check.

use allora_core::{Runtime, Time};
use futures::{
    StreamExt,
    channel::mpsc,
    executor::block_on,
    future::{Either, join, select},
};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

const MS: Duration = Duration::from_millis(1);

/// The library's requirements of a runtime. Run it on a thread that is inside no executor.
fn check(runtime: impl Runtime) {
    let runtime: Arc<dyn Runtime> = Arc::new(runtime);
    a_spawned_task_runs(&runtime);
    the_shorter_of_two_sleeps_ends_first_and_not_early(&runtime);
    a_sleep_that_has_passed_is_ready(&runtime);
    the_wall_clock_is_the_machines(&runtime);
    assert_ne!(runtime.random(), runtime.random());
}

fn a_spawned_task_runs(runtime: &Arc<dyn Runtime>) {
    let (done, mut ended) = mpsc::unbounded();
    runtime.spawn(Box::pin(async move { done.unbounded_send(7).expect("somebody listens") }));
    assert_eq!(block_on(ended.next()), Some(7));
}

fn the_shorter_of_two_sleeps_ends_first_and_not_early(runtime: &Arc<dyn Runtime>) {
    let start = runtime.now();
    let long = runtime.sleep_until(start + 3_600_000 * MS);
    let short = runtime.sleep_until(start + 10 * MS);
    assert!(matches!(block_on(select(long, short)), Either::Right(_)));
    assert!(runtime.now() >= start + 10 * MS);
}

fn a_sleep_that_has_passed_is_ready(runtime: &Arc<dyn Runtime>) {
    let now = runtime.now();
    block_on(join(runtime.sleep_until(now), runtime.sleep_until(now - MS)));
}

#[expect(clippy::disallowed_methods, reason = "the clock to compare with")]
fn the_wall_clock_is_the_machines(runtime: &Arc<dyn Runtime>) {
    let before = SystemTime::now();
    let shown = runtime.wall();
    assert!(shown >= Time::from(before) && shown <= Time::from(SystemTime::now()));
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
    use allora_core::{
        ErrorKind,
        runtime::{Tokio, detect},
    };
    use tokio::runtime::Builder;

    #[test]
    fn tokio_from_a_thread_that_is_not_tokios() {
        let tokio = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        check(Tokio::from_handle(tokio.handle().clone()).unwrap());
    }

    #[test]
    fn tokio_without_timers_is_an_error_that_names_the_remedy() {
        let tokio = Builder::new_current_thread().build().unwrap();
        let error = tokio.block_on(async { Tokio::current() }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("enable_time"), "{error}");
    }

    #[test]
    fn outside_tokio_there_is_no_current_one() {
        assert_eq!(Tokio::current().unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[tokio::test]
    async fn inside_tokio_it_is_detected() {
        assert!(format!("{:?}", detect().unwrap()).starts_with("Tokio"));
    }

    /// The sleep is longer than one leg, and than anybody waits for a test.
    #[tokio::test(start_paused = true)]
    async fn paused_tokio_time_is_followed_over_a_month() {
        let tokio = Tokio::current().unwrap();
        let at = tokio.now() + Duration::from_hours(24 * 31);
        tokio.sleep_until(at).await;
        assert!(tokio.now() >= at && tokio.now() < at + 1000 * MS);
    }

    #[test]
    fn paused_tokio_time_is_followed_from_outside() {
        let tokio = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let runtime = Tokio::from_handle(tokio.handle().clone()).unwrap();
        let before = runtime.now();
        tokio.block_on(tokio::time::advance(5 * MS));
        assert_eq!(runtime.now(), before + 5 * MS);
    }

    /// Nothing hangs and no sleep seems to have ended.
    #[test]
    fn after_tokios_end_tasks_are_dropped_and_sleeps_panic() {
        let tokio = Builder::new_current_thread().enable_time().build().unwrap();
        let runtime = Tokio::from_handle(tokio.handle().clone()).unwrap();
        drop(tokio);
        let (held, dropped) = futures::channel::oneshot::channel::<()>();
        runtime.spawn(Box::pin(async move {
            let _held = held;
            futures::future::pending().await
        }));
        assert!(block_on(dropped).is_err());
        let sleep = runtime.sleep_until(runtime.now() + 3_600_000 * MS);
        let slept = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(sleep)));
        assert!(slept.is_err());
    }
}
