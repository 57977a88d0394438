//! One run's future, kept apart: it may fail, panic, hang or be taken away, and harms nobody.

use super::node::{LiveId, Node};
use crate::{error::BoxError, job::panic_text, run::Run};
use futures::future::BoxFuture;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
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
}

/// Polls a run to its end and reports that, whatever it is, exactly once.
pub(crate) struct Execution {
    /// `None` when it has been reported.
    work: Option<BoxFuture<'static, Result<(), BoxError>>>,
    timeout: Option<(Duration, BoxFuture<'static, ()>)>,
    run: Run,
    live: LiveId,
    node: Arc<Node>,
}

impl Execution {
    pub(crate) fn new(
        node: Arc<Node>,
        live: LiveId,
        run: Run,
        work: BoxFuture<'static, Result<(), BoxError>>,
        timeout: Option<(Duration, BoxFuture<'static, ()>)>,
    ) -> Self {
        Self { work: Some(work), timeout, run, live, node }
    }

    /// Drops the future and reports.
    fn end(&mut self, how: How) -> Poll<()> {
        let how = match catch_unwind(AssertUnwindSafe(|| drop(self.work.take()))) {
            Ok(()) => how,
            Err(panic) => How::Panicked(panic_text(&*panic)),
        };
        self.node.run_ended(self.live, how);
        Poll::Ready(())
    }
}

impl Future for Execution {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.run.control().execution.register(cx.waker());
        if this.run.control().is_dropped() {
            return this.end(How::Dropped);
        }
        let Some(work) = &mut this.work else { return Poll::Ready(()) };
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(returned)) => {
                return this.end(How::Returned(returned.map_err(error_text)));
            }
            Err(panic) => {
                let text = panic_text(&*panic);
                return this.end(How::Panicked(text));
            }
            Ok(Poll::Pending) => {}
        }
        if let Some((limit, sleep)) = &mut this.timeout
            && sleep.as_mut().poll(cx).is_ready()
        {
            let limit = *limit;
            return this.end(How::TimedOut(limit));
        }
        Poll::Pending
    }
}

/// What an error says. It is the user's code, and may panic like the rest of it.
fn error_text(error: BoxError) -> String {
    let text = catch_unwind(AssertUnwindSafe(move || error.to_string()));
    text.unwrap_or_else(|panic| format!("an error that panicked: {}", panic_text(&*panic)))
}

impl Drop for Execution {
    /// The executor threw the task away: it is shutting down.
    fn drop(&mut self) {
        if self.work.is_some() {
            let _ = self.end(How::Dropped);
        }
    }
}
