//! The nodes of the tests, in processes of their own.

use super::members::Members;
use crate::stores::{pause, runtime};
use allora_conformance::faults::{
    Fleet, NodeStore, a_node_runs_and_stops as runs_and_stops, is_node,
};
use allora_core::{Runtime, backend::HistoryLimits, runtime::Tokio};
use allora_etcd::Etcd;
use std::{sync::Arc, time::Duration};

/// Members, by their addresses.
pub(super) struct Cluster(pub(super) Vec<String>);

impl NodeStore for Cluster {
    type Store = Etcd;
    const TEST: &str = "faults::node::a_node_runs_and_stops";

    fn to_text(&self) -> String {
        self.0.join(",")
    }

    fn from_text(text: &str) -> Self {
        Self(text.split(',').map(str::to_owned).collect())
    }

    async fn connect(&self) -> Etcd {
        // Members that are being stopped may need a second try, as in a deployment.
        for _ in 0..600 {
            let history = HistoryLimits::from(50_000);
            if let Ok(store) = Etcd::builder().history(history).connect(self.0.clone()).await {
                return store;
            }
            pause(100).await;
        }
        panic!("{:?} do not answer", self.0);
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::task::block_in_place(|| runtime().block_on(work))
    }

    fn runtime() -> Arc<dyn Runtime> {
        Arc::new(Tokio::current().unwrap())
    }
}

/// Nodes on these members whose jobs run ten times a second.
pub(super) fn fleet(urls: Vec<String>) -> Fleet<Cluster> {
    Fleet::new(Cluster(urls), Duration::from_millis(100))
}

#[test]
fn a_node_runs_and_stops() {
    if is_node::<Cluster>() {
        return;
    }
    runtime().block_on(async {
        if let Some(members) = Members::start(1, &[]).await {
            runs_and_stops(fleet(members.urls()));
        }
    });
}
