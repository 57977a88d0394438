//! The end of a trial by a signal: what it has made is removed first.

use crate::failure::{Failure, Outcome};
use std::{process, thread};
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::watch::{self, Receiver},
};

/// Tells whether SIGINT or SIGTERM has come. Another one ends the process at once: the removal may hang.
#[derive(Clone)]
pub(super) struct Interrupt(Receiver<bool>);

/// As a shell reports a process that SIGINT has ended.
const ENDED_AT_ONCE: i32 = 130;

impl Interrupt {
    /// Listens from now on.
    ///
    /// # Errors
    /// If the system gives no thread or no signals.
    pub(super) fn listen() -> Outcome<Self> {
        let (told, heard) = watch::channel(false);
        // The cases and the campaign have runtimes of their own, which come and go.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut signals = {
            let _inside = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! { _ = signals.0.recv() => {}, _ = signals.1.recv() => {} }
                    if told.send_replace(true) {
                        process::exit(ENDED_AT_ONCE);
                    }
                }
            });
        })?;
        Ok(Self(heard))
    }

    /// # Errors
    /// If a signal has come.
    pub(super) fn check(&self) -> Outcome {
        if *self.0.borrow() { Err(failure()) } else { Ok(()) }
    }

    /// Waits for a signal.
    pub(super) async fn failure(mut self) -> Failure {
        if self.0.wait_for(|has_come| *has_come).await.is_err() {
            // The thread is gone, and so no signal is heard.
            std::future::pending::<()>().await;
        }
        failure()
    }
}

fn failure() -> Failure {
    Failure::failed(
        "interrupted before its end, so nothing is proven; the scratch store is removed",
    )
}
