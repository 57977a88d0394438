//! The history: what a page reads, and how it is pruned.

use crate::{
    faults::members::Members,
    stores::{patient, patiently, runtime},
};
use allora_core::{
    Backend, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, HistoryEntry, HistoryQuery, JobState, Operation,
        Outcome, Reply, TimeSource,
    },
    record::codec::encode_entry,
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

/// Writes entries of a job that are as old as they are many microseconds before the first second.
async fn fill(client: &mut Client, entries: i64) {
    let puts = (1..=entries).flat_map(|age| {
        let fence = at(0).timestamp_micros() - age;
        let digits = format!("{:016x}", i64::MAX - fence);
        let name = b"job\0".map(|byte| !byte);
        let key = [format!("allora/history/{digits}").as_bytes(), &name].concat();
        let entry = HistoryEntry::new("job", fence, at(0).into(), Outcome::Succeeded);
        let of_job = format!("allora/history_of/job\0{digits}");
        [TxnOp::put(key, encode_entry(&entry), None), TxnOp::put(of_job, "", None)]
    });
    let puts: Vec<TxnOp> = puts.collect();
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

#[test]
fn a_page_of_one_job_reads_and_counts_only_that_jobs_entries() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let store = patient(Etcd::builder()).history(9_000).connect(members.urls()).await.unwrap();
        let rare = ["rare", "rare\0", "rar"];
        for seconds in 0..120 {
            run(&store, seconds, "often").await;
            if seconds % 60 == 0 {
                for name in rare {
                    run(&store, seconds, name).await;
                }
            }
        }
        let page = async |query: HistoryQuery<'_>| {
            let before = (members.sent_bytes(0), members.transactions(0));
            let entries = store.history().unwrap().entries(query).await.unwrap();
            let bytes = members.sent_bytes(0) - before.0;
            (entries, bytes, members.transactions(0) - before.1)
        };
        let (all, all_bytes, _) = page(HistoryQuery::new(1_000)).await;
        assert_eq!(all.len(), 120 + 2 * rare.len());
        for name in rare {
            let (entries, bytes, exchanges) = page(HistoryQuery::new(2).name(name)).await;
            let wanted: Vec<_> = all.iter().filter(|entry| entry.name == name).cloned().collect();
            assert_eq!(entries, wanted);
            assert!(bytes < all_bytes / 10, "{bytes} of {all_bytes}");
            assert_eq!(exchanges, 2, "the fences, and the entries");
        }
        // A cursor of any job continues the page.
        for below in &all {
            let cursor = below.cursor();
            let (entries, ..) = page(HistoryQuery::new(9).name("rare").before(&cursor)).await;
            let is_below = |entry: &&HistoryEntry| entry.cursor() < cursor && entry.name == "rare";
            assert_eq!(entries, all.iter().filter(is_below).cloned().collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_claim_writes_nothing_to_the_history_and_a_completion_two_keys() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let store = patient(Etcd::builder()).history(9_000).connect(members.urls()).await.unwrap();
        run(&store, 0, "job").await;
        let (puts, sent) = (members.puts(0), members.transactions(0));
        run(&store, 1, "job").await;
        // The claim puts the record. The completion puts the record, the entry and its key by job.
        assert_eq!(members.puts(0) - puts, 1 + 3);
        // The registration reads, claim and completion write.
        assert_eq!(members.transactions(0) - sent, 1 + 1 + 1);
    });
}

#[test]
fn the_entries_of_a_job_are_found_and_pruned_whenever_the_history_was_turned_on() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let without = patient(Etcd::builder()).connect(members.urls()).await.unwrap();
        let first = Some(at(0).into());
        let register = Action::Register { definition: "every 1s", version: 0, first };
        let state = apply(&without, 0, "job", register).await.state().unwrap();
        let claim =
            Claim::at_least_once(1, state.fence, state.head.unwrap(), Duration::from_secs(30));
        let Reply::Claimed(run_of) = apply(&without, 0, "job", Action::Claim(claim)).await else {
            panic!("not claimed")
        };
        let store = patient(Etcd::builder()).history(10).connect(members.urls()).await.unwrap();
        let (fence, completion) = (run_of.fence, Completion::Succeeded);
        let then = Cursor::To(Some(at(1).into()));
        apply(&store, 0, "job", Action::Complete { fence, then, completion }).await;
        let entries = async |name| {
            let query = HistoryQuery::new(100).name(name);
            store.history().unwrap().entries(query).await.unwrap()
        };
        assert_eq!(entries("job").await.len(), 1);
        let mut client = members.client(0).await;
        let mut seconds = 1;
        patiently("the history is pruned", async || {
            seconds += 1;
            for name in ["job", "other"] {
                run(&store, seconds, name).await;
            }
            Backend::prune(&store, TimeSource::Fixed(at(seconds))).await.unwrap();
            let all = GetOptions::new().with_prefix().with_count_only();
            let by_job = client.get("allora/history_of/", Some(all)).await.unwrap().count();
            let (job, other) = (entries("job").await, entries("other").await);
            let shown = job.len() + other.len();
            assert!(shown >= 10.min(1 + 2 * (seconds as usize - 1)), "{shown}");
            seconds > 20 && by_job <= 22 && shown == by_job as usize
        })
        .await;
    });
}

#[test]
fn full_transactions_of_claims_and_completions_fit_into_the_members_limit() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let store = patient(Etcd::builder()).history(9_000).connect(members.urls()).await.unwrap();
        let names: Vec<String> = (0..300).map(|i| format!("job {i}")).collect();
        let send = async |operations: Vec<Operation<'_>>| {
            let time = TimeSource::Store { fallback: at(0) };
            let applied = store.reschedule(Batch::new("n", time, &operations)).await.unwrap();
            applied.replies.into_iter().map(Result::unwrap).collect::<Vec<_>>()
        };
        let first = Some(at(0).into());
        let register = || Action::Register { definition: "every 1s", version: 0, first };
        let known = send(names.iter().map(|name| Operation::new(name, register())).collect()).await;
        let claims = names.iter().zip(known).map(|(name, state)| {
            let fence = state.state().unwrap().fence;
            let claim = Claim::at_least_once(1, fence, at(0).into(), Duration::from_secs(30));
            Operation::claim(name, claim)
        });
        let claimed = send(claims.collect()).await;
        let ends = names.iter().zip(claimed).map(|(name, reply)| {
            let fence = reply.claimed().unwrap().fence;
            let then = Cursor::To(Some(at(1).into()));
            Operation::complete(name, fence, then, Completion::Succeeded)
        });
        assert!(send(ends.collect()).await.iter().all(Reply::is_accepted));
    });
}
