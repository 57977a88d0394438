//! Every database works from every runtime.

use crate::stores::{Db, Place};
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
    ($($name:ident: $db:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn from_tokio() {
                if let Some(place) = $db.place() {
                    let runtime = tokio::runtime::Runtime::new().unwrap();
                    runtime.block_on(async { works(place, Tokio::current().unwrap()).await });
                }
            }

            #[test]
            fn from_async_std() {
                if let Some(place) = $db.place() {
                    async_std::task::block_on(works(place, AsyncStd));
                }
            }

            #[test]
            fn from_smol() {
                if let Some(place) = $db.place() {
                    smol::block_on(works(place, Smol));
                }
            }
        }
    )*};
}

on_every_runtime! {
    sqlite: Db::Sqlite;
    postgres: Db::Postgres;
    mysql: Db::MySql;
}
