//! One run's future, kept apart: it may fail, panic, hang or be taken away, and harms nobody.

use super::{
    around::Next,
    node::{LiveId, Node},
};
use crate::{error::BoxError, job::panic_text, run::Run};
use futures::future::BoxFuture;
use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
    time::Duration,
};

/// How a run's future ended.
#[derive(Debug)]
pub(crate) enum How {
    /// With the text of its error, if any.
    Returned(Result<(), String>),
    Panicked(String),
    TimedOut(Duration),
    /// It was taken away before it ended.
    Dropped,
    /// It waited for its turn, and that did not come.
    NotBegun,
}

/// Runs a job to its end and reports that, whatever it is, exactly once.
pub(crate) async fn execute(
    // Dropped after the work, also when the executor throws the whole task away.
    mut report: Report,
    job: Next,
    run: Run,
    mut timeout: Option<(Duration, BoxFuture<'static, ()>)>,
) {
    let mut work = Work(None);
    match catch_unwind(AssertUnwindSafe(|| job.start(run.clone()))) {
        Ok(future) => work.0 = Some(future),
        Err(panic) => return report.end(How::Panicked(panic_text(&*panic))),
    }
    let how = poll_fn(|cx| {
        run.control().execution.register(cx.waker());
        if run.control().is_dropped() {
            return Poll::Ready(How::Dropped);
        }
        let Some(future) = &mut work.0 else { return Poll::Ready(How::Dropped) };
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Ready(returned)) => {
                return Poll::Ready(How::Returned(returned.map_err(error_text)));
            }
            Err(panic) => return Poll::Ready(How::Panicked(panic_text(&*panic))),
            Ok(Poll::Pending) => {}
        }
        match &mut timeout {
            Some((limit, sleep)) => sleep.as_mut().poll(cx).map(|()| How::TimedOut(*limit)),
            None => Poll::Pending,
        }
    })
    .await;
    report.end(match work.take_away() {
        Ok(()) => how,
        Err(panicked) => panicked,
    });
}

/// A job's future, whose destructor is the user's code too.
struct Work(Option<BoxFuture<'static, Result<(), BoxError>>>);

impl Work {
    fn take_away(&mut self) -> Result<(), How> {
        let future = self.0.take();
        catch_unwind(AssertUnwindSafe(|| drop(future)))
            .map_err(|panic| How::Panicked(panic_text(&*panic)))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = self.take_away();
    }
}

/// Tells the node, once, how the run ended; when dropped before, what that means.
pub(crate) struct Report {
    node: Arc<Node>,
    live: LiveId,
    dropped: Option<How>,
}

impl Report {
    pub(crate) fn new(node: Arc<Node>, live: LiveId, dropped: How) -> Self {
        Self { node, live, dropped: Some(dropped) }
    }

    /// What it means from now on that it is dropped.
    pub(crate) fn dropped_is(&mut self, how: How) {
        self.dropped = Some(how);
    }

    pub(crate) fn end(&mut self, how: How) {
        if self.dropped.take().is_some() {
            self.node.run_ended(self.live, how);
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(how) = self.dropped.take() {
            self.node.run_ended(self.live, how);
        }
    }
}

/// What an error says. It is the user's code, and may panic like the rest of it.
fn error_text(error: BoxError) -> String {
    let text = catch_unwind(AssertUnwindSafe(move || error.to_string()));
    text.unwrap_or_else(|panic| format!("an error that panicked: {}", panic_text(&*panic)))
}
