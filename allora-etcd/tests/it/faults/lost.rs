//! Replies that are lost: claim id and fence tell what happened, and nothing is guessed.

use super::{members::Members, patiently};
use crate::stores::{patient, runtime};
use allora_conformance::faults::{Proxy, lost_replies};
use allora_core::{
    Backend, ErrorKind, Result, Time,
    backend::{
        Action, Batch, Edit, JobState, NewSchedule, Notification, Operation, Reply, TimeSource,
    },
    time::from_millis,
};
use allora_etcd::{Etcd, EtcdBuilder, etcd_client::CompactionOptions};
use futures::StreamExt;
use std::time::Duration;

fn at(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

async fn apply(store: &Etcd, seconds: i64, name: &str, action: Action<'_>) -> Result<Reply> {
    let operations = [Operation::new(name, action)];
    let time = TimeSource::Store { fallback: at(seconds) };
    store.reschedule(Batch::new("n", time, &operations)).await?.single()
}

/// A call that has no reply ends after a few seconds, which are enough for a busy machine.
fn hurried() -> EtcdBuilder {
    patient(Etcd::builder()).timeout(Duration::from_secs(5))
}

#[test]
fn a_claim_and_a_completion_whose_replies_were_lost_are_sent_again() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let proxy = Proxy::new(format!("127.0.0.1:{}", members.port(0)), Proxy::NEVER).unwrap();
        let url = format!("http://127.0.0.1:{}", proxy.port());
        let store = hurried().connect([url]).await.unwrap();
        let direct = hurried().connect(members.urls()).await.unwrap();
        // A reply may come in several pieces, and others before it.
        let cuts: Vec<i64> = (0..8).collect();
        let cut_after = |replies| proxy.cut_after(replies);
        let lost = lost_replies(&direct, &store, "job", &cuts, cut_after).await;
        assert!(lost.claims > 0 && lost.completions > 0, "{lost:?}");
    });
}

#[test]
fn a_change_whose_reply_was_lost_is_not_rejected_by_the_next_member() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let right = patient(Etcd::builder()).connect(members.urls()).await.unwrap();
        let seen = right.queries().unwrap();
        // A reply may come in several pieces, and others before it: each of them is cut off once.
        for replies in 0..8 {
            let server = format!("127.0.0.1:{}", members.port(0));
            let proxy = Proxy::new(server, Proxy::NEVER).unwrap();
            let urls = [format!("http://127.0.0.1:{}", proxy.port()), members.url(0)];
            // The first one is used as long as it answers.
            let connect = async || patient(Etcd::builder()).connect(urls.clone()).await.unwrap();
            let name = format!("job {replies}");
            let shown = async || seen.get(&name).await.unwrap();
            let state = |reply: Result<Reply>| -> JobState { reply.unwrap().state().unwrap() };
            let new = NewSchedule::new("mail", "x", Some(at(60).into())).data(b"data");
            let store = connect().await;
            proxy.cut_after(replies);
            let created = apply(&store, 0, &name, Action::Create(new)).await;
            proxy.cut_after(Proxy::NEVER);
            let created = state(created);
            assert_eq!(created, shown().await);
            let store = connect().await;
            let mut edit = Edit::of(created.generation);
            edit.data = Some(b"other");
            proxy.cut_after(replies);
            let edited = apply(&store, 1, &name, Action::Modify(edit)).await;
            proxy.cut_after(Proxy::NEVER);
            assert_eq!(state(edited), shown().await);
            let store = connect().await;
            proxy.cut_after(replies);
            let deleted = apply(&store, 2, &name, Action::Delete).await.unwrap();
            assert_eq!(deleted, Reply::Deleted);
            // A second deletion by the user is answered as it is.
            let store = connect().await;
            let again = apply(&store, 3, &name, Action::Delete).await.unwrap_err();
            assert_eq!(again.kind(), ErrorKind::NotFound);
        }
    });
}

#[test]
fn notifications_come_again_after_a_compaction_and_another_leader() {
    runtime().block_on(async {
        let Some(mut members) = Members::start(3, &[]).await else { return };
        let store = hurried().connect(members.urls()).await.unwrap();
        let new = NewSchedule::new("mail", "x", Some(at(60).into()));
        apply(&store, 0, "job", Action::Create(new)).await.unwrap();
        let mut notifications = store.notifier().unwrap().subscribe().await.unwrap();
        let leader = members.leader().await;
        for turn in 0..3 {
            if turn == 1 {
                members.kill(leader);
            }
            if turn == 2 {
                members.serve(leader);
            }
            let mut id = 0;
            // A notification may be lost while the stream is opened again, as any may.
            patiently("a notification comes", async || {
                id += 1;
                let trigger = format!("{turn}-{id}");
                let trigger = Action::trigger(&trigger);
                if apply(&store, 1, "job", trigger).await.is_err() {
                    return false;
                }
                let next = tokio::time::timeout(Duration::from_secs(1), notifications.next());
                matches!(next.await, Ok(Some(Notification::Job(name))) if name == "job")
            })
            .await;
            let other = (leader + 1) % 3;
            let mut client = members.client(other).await;
            let seen = client.status().await.unwrap().header().unwrap().revision();
            let physical = Some(CompactionOptions::new().with_physical());
            client.compact(seen, physical).await.unwrap();
        }
    });
}
