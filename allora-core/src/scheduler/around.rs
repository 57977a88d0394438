//! Hooks: what an application puts around every run of a node.

use crate::{error::BoxError, job::Job, run::Run};
use futures::future::{BoxFuture, FutureExt};
use std::{fmt, sync::Arc};

/// One hook.
pub(crate) type Around =
    Arc<dyn Fn(Run, Next) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// What comes after a hook: the next one, and at last the job. See
/// [`Builder::around`](crate::Builder::around).
pub struct Next {
    arounds: Arc<[Around]>,
    done: usize,
    job: Arc<dyn Job>,
}

impl Next {
    pub(super) fn new(arounds: Arc<[Around]>, job: Arc<dyn Job>) -> Self {
        Self { arounds, done: 0, job }
    }

    /// Does it.
    ///
    /// # Errors
    /// What the job, or a hook in between, answers with.
    ///
    /// # Cancel safety
    /// Dropping the future drops the job's.
    pub async fn run(self, run: Run) -> Result<(), BoxError> {
        self.start(run).await
    }

    pub(super) fn start(mut self, run: Run) -> BoxFuture<'static, Result<(), BoxError>> {
        let around = self.arounds.get(self.done).cloned();
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
