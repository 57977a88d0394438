//! A part of the scheduler as a task of its own, so the executor may run it at the same time as the
//! others.
//!
//! The supervisor is such a task. The claimers call `next_at`, which is user code, and a schedule
//! that blocks its thread must not keep the node from extending its leases. On a runtime with one
//! thread it still does.

use crate::runtime::Runtime;
use futures::{
    FutureExt,
    channel::oneshot::{Receiver, channel},
    future::{AbortHandle, abortable},
};
use std::{
    any::Any,
    panic::{AssertUnwindSafe, resume_unwind},
};

/// A spawned future. Dropping it ends the future at its next suspension.
pub(in crate::scheduler) struct Spawned<T> {
    output: Receiver<Result<T, Panic>>,
    task: AbortHandle,
}

/// The value of a panic.
type Panic = Box<dyn Any + Send>;

impl<T: Send + 'static> Spawned<T> {
    pub(in crate::scheduler) fn new(
        runtime: &dyn Runtime,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        let (sender, output) = channel();
        let (future, task) = abortable(AssertUnwindSafe(future).catch_unwind());
        runtime.spawn(Box::pin(async move {
            if let Ok(output) = future.await {
                // The receiver may be dropped.
                let _ = sender.send(output);
            }
        }));
        Self { output, task }
    }

    /// The output of the future; `None` if the executor has dropped the task, as it does when it ends.
    /// A panic of the future is continued here.
    pub(in crate::scheduler) async fn output(mut self) -> Option<T> {
        match (&mut self.output).await {
            Ok(Ok(output)) => Some(output),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => None,
        }
    }
}

impl<T> Drop for Spawned<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{runtime::Sim, time::Time};
    use futures::future::{BoxFuture, pending};
    use std::{
        sync::Arc,
        time::{Duration, Instant},
    };

    fn output_of<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
        let sim = Sim::new(1);
        let node = sim.node();
        sim.block_on(async move { Spawned::new(&node, future).output().await.unwrap() })
    }

    #[test]
    fn its_output_is_that_of_the_future() {
        assert_eq!(output_of(async { 7 }), 7);
    }

    #[test]
    #[should_panic = "of the future"]
    fn a_panic_of_the_future_is_continued() {
        output_of(async { panic!("of the future") });
    }

    #[test]
    fn dropping_it_drops_the_future() {
        let sim = Sim::new(1);
        let node = sim.node();
        let owned = Arc::new(());
        let weak = Arc::downgrade(&owned);
        sim.block_on(async move {
            let spawned = Spawned::new(&node, async move {
                let _owned = owned;
                pending::<()>().await;
            });
            node.sleep_until(node.now()).await;
            drop(spawned);
            node.sleep_until(node.now() + Duration::from_secs(1)).await;
        });
        assert_eq!(weak.strong_count(), 0);
    }

    /// An executor that has ended.
    #[derive(Debug)]
    struct Ended;

    impl Runtime for Ended {
        fn spawn(&self, task: BoxFuture<'static, ()>) {
            drop(task);
        }
        fn sleep_until(&self, _: Instant) -> BoxFuture<'static, ()> {
            Box::pin(pending())
        }
        fn now(&self) -> Instant {
            unreachable!("nothing reads the clock")
        }
        fn wall(&self) -> Time {
            unreachable!("nothing reads the clock")
        }
        fn random(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_task_that_the_executor_drops_has_no_output() {
        let spawned = Spawned::new(&Ended, async { 7 });
        assert_eq!(futures::executor::block_on(spawned.output()), None);
    }
}
