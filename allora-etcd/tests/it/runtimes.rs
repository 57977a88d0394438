//! The store works from every runtime.

use crate::stores::{Single, members, or_skip, patient};
use allora_conformance::two_nodes_share_a_job;
use allora_core::{
    Runtime,
    runtime::{AsyncStd, Smol, Tokio},
};
use allora_etcd::Etcd;

async fn works(urls: Vec<String>, name: &str, runtime: impl Runtime + Clone) {
    let prefix = format!("r{:x}_{name}", std::process::id());
    let open = || patient(Etcd::builder().prefix(&prefix)).connect(urls.clone());
    let stores = [open().await.unwrap(), open().await.unwrap()];
    two_nodes_share_a_job(stores, runtime).await;
}

#[test]
fn from_tokio() {
    if let Some(urls) = or_skip(members::<Single>()) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { works(urls, "tokio", Tokio::current().unwrap()).await });
    }
}

#[test]
fn from_async_std() {
    if let Some(urls) = or_skip(members::<Single>()) {
        async_std::task::block_on(works(urls, "async_std", AsyncStd));
    }
}

#[test]
fn from_smol() {
    if let Some(urls) = or_skip(members::<Single>()) {
        smol::block_on(works(urls, "smol", Smol));
    }
}
