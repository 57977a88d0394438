//! The same calls on the memory backend and on Redis give equal answers and equal states: what the
//! scripts decide is what the pure functions decide.

use crate::stores::{Kind, runtime};
use allora_conformance::differential::{seeds, walk};
use allora_memory::Memory;
use allora_redis::Redis;

/// Walks on places of their own.
fn walks(kind: Kind, history: u64) {
    runtime().block_on(async {
        for seed in seeds() {
            let Some(place) = kind.place() else { return };
            let redis = place.connect(Redis::builder().history(history)).await.unwrap();
            let memory = match history {
                0 => Memory::new(),
                history => Memory::new().with_history(history),
            };
            walk(seed, &redis, &memory).await;
            place.clear().await;
        }
    });
}

#[test]
fn a_long_walk_agrees_with_memory() {
    walks(Kind::One, 0);
}

#[test]
fn a_long_walk_with_history_agrees_with_memory() {
    walks(Kind::One, 100_000);
}

#[test]
fn a_long_walk_over_a_cluster_agrees_with_memory() {
    walks(Kind::Cluster, 0);
}
