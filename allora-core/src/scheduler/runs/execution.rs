//! The future of one run, isolated: it may fail, panic, hang or be dropped, and no other run
//! notices.

use super::{
    active_run::{ExitReason, RunId},
    middleware::Next,
};
use crate::{
    error::{BoxError, chain},
    job::panic_text,
    record::bounded,
    run::Run,
    scheduler::node::Node,
};
use futures::future::BoxFuture;
use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tracing::Span;

/// Runs a job, unless its lease may have ended before the first poll: the machine may have been
/// frozen since the claim.
pub(in crate::scheduler) async fn begin(mut report: Report, job: Next, run: Run, late: Duration) {
    let node = report.node.clone();
    let Some((span, timeout)) = node.begin(report.id, &run, late) else {
        return report.end(ExitReason::NotBegun);
    };
    report.begun(span);
    execute(report, job, run, timeout).await;
}

/// The time limit of a run.
pub(in crate::scheduler) type Timeout = Option<(Duration, BoxFuture<'static, ()>)>;

/// Runs a job to its end and reports the result exactly once.
pub(crate) async fn execute(
    // Dropped after the work, even when the executor drops the whole task.
    mut report: Report,
    job: Next,
    run: Run,
    mut timeout: Timeout,
) {
    let span = report.span.clone();
    let mut work = Work { future: None, span: span.clone() };
    match catch_unwind(AssertUnwindSafe(|| span.in_scope(|| job.start(run.clone())))) {
        Ok(future) => work.future = Some(future),
        Err(panic) => return report.end(ExitReason::Panicked(panic_text(&*panic))),
    }
    let how = poll_fn(|cx| {
        run.control().execution.register(cx.waker());
        if run.control().is_dropped() {
            return Poll::Ready(ExitReason::Dropped);
        }
        let Some(future) = &mut work.future else { return Poll::Ready(ExitReason::Dropped) };
        match catch_unwind(AssertUnwindSafe(|| span.in_scope(|| future.as_mut().poll(cx)))) {
            Ok(Poll::Ready(returned)) => {
                return Poll::Ready(ExitReason::Returned(returned.map_err(error_text)));
            }
            Err(panic) => return Poll::Ready(ExitReason::Panicked(panic_text(&*panic))),
            Ok(Poll::Pending) => {}
        }
        match &mut timeout {
            Some((limit, sleep)) => sleep.as_mut().poll(cx).map(|()| ExitReason::TimedOut(*limit)),
            None => Poll::Pending,
        }
    })
    .await;
    report.end(match work.take_away() {
        Ok(()) => how,
        Err(panicked) => panicked,
    });
}

/// A job's future, whose destructor is user code, too.
struct Work {
    future: Option<BoxFuture<'static, Result<(), BoxError>>>,
    span: Span,
}

impl Work {
    fn take_away(&mut self) -> Result<(), ExitReason> {
        let future = self.future.take();
        catch_unwind(AssertUnwindSafe(|| self.span.in_scope(|| drop(future))))
            .map_err(|panic| ExitReason::Panicked(panic_text(&*panic)))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = self.take_away();
    }
}

/// Reports the end of the run to the node, once. If it is dropped before, it reports the default
/// reason: at first that the run's code has not begun.
pub(crate) struct Report {
    node: Arc<Node>,
    id: RunId,
    dropped: Option<ExitReason>,
    /// The span of the run, from its beginning.
    span: Span,
}

impl Report {
    pub(crate) fn new(node: Arc<Node>, id: RunId) -> Self {
        Self { node, id, dropped: Some(ExitReason::NotBegun), span: Span::none() }
    }

    /// Notes that the run's code begins, in this span.
    fn begun(&mut self, span: Span) {
        self.dropped = Some(ExitReason::Dropped);
        self.span = span;
    }

    pub(crate) fn end(&mut self, how: ExitReason) {
        if self.dropped.take().is_some() {
            self.node.run_ended(self.id, how, &self.span);
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(how) = self.dropped.take() {
            self.node.run_ended(self.id, how, &self.span);
        }
    }
}

/// The text of an error with its causes, cut to the length that records keep. Formatting runs user
/// code, which may panic.
fn error_text(error: BoxError) -> String {
    let text = catch_unwind(AssertUnwindSafe(move || bounded(&chain(&*error))));
    text.unwrap_or_else(|panic| format!("an error that panicked: {}", panic_text(&*panic)))
}
