//! Redis works from every runtime, however it is run.

use crate::stores::{Kind, Place};
use allora_conformance::two_nodes_share_a_job;
use allora_core::{
    Runtime,
    runtime::{AsyncStd, Smol, Tokio},
};

async fn works(place: Place, runtime: impl Runtime + Clone) {
    let stores = [place.open().await, place.open().await];
    two_nodes_share_a_job(stores, runtime).await;
    place.clear().await;
}

macro_rules! on_every_runtime {
    ($($name:ident: $kind:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn from_tokio() {
                if let Some(place) = $kind.place() {
                    let runtime = tokio::runtime::Runtime::new().unwrap();
                    runtime.block_on(async { works(place, Tokio::current().unwrap()).await });
                }
            }

            #[test]
            fn from_async_std() {
                if let Some(place) = $kind.place() {
                    async_std::task::block_on(works(place, AsyncStd));
                }
            }

            #[test]
            fn from_smol() {
                if let Some(place) = $kind.place() {
                    smol::block_on(works(place, Smol));
                }
            }
        }
    )*};
}

on_every_runtime! {
    one: Kind::One;
    cluster: Kind::Cluster;
    sentinel: Kind::Sentinel;
}
