//! The store works from every runtime.

use crate::stores::{Single, members, patient};
use allora_etcd::Etcd;

/// A prefix of one test's own, on one member.
struct Place(Vec<String>, String);

impl Place {
    fn new() -> Option<Self> {
        let prefix = format!("r{:x}_{:?}", std::process::id(), std::thread::current().id());
        let prefix = prefix.replace(['(', ')'], "_").to_lowercase();
        Some(Self(members::<Single>()?, prefix))
    }

    async fn open(&self) -> Etcd {
        patient(Etcd::builder().prefix(&self.1)).connect(self.0.clone()).await.unwrap()
    }

    /// The server goes with the run of the tests.
    async fn clear(&self) {}
}

allora_conformance::two_nodes_on_every_runtime! {
    single: Place::new();
}
