//! Whole schedulers on a store: the shortest proof that a backend works from a runtime.

use allora_core::{
    Backend, Run, Runtime, Scheduler,
    backend::{Applied, Batch, Operation, Reply, TimeSource},
    every,
};
use futures::{StreamExt, channel::mpsc, future::join_all};
use std::time::Duration;

/// Two schedulers share a job until it has run three times, each occurrence once, which takes
/// the runtime's time. `stores` are two nodes on one store, which no other node uses.
///
/// ```
/// use allora_conformance::two_nodes_share_a_job;
/// use allora_core::runtime::Sim;
/// use allora_memory::Memory;
///
/// let (sim, store) = (Sim::new(1), Memory::new());
/// sim.block_on(two_nodes_share_a_job([store.clone(), store], sim.node()));
/// ```
///
/// # Panics
/// If an occurrence ran twice, or the store does not know what ran.
pub async fn two_nodes_share_a_job<B: Backend + Clone>(
    stores: [B; 2],
    runtime: impl Runtime + Clone,
) {
    const JOB: &str = "tick";
    let (report, mut runs) = mpsc::unbounded();
    let reader = stores[0].clone();
    let nodes = stores.map(|store| {
        let report = report.clone();
        let tick = async move |run: Run| {
            // The test does not count when enough have run.
            let _ = report.unbounded_send(run.scheduled_at());
        };
        Scheduler::builder(store)
            .runtime(runtime.clone())
            .job(JOB, every(Duration::from_millis(200)), tick)
            .build()
            .expect("a scheduler is built")
    });
    let handles = nodes.each_ref().map(Scheduler::handle);
    let three = async {
        let runs: Vec<_> = runs.by_ref().take(3).collect().await;
        handles.iter().for_each(|handle| handle.stop());
        runs
    };
    let (mut runs, _) = futures::join!(three, join_all(nodes.map(Scheduler::run)));
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 3, "an occurrence ran twice");
    let operations = [Operation::read(JOB)];
    let time = TimeSource::Store { fallback: runtime.wall() };
    let applied = reader.reschedule(Batch::new("reader", time, &operations)).await;
    let reply = applied.and_then(Applied::single).expect("the record is read");
    let Reply::State(state) = reply else { panic!("no record: {reply:?}") };
    assert!(state.counters.started >= 3, "{state:?}");
}

/// Tests of [`two_nodes_share_a_job`] from tokio, async-std and smol, which the crate must depend
/// on, for each `name: place;`. A place is an `Option` of what has `async fn open(&self)`, which
/// returns a connected store, and `async fn clear(&self)`; without a place, the tests pass.
#[macro_export]
macro_rules! two_nodes_on_every_runtime {
    ($($name:ident: $place:expr;)*) => {$(
        mod $name {
            use super::*;
            use ::allora_core::{Runtime, runtime};

            async fn works(runtime: impl Runtime + Clone) {
                let Some(place) = $place else { return };
                let stores = [place.open().await, place.open().await];
                $crate::two_nodes_share_a_job(stores, runtime).await;
                place.clear().await;
            }

            #[test]
            fn from_tokio() {
                let tokio = ::tokio::runtime::Runtime::new().unwrap();
                tokio.block_on(async { works(runtime::Tokio::current().unwrap()).await });
            }

            #[test]
            fn from_async_std() {
                ::async_std::task::block_on(works(runtime::AsyncStd));
            }

            #[test]
            fn from_smol() {
                ::smol::block_on(works(runtime::Smol));
            }
        }
    )*};
}
