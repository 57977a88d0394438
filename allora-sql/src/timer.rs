//! Timers. The store knows no runtime, so that each waits on a thread of its own.

use futures::{
    channel::oneshot,
    future::{Either, select},
};
use std::{
    pin::pin,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

/// Waits.
pub(crate) async fn pause(duration: Duration) {
    if !duration.is_zero() {
        within(duration, futures::future::pending::<()>()).await;
    }
}

/// Waits for the future, at most this long.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (over, wait) = oneshot::channel();
    // The thread ends when this end is dropped.
    let (_waiting, ended) = channel::<()>();
    let timer = thread::Builder::new().name("allora-sql-timer".to_owned());
    let timer = timer.spawn(move || {
        if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            // The call may be over.
            let _ = over.send(());
        }
    });
    if timer.is_err() {
        // Without a thread there is no time to wait for.
        return futures::future::poll_immediate(future).await;
    }
    match select(pin!(future), wait).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{
        executor::block_on,
        future::{pending, ready},
    };

    #[test]
    fn what_takes_too_long_is_over_and_what_does_not_is_waited_for() {
        assert_eq!(block_on(within(Duration::from_millis(1), pending::<()>())), None);
        assert_eq!(block_on(within(Duration::from_secs(3_600), ready(1))), Some(1));
        let soon = within(Duration::from_secs(3_600), pause(Duration::from_millis(1)));
        assert_eq!(block_on(soon), Some(()));
    }
}
