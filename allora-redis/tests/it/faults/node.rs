//! The nodes of the tests, in processes of their own, and the faults that every store is tested
//! with.

use crate::{
    server::{ON_DISK, Server},
    stores::{Kind, Place, pause, runtime},
};
use allora_conformance::faults::{self, Fleet, NodeStore, is_node};
use allora_core::{ErrorKind, Runtime, runtime::Tokio};
use allora_redis::Redis;
use std::{sync::Arc, time::Duration};

/// A place, and the settings of nodes on it.
pub(super) struct Settings {
    pub(super) place: Place,
    pub(super) history: u64,
    pub(super) replicas: u32,
    pub(super) is_ephemeral: bool,
}

impl Settings {
    pub(super) fn of(place: Place) -> Self {
        Self { place, history: 0, replicas: 0, is_ephemeral: false }
    }

    /// Two nodes that are at work. Their leases are longer than any outage here.
    pub(super) fn at_work(self) -> Fleet<Self> {
        Fleet::new(self, Duration::from_millis(100)).lease(Duration::from_secs(60)).at_work()
    }
}

impl NodeStore for Settings {
    type Store = Redis;
    const TEST: &str = "faults::node::a_node_runs_and_stops";

    fn to_text(&self) -> String {
        let Self { place, history, replicas, is_ephemeral } = self;
        let Place { kind, urls, prefix, shards } = place;
        let urls = urls.join(",");
        format!("{kind:?} {urls} {prefix} {shards} {history} {replicas} {is_ephemeral}")
    }

    fn from_text(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let kinds = [Kind::One, Kind::Cluster, Kind::Sentinel];
        let place = Place {
            kind: kinds.into_iter().find(|kind| format!("{kind:?}") == words[0]).unwrap(),
            urls: words[1].split(',').map(str::to_owned).collect(),
            prefix: words[2].to_owned(),
            shards: words[3].parse().unwrap(),
        };
        Self {
            place,
            history: words[4].parse().unwrap(),
            replicas: words[5].parse().unwrap(),
            is_ephemeral: words[6] == "true",
        }
    }

    async fn connect(&self) -> Redis {
        let builder = Redis::builder().history(self.history).wait_replicas(self.replicas);
        let builder = if self.is_ephemeral { builder.ephemeral() } else { builder };
        for _ in 0..600 {
            match self.place.connect(builder.clone()).await {
                Ok(store) => return store,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
            }
            pause(100).await;
        }
        panic!("{:?} does not answer", self.place);
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        runtime().block_on(work)
    }

    fn runtime() -> Arc<dyn Runtime> {
        Arc::new(Tokio::current().unwrap())
    }
}

/// Does a test on nodes of a server of its own, with a history.
fn on_one_server(test: impl FnOnce(Settings)) {
    if let Some(server) = Server::start(ON_DISK) {
        test(Settings { history: 100_000, ..Settings::of(server.place()) });
    }
}

#[test]
fn a_node_runs_and_stops() {
    if !is_node::<Settings>() {
        on_one_server(|settings| {
            faults::a_node_runs_and_stops(Fleet::new(settings, Duration::from_millis(100)));
        });
    }
}

#[test]
fn a_killed_nodes_runs_run_again_or_are_lost() {
    on_one_server(faults::a_killed_nodes_runs_run_again_or_are_lost);
}

#[test]
fn a_node_frozen_beyond_its_lease_is_fenced_and_goes_on() {
    on_one_server(faults::a_node_frozen_beyond_its_lease_is_fenced_and_goes_on);
}

#[test]
fn occurrences_released_by_stopping_nodes_run_on_others() {
    on_one_server(faults::occurrences_released_by_stopping_nodes_run_on_others);
}
