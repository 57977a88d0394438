//! Middleware: the application's code around every run of a node.

use crate::{error::BoxError, job::Job, run::Run};
use futures::future::{BoxFuture, FutureExt};
use std::{fmt, sync::Arc};

/// One middleware.
pub(crate) type Middleware =
    Arc<dyn Fn(Run, Next) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// The rest of a run after a middleware: the next middleware, and finally the job. See
/// [`SchedulerBuilder::middleware`](crate::SchedulerBuilder::middleware).
pub struct Next {
    middleware: Arc<[Middleware]>,
    done: usize,
    job: Arc<dyn Job>,
}

impl Next {
    pub(in crate::scheduler) fn new(middleware: Arc<[Middleware]>, job: Arc<dyn Job>) -> Self {
        Self { middleware, done: 0, job }
    }

    /// Runs it.
    ///
    /// # Errors
    /// The error of the job or of an inner middleware.
    ///
    /// # Cancel safety
    /// Dropping the future drops the job's future.
    pub async fn run(self, run: Run) -> Result<(), BoxError> {
        self.start(run).await
    }

    pub(in crate::scheduler) fn start(
        mut self,
        run: Run,
    ) -> BoxFuture<'static, Result<(), BoxError>> {
        let around = self.middleware.get(self.done).cloned();
        self.done += 1;
        match around {
            Some(around) => around(run, self),
            None => {
                let job = self.job;
                async move { job.run(run).await }.boxed()
            }
        }
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}
