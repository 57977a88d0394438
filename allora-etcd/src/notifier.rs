//! Notifications: one key that every notification is written to, and the sessions of the nodes.

use crate::{
    client::{Connection, sleep},
    error::{failed, timed_out, unexpected_response},
    store::{Etcd, Store},
};
use allora_core::{
    Result,
    backend::{Notification, Notifier},
};
use async_trait::async_trait;
use etcd_client::{EventType, KeyValue, Txn, TxnOp, WatchOptions, WatchStream};
use futures::{StreamExt, channel::mpsc, stream::BoxStream};
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

/// The silence of the stream after which it is asked for a sign of life.
const MAX_SILENCE: Duration = Duration::from_secs(2);

const OP: &str = "subscribe";

type Subscriber = mpsc::UnboundedSender<Notification>;

#[async_trait]
impl Notifier for Etcd {
    async fn subscribe(&self) -> Result<BoxStream<'static, Notification>> {
        let (subscriber, notifications) = mpsc::unbounded();
        let (opened, first) = futures::channel::oneshot::channel();
        // The stream belongs to the driver's thread, from its beginning.
        self.store.client.spawn(watch(Arc::downgrade(&self.store), subscriber, opened));
        match first.await {
            Ok(Ok(())) => Ok(notifications.boxed()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(unexpected_response(OP)),
        }
    }
}

/// Forwards notifications until the subscriber is dropped. A broken stream is opened again, and
/// stands for one notification that anything may have changed: that covers a compaction, a member
/// that has died and a new leader.
async fn watch(
    store: Weak<Store>,
    subscriber: Subscriber,
    opened: futures::channel::oneshot::Sender<Result<()>>,
) {
    let mut opened = Some(opened);
    while let Some(strong) = store.upgrade() {
        let timeout = strong.client.timeout();
        let stream = match tokio::time::timeout(timeout, open(&strong)).await {
            Ok(stream) => stream,
            Err(_) => Err(timed_out(OP, timeout)),
        };
        match (stream, opened.take()) {
            (Ok((stream, connection)), first) => {
                match first {
                    Some(first) => drop(first.send(Ok(()))),
                    None => {
                        // The members may have been replaced by those of a restored backup, whose
                        // revisions have caught up before anything was sent.
                        strong.cache.clear();
                        drop(subscriber.unbounded_send(Notification::Changed));
                    }
                }
                drop(strong);
                forward(&store, stream, &connection, &subscriber).await;
            }
            (Err(error), Some(first)) => {
                strong.client.switch_member();
                drop(first.send(Err(error)));
                return;
            }
            (Err(_), None) => drop(strong),
        }
        if subscriber.is_closed() {
            return;
        }
        if let Some(strong) = store.upgrade() {
            strong.client.switch_member();
        }
        sleep(Duration::from_millis(200)).await;
    }
}

async fn open(store: &Store) -> Result<(WatchStream, Arc<Connection>)> {
    // A call renews a login that is not valid any more; the stream does not.
    let read = TxnOp::get(store.keys.notification(), None);
    store.client.txn(OP, Txn::new().and_then([read])).await?;
    open_stream(store).await.map_err(|cause| failed(OP, cause))
}

async fn open_stream(store: &Store) -> Result<(WatchStream, Arc<Connection>), etcd_client::Error> {
    let connection = store.client.stream_connection().await?;
    let mut stream =
        connection.client.watch_client().watch(store.keys.notification(), None).await?;
    stream.watch(store.keys.sessions(), Some(WatchOptions::new().with_prefix())).await?;
    // Both watches exist before the caller reads anything.
    let mut created = 0;
    while created < 2 {
        match stream.message().await? {
            Some(message) if message.canceled() => {
                return Err(etcd_client::Error::WatchError(message.cancel_reason().to_owned()));
            }
            Some(message) if message.created() => created += 1,
            Some(_) => {}
            None => return Err(etcd_client::Error::WatchError("the stream ended".into())),
        }
    }
    Ok((stream, connection))
}

/// Forwards until the stream breaks or hangs, or the subscriber is dropped.
async fn forward(
    store: &Weak<Store>,
    mut stream: WatchStream,
    connection: &Connection,
    subscriber: &Subscriber,
) {
    let mut was_asked = false;
    loop {
        let message = match tokio::time::timeout(MAX_SILENCE, stream.message()).await {
            Ok(Ok(Some(message))) => message,
            Ok(_) => return,
            Err(_) => {
                let is_over = was_asked || connection.is_silent() || subscriber.is_closed();
                if is_over || stream.request_progress().await.is_err() {
                    return;
                }
                was_asked = true;
                continue;
            }
        };
        was_asked = false;
        if message.canceled() {
            return;
        }
        let Some(store) = store.upgrade() else { return };
        for event in message.events() {
            let Some(kv) = event.kv() else { continue };
            for notification in store.notifications_of(event.event_type(), kv) {
                if subscriber.unbounded_send(notification).is_err() {
                    return;
                }
            }
        }
    }
}

impl Store {
    /// The notifications that follow from an event of the watch.
    fn notifications_of(&self, event: EventType, kv: &KeyValue) -> Vec<Notification> {
        let Some(node) = kv.key().strip_prefix(self.keys.sessions().as_bytes()) else {
            return vec![Notification::parse(&String::from_utf8_lossy(kv.value()))];
        };
        let node = String::from_utf8_lossy(node);
        if event == EventType::Put {
            self.sessions.on_clock(&node, kv.value());
            return Vec::new();
        }
        self.sessions.on_session_end(&node);
        // The runs of that node may be taken over now.
        let jobs = self.cache.leased_by(&node).into_iter().map(Notification::Job);
        jobs.chain([Notification::Changed]).collect()
    }
}
