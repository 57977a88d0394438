//! The store works from every runtime.

use crate::stores::{Single, members, or_skip, patient};
use allora_core::{
    Backend, Run, Runtime, Scheduler,
    backend::Page,
    every,
    runtime::{AsyncStd, Smol, Tokio},
};
use allora_etcd::Etcd;
use futures::{StreamExt, channel::mpsc};
use std::time::Duration;

/// Two nodes run a job three times.
async fn three_runs(urls: Vec<String>, name: &str, runtime: impl Runtime + Clone) {
    let (told, mut heard) = mpsc::unbounded();
    let prefix = format!("r{:x}_{name}", std::process::id());
    let (mut nodes, mut handles, mut stores) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..2 {
        let builder = patient(Etcd::builder().prefix(&prefix));
        let store = builder.connect(urls.clone()).await.unwrap();
        stores.push(store.clone());
        let told = told.clone();
        let scheduler = Scheduler::builder(store)
            .runtime(runtime.clone())
            .job("tick", every(Duration::from_millis(200)), async move |run: Run| {
                let _ = told.unbounded_send(run.scheduled_at());
            })
            .build()
            .unwrap();
        handles.push(scheduler.handle());
        nodes.push(scheduler.run());
    }
    let runs = async {
        let runs: Vec<_> = heard.by_ref().take(3).collect().await;
        handles.iter().for_each(|handle| handle.stop());
        runs
    };
    let (mut runs, _) = futures::join!(runs, futures::future::join_all(nodes));
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 3, "an occurrence ran twice");
    let listed = stores[0].schedules().unwrap().list(Page::first(9)).await.unwrap();
    assert!(listed[0].counters.started >= 3);
}

#[test]
fn from_tokio() {
    if let Some(urls) = or_skip(members::<Single>()) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { three_runs(urls, "tokio", Tokio::current().unwrap()).await });
    }
}

#[test]
fn from_async_std() {
    if let Some(urls) = or_skip(members::<Single>()) {
        async_std::task::block_on(three_runs(urls, "async_std", AsyncStd));
    }
}

#[test]
fn from_smol() {
    if let Some(urls) = or_skip(members::<Single>()) {
        smol::block_on(three_runs(urls, "smol", Smol));
    }
}
