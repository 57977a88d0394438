//! A store of your own, and a backend around another one: `cargo run --example custom_backend`.
//!
//! `store.rs` is a complete store. The tests of `allora-conformance` run the suite on it.

mod store;

use allora::{
    Backend, BoxError, Memory, Result, Run, Scheduler, async_trait,
    backend::{Applied, Batch, History, Notifier, Queries, TimeSource},
    every,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Counts the operations on another backend.
#[derive(Debug)]
struct Counted<B> {
    inner: B,
    operations: AtomicUsize,
}

// The lint names a method that is not forwarded. Its default would do nothing.
#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for Counted<B> {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        self.operations.fetch_add(batch.operations.len(), Ordering::Relaxed);
        self.inner.reschedule(batch).await
    }

    fn namespace(&self) -> &str {
        self.inner.namespace()
    }

    fn durability_warning(&self) -> Option<&str> {
        self.inner.durability_warning()
    }

    fn security_warning(&self) -> Option<&str> {
        self.inner.security_warning()
    }

    fn grants(&self, login: &str) -> Option<Vec<String>> {
        self.inner.grants(login)
    }

    async fn prune(&self, time: TimeSource) -> Result {
        self.inner.prune(time).await
    }

    fn queries(&self) -> Option<&dyn Queries> {
        self.inner.queries()
    }

    fn history(&self) -> Option<&dyn History> {
        self.inner.history()
    }

    fn notifier(&self) -> Option<&dyn Notifier> {
        self.inner.notifier()
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), BoxError> {
    println!("a store of one's own:");
    run_two_nodes(Arc::new(store::Map::default())).await?;
    println!("a backend around another:");
    let counted = Arc::new(Counted { inner: Memory::new(), operations: AtomicUsize::new(0) });
    run_two_nodes(counted.clone()).await?;
    println!("  {} operations", counted.operations.load(Ordering::Relaxed));
    Ok(())
}

/// Two nodes share the store for some seconds.
async fn run_two_nodes(store: Arc<dyn Backend>) -> std::result::Result<(), BoxError> {
    let nodes = ["a", "b"].map(|label| {
        Scheduler::builder(store.clone())
            .label(label)
            .job("tick", every(Duration::from_secs(1)), async |run: Run| {
                println!("  {} ran {} of {}", &run.node()[..1], run.name(), run.scheduled_at());
            })
            .build()
    });
    let [a, b] = nodes;
    let seconds = |n| tokio::time::sleep(Duration::from_secs(n));
    tokio::join!(a?.run_until(seconds(4)), b?.run_until(seconds(4)));
    Ok(())
}
