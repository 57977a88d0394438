//! The subscription to the store's notifications. While there is none, polling finds the changes.

use crate::{
    backend::Notification,
    error::{Error, ErrorKind, Result},
    scheduler::{
        node::Node,
        side_request::SideRequest,
        store_request::{MAX_BACKOFF, within_limit},
    },
};
use futures::{FutureExt, StreamExt, stream::BoxStream};
use std::{
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

pub(in crate::scheduler) struct Subscription {
    stream: Option<BoxStream<'static, Notification>>,
    /// A notification that has come and was not taken.
    arrived: Option<Notification>,
    request: SideRequest<Result<BoxStream<'static, Notification>>>,
    /// The time of the next request, if there is no stream.
    renew_at: Instant,
    /// The time limit of the next request. It doubles with each failure: a store may need longer for a
    /// new connection than other requests may take.
    limit: Duration,
    failure: Failure,
}

/// The longest time limit.
const MAX_LIMIT: Duration = Duration::from_secs(60);

/// The failure of the last request. It is reported once, if the store answers other requests.
enum Failure {
    No,
    Because(Error),
    Reported,
}

impl Subscription {
    pub(in crate::scheduler) fn new(now: Instant) -> Self {
        Self {
            stream: None,
            arrived: None,
            request: SideRequest::default(),
            renew_at: now,
            limit: Duration::ZERO,
            failure: Failure::No,
        }
    }

    /// Subscribes, if it is time for that. `true` when there is a new subscription: earlier changes had
    /// no notification.
    pub(in crate::scheduler) fn renew(&mut self, node: &Arc<Node>) -> bool {
        let now = node.runtime.now();
        if self.renew_at(node).is_some_and(|at| at <= now) {
            self.renew_at = now + MAX_BACKOFF;
            let limit = self.limit.max(node.config.store_timeout);
            let node = node.clone();
            self.request.begin(async move {
                let none = || Error::new(ErrorKind::Unsupported, "no notifications");
                let notifier = node.backend.notifier().ok_or_else(none)?;
                within_limit(&node, "watch", limit, notifier.subscribe()).await
            });
        }
        match self.request.take() {
            Some(Ok(stream)) => {
                self.stream = Some(stream);
                self.limit = Duration::ZERO;
                self.failure = Failure::No;
                true
            }
            Some(Err(error)) => {
                self.renew_at = now + node.config.poll_interval.max(MAX_BACKOFF);
                self.limit = (self.limit.max(node.config.store_timeout) * 2).min(MAX_LIMIT);
                if matches!(self.failure, Failure::No) {
                    self.failure = Failure::Because(error);
                }
                false
            }
            None => false,
        }
    }

    /// `true` while notifications come.
    pub(in crate::scheduler) fn is_on(&self) -> bool {
        self.stream.is_some()
    }

    /// The time of the next request, if one is needed and none is on its way.
    pub(in crate::scheduler) fn renew_at(&self, node: &Node) -> Option<Instant> {
        let is_needed = self.stream.is_none() && !self.request.has_begun();
        (is_needed && node.backend.notifier().is_some()).then_some(self.renew_at)
    }

    /// Ready if a notification has come, or a subscription has begun or ended.
    pub(in crate::scheduler) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.arrived.is_some() {
            return Poll::Ready(());
        }
        match &mut self.stream {
            Some(stream) => stream.poll_next_unpin(cx).map(|arrived| {
                if arrived.is_none() {
                    self.stream = None;
                }
                self.arrived = arrived;
            }),
            None => self.request.poll(cx),
        }
    }

    /// The next notification, if one has come.
    pub(in crate::scheduler) fn take(&mut self) -> Option<Notification> {
        if let Some(arrived) = self.arrived.take() {
            return Some(arrived);
        }
        let next = self.stream.as_mut()?.next().now_or_never()?;
        if next.is_none() {
            self.stream = None;
        }
        next
    }

    /// The failure to report, now that the store has answered another request.
    pub(in crate::scheduler) fn failure_to_report(&mut self) -> Option<Error> {
        if matches!(self.failure, Failure::Because(_))
            && let Failure::Because(error) = std::mem::replace(&mut self.failure, Failure::Reported)
        {
            return Some(error);
        }
        None
    }
}
