//! The same calls on the memory backend and on a database give equal answers and equal states.

use crate::stores::{Place, on_every_database};
use allora_conformance::differential::{seeds, walk};
use allora_memory::Memory;

on_every_database! {
    a_long_walk_agrees_with_memory
    a_long_walk_with_history_agrees_with_memory
}

async fn a_long_walk_agrees_with_memory(place: Place) {
    for seed in seeds() {
        let place = place.beside(seed);
        walk(seed, &place.open().await, &Memory::new()).await;
    }
}

async fn a_long_walk_with_history_agrees_with_memory(place: Place) {
    for seed in seeds() {
        let place = place.beside(seed);
        let sql = place.builder().history(100_000).connect(&place.url).await.unwrap();
        walk(seed, &sql, &Memory::new().with_history(100_000)).await;
    }
}
