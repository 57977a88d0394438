//! Redis works from every runtime, however it is run.

use crate::stores::{Kind, Place};
use allora_core::{
    Backend, Run, Runtime, Scheduler,
    backend::Page,
    every,
    runtime::{AsyncStd, Smol, Tokio},
};
use futures::{StreamExt, channel::mpsc};
use std::time::Duration;

/// Two nodes run a job three times.
async fn three_runs(place: Place, runtime: impl Runtime + Clone) {
    let (told, mut heard) = mpsc::unbounded();
    let store = place.open().await;
    let mut nodes = Vec::new();
    let mut handles = Vec::new();
    for _ in 0..2 {
        let told = told.clone();
        let scheduler = Scheduler::builder(place.open().await)
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
    let listed = store.schedules().unwrap().list(Page::first(9)).await.unwrap();
    assert!(listed[0].counters.started >= 3);
}

macro_rules! on_every_runtime {
    ($($name:ident: $kind:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn from_tokio() {
                if let Some(place) = $kind.place() {
                    let runtime = tokio::runtime::Runtime::new().unwrap();
                    runtime.block_on(async {
                        three_runs(place.clone(), Tokio::current().unwrap()).await;
                        place.clear().await;
                    });
                }
            }

            #[test]
            fn from_async_std() {
                if let Some(place) = $kind.place() {
                    async_std::task::block_on(async {
                        three_runs(place.clone(), AsyncStd).await;
                        place.clear().await;
                    });
                }
            }

            #[test]
            fn from_smol() {
                if let Some(place) = $kind.place() {
                    smol::block_on(async {
                        three_runs(place.clone(), Smol).await;
                        place.clear().await;
                    });
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
