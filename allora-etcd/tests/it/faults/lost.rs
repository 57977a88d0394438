//! Replies that are lost: claim id and fence tell what happened, and nothing is guessed.

use super::{members::Members, patiently, proxy::Proxy};
use crate::stores::{patient, runtime};
use allora_conformance::faults::Proxy as Cut;
use allora_core::{
    Backend, ErrorKind, Result, Time,
    backend::{
        Action, Batch, Claim, Completion, Cursor, Edit, JobState, NewSchedule, Notification,
        Operation, Reply, TimeSource,
    },
    time::from_millis,
};
use allora_etcd::{Builder, Etcd, etcd_client::CompactionOptions};
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
fn hurried() -> Builder {
    patient(Etcd::builder()).timeout(Duration::from_secs(5))
}

#[test]
fn a_claim_and_a_completion_whose_replies_were_lost_are_sent_again() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let proxy = Proxy::to(members.port(0)).await;
        let store = hurried().connect([proxy.url()]).await.unwrap();
        let right = patient(Etcd::builder()).connect(members.urls()).await.unwrap();
        let first = Some(at(60).into());
        let register = Action::Register { definition: "every 1m", version: 0, first };
        let read = apply(&store, 0, "job", register).await.unwrap().state().unwrap();
        // The session is opened before, so that the lost reply is that of the claim itself.
        let lease = Duration::from_secs(20);
        let claim = |claim_id, fence: i64, at: Time| {
            Action::Claim(Claim::at_least_once(claim_id, fence, at.into(), lease))
        };
        let first = apply(&store, 60, "job", claim(1, read.fence, at(60))).await.unwrap();
        let fence = first.claimed().unwrap().fence;
        let then = Cursor::To(Some(at(120).into()));
        let complete = Action::Complete { fence, then, completion: Completion::Succeeded };
        proxy.hold_replies(true);
        let lost = apply(&store, 61, "job", complete.clone()).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Unavailable);
        // It was applied all the same.
        let read = async || apply(&right, 61, "job", Action::Read).await.unwrap().state().unwrap();
        patiently("the completion arrives", async || read().await.counters.succeeded == 1).await;
        proxy.hold_replies(false);
        let mut accepted = None;
        patiently("the way is free", async || {
            accepted = apply(&store, 61, "job", complete.clone()).await.ok();
            accepted.is_some()
        })
        .await;
        assert_eq!(accepted, Some(Reply::Accepted));
        proxy.hold_replies(true);
        let lost = apply(&store, 120, "job", claim(2, fence, at(120))).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Unavailable);
        patiently("the claim arrives", async || !read().await.leases.is_empty()).await;
        let current = read().await.leases[0].fence;
        proxy.hold_replies(false);
        let mut again = None;
        patiently("the way is free", async || {
            again = apply(&store, 121, "job", claim(2, fence, at(120))).await.ok();
            again.is_some()
        })
        .await;
        let claimed = again.unwrap().claimed().unwrap();
        assert_eq!((claimed.fence, claimed.attempt), (current, 1));
        assert_eq!(read().await.counters.started, 2);
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
            let proxy = Cut::new(server, Cut::NEVER).unwrap();
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
            proxy.cut_after(Cut::NEVER);
            let created = state(created);
            assert_eq!(created, shown().await);
            let store = connect().await;
            let mut edit = Edit::of(created.generation);
            edit.data = Some(b"other");
            proxy.cut_after(replies);
            let edited = apply(&store, 1, &name, Action::Modify(edit)).await;
            proxy.cut_after(Cut::NEVER);
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
                let trigger = Action::Trigger { id: &trigger, scheduled_at: None };
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
