//! Hints: one key that every hint is written to, and the marks of the nodes.

use crate::{Etcd, driver::pause, error::failed, marks::clock_in, store::Store};
use allora_core::{
    Result,
    backend::{Hint, Watch},
};
use async_trait::async_trait;
use etcd_client::{EventType, WatchOptions, WatchStream};
use futures::{StreamExt, channel::mpsc, stream::BoxStream};
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

/// How long the stream may be silent before it is asked whether it lives.
const SILENT: Duration = Duration::from_secs(5);

#[async_trait]
impl Watch for Etcd {
    async fn subscribe(&self) -> Result<BoxStream<'static, Hint>> {
        const OP: &str = "watch";
        let (tell, hints) = mpsc::unbounded();
        let (opened, first) = futures::channel::oneshot::channel();
        // The stream belongs to the driver's thread, from its beginning.
        let watching = watch(Arc::downgrade(&self.store), tell, opened);
        self.store.driver.handle.spawn(watching);
        match first.await {
            Ok(Ok(())) => Ok(hints.boxed()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(crate::error::strange(OP)),
        }
    }
}

/// Passes hints on until nobody listens, or the stream breaks; then it is opened again, and what
/// was missed is told as one hint to look: a compaction, a member that is gone and a leader that
/// changed are all mended so.
async fn watch(
    store: Weak<Store>,
    tell: mpsc::UnboundedSender<Hint>,
    opened: futures::channel::oneshot::Sender<Result<()>>,
) {
    let mut opened = Some(opened);
    while let Some(strong) = store.upgrade() {
        let timeout = strong.timeout;
        let stream = match tokio::time::timeout(timeout, open(&strong)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(cause)) => Err(failed("watch", cause)),
            Err(_) => Err(crate::error::late("watch", timeout)),
        };
        match (stream, opened.take()) {
            (Ok(stream), first) => {
                match first {
                    Some(first) => drop(first.send(Ok(()))),
                    None => drop(tell.unbounded_send(Hint::Look)),
                }
                drop(strong);
                follow(&store, stream, &tell).await;
            }
            (Err(error), Some(first)) => {
                strong.driver.elsewhere();
                drop(first.send(Err(error)));
                return;
            }
            (Err(_), None) => drop(strong),
        }
        if tell.is_closed() {
            return;
        }
        if let Some(strong) = store.upgrade() {
            strong.driver.elsewhere();
        }
        pause(Duration::from_millis(200)).await;
    }
}

async fn open(store: &Store) -> Result<WatchStream, etcd_client::Error> {
    let client = store.driver.stream_client().await?;
    let mut stream = client.watch_client().watch(store.keys.told(), None).await?;
    stream.watch(store.keys.marks(), Some(WatchOptions::new().with_prefix())).await?;
    // Both are there before anything is looked at.
    let mut created = 0;
    while created < 2 {
        match stream.message().await? {
            Some(said) if said.created() => created += 1,
            Some(_) => {}
            None => return Err(etcd_client::Error::WatchError("the stream ended".into())),
        }
    }
    Ok(stream)
}

/// Until the stream is broken, hangs, or nobody listens.
async fn follow(store: &Weak<Store>, mut stream: WatchStream, tell: &mpsc::UnboundedSender<Hint>) {
    let mut asked = false;
    loop {
        let said = match tokio::time::timeout(SILENT, stream.message()).await {
            Ok(Ok(Some(said))) => said,
            Ok(_) => return,
            Err(_) => {
                if asked || tell.is_closed() || stream.request_progress().await.is_err() {
                    return;
                }
                asked = true;
                continue;
            }
        };
        asked = false;
        if said.canceled() {
            return;
        }
        let Some(store) = store.upgrade() else { return };
        for event in said.events() {
            let Some(kv) = event.kv() else { continue };
            let hint = match kv.key().strip_prefix(store.keys.marks().as_bytes()) {
                None => Hint::parse(&String::from_utf8_lossy(kv.value())),
                Some(node) => {
                    let node = String::from_utf8_lossy(node);
                    if event.event_type() == EventType::Put {
                        if let Ok(clock) = clock_in(kv.value()) {
                            store.marks.shows(&node, clock);
                        }
                        continue;
                    }
                    store.marks.left(&node);
                    // What it ran may be taken over now.
                    for name in store.run_by(&node) {
                        drop(tell.unbounded_send(Hint::Job(name)));
                    }
                    Hint::Look
                }
            };
            if tell.unbounded_send(hint).is_err() {
                return;
            }
        }
    }
}
