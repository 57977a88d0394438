//! Hints that jobs have changed, for pages that stay open: one watcher for all of them.
//!
//! A hint names nothing, so a reader learns nothing from it that a page would hide. The page asks for itself again.
//! While no page is open, the store is asked nothing.

use allora_core::{
    ErrorKind, Handle, Runtime, Schedules, backend::Notification, stored::ChangeFilter,
};
use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderName, header},
    response::{IntoResponse, Response},
};
use futures::{
    Stream, StreamExt,
    channel::mpsc,
    future::{Either, select},
    stream::{self, BoxStream},
};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The largest number of streams of one console.
const MOST: usize = 32;

/// The longest silence of a stream, so that proxies keep it open.
const PING: Duration = Duration::from_secs(15);

/// The time after which a stream ends, and the browser asks for another one: a server that ends gracefully waits for its
/// streams, and access that was withdrawn ends with them.
const LONGEST: Duration = Duration::from_secs(60);

/// The time for which notifications are gathered.
const TICK: Duration = Duration::from_secs(1);

/// The shortest interval between two questions to the store, and between two hints.
const LOOK: Duration = Duration::from_secs(2);

/// The wait after a subscription before another one.
const RENEW: Duration = Duration::from_secs(30);

/// The first event. The browser sends its id when it asks again.
const BEGIN: &str = "retry: 1000\nid: 1\n\n";
/// As that, with a hint: what has changed meanwhile had none.
const AGAIN: &str = "retry: 1000\nid: 1\ndata: changed\n\n";
const HINT: &str = "data: changed\n\n";

/// The streams of a console. A clone has the same ones.
#[derive(Clone)]
pub(crate) struct Events {
    schedules: Schedules,
    streams: Arc<Mutex<Streams>>,
}

#[derive(Default)]
struct Streams {
    open: Vec<mpsc::Sender<()>>,
    is_watched: bool,
}

impl Events {
    pub(crate) fn new(schedules: Schedules) -> Self {
        Self { schedules, streams: Arc::default() }
    }

    /// A stream for a page that sends these headers. `handle`: the scheduler of this process, whose end it does not
    /// outlive. `None`: there are as many streams as may be.
    pub(crate) fn answer(&self, handle: Option<&Handle>, asked: &HeaderMap) -> Option<Response> {
        let hints = self.join(handle)?;
        let begin = if asked.contains_key("last-event-id") { AGAIN } else { BEGIN };
        let text = text(begin, hints, self.schedules.runtime().clone());
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream"),
            // Without it, nginx holds small answers back.
            (HeaderName::from_static("x-accel-buffering"), "no"),
        ];
        Some((headers, Body::from_stream(text)).into_response())
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hints of a new stream; `None` if there are as many streams as may be.
    fn join(&self, handle: Option<&Handle>) -> Option<mpsc::Receiver<()>> {
        let mut streams = self.streams();
        streams.open.retain(|one| !one.is_closed());
        if streams.open.len() >= MOST {
            return None;
        }
        let (sender, hints) = mpsc::channel(0);
        streams.open.push(sender);
        if !std::mem::replace(&mut streams.is_watched, true) {
            self.schedules.runtime().spawn(Box::pin(watch(self.clone(), handle.cloned())));
        }
        Some(hints)
    }

    /// `false` without any stream: the next one begins a watch of its own.
    fn is_needed(&self) -> bool {
        let mut streams = self.streams();
        streams.open.retain(|one| !one.is_closed());
        streams.is_watched = !streams.open.is_empty();
        streams.is_watched
    }

    fn tell(&self) {
        for one in &mut self.streams().open {
            // A full one has a hint that was not sent yet.
            let _ = one.try_send(());
        }
    }

    fn end(&self) {
        self.streams().open.clear();
    }
}

/// The events of a stream, until its time is over.
fn text(
    begin: &'static str,
    hints: mpsc::Receiver<()>,
    runtime: Arc<dyn Runtime>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let end = runtime.now() + LONGEST;
    let events = stream::unfold((hints, runtime), move |(mut hints, runtime)| async move {
        let silence = runtime.sleep_until((runtime.now() + PING).min(end));
        let event = match select(hints.next(), silence).await {
            Either::Left((Some(()), _)) => HINT,
            Either::Left((None, _)) => return None,
            Either::Right(_) if runtime.now() >= end => return None,
            Either::Right(_) => ": ping\n\n",
        };
        Some((event, (hints, runtime)))
    });
    stream::iter([begin]).chain(events).map(|event| Ok(Bytes::from_static(event.as_bytes())))
}

/// Tells all streams when jobs have changed, for as long as there is one.
async fn watch(events: Events, handle: Option<Handle>) {
    let mut watched = Watched::new(events.schedules.clone());
    let runtime = events.schedules.runtime();
    let (mut is_news, mut quiet_until) = (false, runtime.now());
    while events.is_needed() {
        // A program that ends need not wait for its readers.
        if handle.as_ref().is_some_and(|handle| handle.health().is_stopping) {
            events.end();
        }
        is_news |= watched.ask().await;
        let now = runtime.now();
        if is_news && quiet_until <= now {
            events.tell();
            (is_news, quiet_until) = (false, now + LOOK);
        }
        is_news |= watched.wait(now + TICK).await;
    }
}

/// The store, as far as it is watched: by its notifications, or else by the newest entry of its record of changes,
/// which lacks those without an author.
struct Watched {
    schedules: Schedules,
    notifications: Option<BoxStream<'static, Notification>>,
    /// The time of the next subscription; `None` if the store has no notifications.
    subscribe_at: Option<Instant>,
    /// The time of the next look at the record of changes.
    look_at: Instant,
    newest: Option<i64>,
}

impl Watched {
    fn new(schedules: Schedules) -> Self {
        let now = schedules.runtime().now();
        Self { schedules, notifications: None, subscribe_at: Some(now), look_at: now, newest: None }
    }

    /// Asks the store what it does not tell by itself. `true` if something may have changed. A failure is no news:
    /// pages that ask for themselves find it.
    async fn ask(&mut self) -> bool {
        if self.notifications.is_some() {
            return false;
        }
        let now = self.schedules.runtime().now();
        let is_time = self.subscribe_at.is_some_and(|at| at <= now);
        // Changes before the subscription had no notification.
        (is_time && self.subscribe(now).await) || self.look(now).await
    }

    /// Waits until this time. `true` if there was a notification.
    async fn wait(&mut self, until: Instant) -> bool {
        let mut over = self.schedules.runtime().sleep_until(until);
        let mut is_notified = false;
        while let Some(notifications) = &mut self.notifications {
            match select(notifications.next(), &mut over).await {
                Either::Left((Some(_), _)) => is_notified = true,
                Either::Left((None, _)) => (self.notifications, is_notified) = (None, true),
                Either::Right(_) => return is_notified,
            }
        }
        over.await;
        is_notified
    }

    async fn subscribe(&mut self, now: Instant) -> bool {
        self.subscribe_at = Some(now + RENEW);
        match self.schedules.notifications().await {
            Ok(notifications) => self.notifications = Some(notifications),
            Err(error) if error.kind() == ErrorKind::Unsupported => self.subscribe_at = None,
            Err(_) => {}
        }
        self.notifications.is_some()
    }

    async fn look(&mut self, now: Instant) -> bool {
        if now < self.look_at {
            return false;
        }
        self.look_at = now + LOOK;
        let page = self.schedules.changes(ChangeFilter::default(), None, 1).await;
        let Ok(page) = page else { return false };
        let newest = page.changes.first().map_or(0, |change| change.sequence);
        self.newest.replace(newest).is_some_and(|seen| seen != newest)
    }
}
