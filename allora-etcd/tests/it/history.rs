//! The history: what a page reads, and how it is pruned.

use crate::{
    faults::members::Members,
    stores::{patient, patiently, runtime},
};
use allora_core::{
    Backend, Time,
    backend::{Action, Batch, Claim, Completion, Cursor, JobState, Operation, Reply, TimeSource},
    time::from_millis,
};
use allora_etcd::{
    Etcd,
    etcd_client::{Client, EventType, GetOptions, Txn, TxnOp, WatchOptions},
};
use std::{collections::BTreeMap, time::Duration};

fn at(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

async fn apply(store: &Etcd, seconds: i64, name: &str, action: Action<'_>) -> Reply {
    let operations = [Operation::new(name, action)];
    let time = TimeSource::Store { fallback: at(seconds) };
    store.reschedule(Batch::new("n", time, &operations)).await.unwrap().single().unwrap()
}

/// One run of a job, which may be new.
async fn run(store: &Etcd, seconds: i64, name: &str) {
    let first = Some(at(seconds).into());
    let register = Action::Register { definition: "every 1s", version: 0, first };
    let state: JobState = apply(store, seconds, name, register).await.state().unwrap();
    let head = state.head.unwrap();
    let claim = Claim::at_least_once(1, state.fence, head, Duration::from_secs(30));
    let Reply::Claimed(claimed) = apply(store, seconds, name, Action::Claim(claim)).await else {
        panic!("not claimed")
    };
    let then = Cursor::To(Some(at(seconds + 1).into()));
    let (fence, completion) = (claimed.fence, Completion::Succeeded);
    let done = apply(store, seconds, name, Action::Complete { fence, then, completion }).await;
    assert_eq!(done, Reply::Accepted);
}

async fn count(client: &mut Client) -> i64 {
    let all = GetOptions::new().with_prefix().with_count_only();
    client.get("allora/history/", Some(all)).await.unwrap().count()
}

/// Writes entries that are as old as they are many microseconds before the first second.
async fn fill(client: &mut Client, entries: i64) {
    let key = |age: i64| {
        let fence = at(0).timestamp_micros() - age;
        format!("allora/history/{:016x}x", i64::MAX - fence)
    };
    let puts: Vec<TxnOp> = (1..=entries).map(|age| TxnOp::put(key(age), "", None)).collect();
    for puts in puts.chunks(128) {
        client.txn(Txn::new().and_then(puts)).await.unwrap();
    }
}

#[test]
fn a_history_far_beyond_its_limit_is_pruned_in_parts_and_delays_no_reply() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let mut client = members.client(0).await;
        fill(&mut client, 25_000).await;
        let store = patient(Etcd::builder()).history(50).connect(members.urls()).await.unwrap();
        let options = WatchOptions::new().with_prefix();
        let mut watch = client.watch("allora/history/", Some(options)).await.unwrap();
        let mut seconds = 0;
        patiently("the history is pruned", async || {
            seconds += 1;
            run(&store, seconds, "job").await;
            Backend::prune(&store, TimeSource::Fixed(at(seconds))).await.unwrap();
            count(&mut client).await <= 60
        })
        .await;
        assert!(count(&mut client).await >= 50);
        // The largest number of entries that one transaction has removed.
        let (mut removed, mut most) = (0, 0);
        while removed < 24_000 {
            let message = watch.message().await.unwrap().unwrap();
            let mut by_revision = BTreeMap::new();
            for event in message.events() {
                if event.event_type() == EventType::Delete {
                    let revision = event.kv().unwrap().mod_revision();
                    *by_revision.entry(revision).or_insert(0) += 1;
                    removed += 1;
                }
            }
            most = by_revision.into_values().fold(most, i32::max);
        }
        assert!(most <= 1_000, "{most} at once");
    });
}
