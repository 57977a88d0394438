//! A check that is repeated on the driver's thread: periodically, and whenever one is requested.

use crate::driver::{now, sleep};
use futures::future::select;
use std::{
    pin::pin,
    time::{Duration, Instant},
};
use tokio::sync::{Notify, watch};

/// The shortest time between two checks.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Watcher {
    wanted: Notify,
    /// When the last check that has ended began.
    begun: watch::Sender<Option<Instant>>,
}

impl Default for Watcher {
    fn default() -> Self {
        Self { wanted: Notify::new(), begun: watch::Sender::new(None) }
    }
}

impl Watcher {
    /// Records a check that has ended, and waits for the time of the next one: after `wait`, or when
    /// it is requested.
    pub(crate) async fn checked(&self, begun: Instant, wait: Duration) {
        self.begun.send_replace(Some(begun));
        sleep(PAUSE).await;
        select(pin!(self.wanted.notified()), pin!(sleep(wait))).await;
    }

    /// Requests a check.
    pub(crate) fn request(&self) {
        self.wanted.notify_one();
    }

    /// True if a check that began after this time has ended.
    pub(crate) fn has_checked_since(&self, since: Instant) -> bool {
        self.begun.borrow().is_some_and(|begun| begun >= since)
    }

    /// Waits until a check that begins from now on has ended, or until `end`.
    pub(crate) async fn check(&self, end: Instant) {
        self.check_since(now(), end).await;
    }

    /// Waits until a check that began after `since` has ended, or until `end`.
    pub(crate) async fn check_since(&self, since: Instant, end: Instant) {
        let mut begun = self.begun.subscribe();
        if self.has_checked_since(since) {
            return;
        }
        self.request();
        let checked = begun.wait_for(|begun| begun.is_some_and(|begun| begun >= since));
        let _ = tokio::time::timeout_at(end.into(), checked).await;
    }
}
