//! Answers that are lost: what happened is found out by claim and fence, never guessed.

use super::{members::Members, patiently, proxy::Proxy};
use crate::stores::runtime;
use allora_conformance::faults::Proxy as Cut;
use allora_core::{
    Backend, Kind, Time,
    backend::{
        Act, Answer, Change, Cursor, Deliver, End, Ended, Ending, Hint, NewSchedule, Now, Plan,
        Reschedule, Settle, Settled, Take,
    },
    time::from_millis,
};
use allora_etcd::{Etcd, etcd_client::CompactionOptions};
use futures::StreamExt;
use std::time::Duration;

fn at(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

fn now(seconds: i64) -> Now {
    Now::Store { node: at(seconds) }
}

async fn ask(store: &Etcd, seconds: i64, act: Act<'_>) -> allora_core::Result<Answer> {
    let plans = [Plan::new("job", act)];
    let request = Reschedule::new("n", now(seconds), &plans);
    Ok(store.reschedule(request).await?.answers.remove(0))
}

#[test]
fn a_take_and_a_finish_whose_answers_were_lost_are_asked_again() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let proxy = Proxy::to(members.port(0)).await;
        let store = Etcd::builder().connect([proxy.url()]).await.unwrap();
        let right = Etcd::builder().connect(members.urls()).await.unwrap();
        let register = |first: i64| Act::Register {
            definition: "every 1m",
            version: 0,
            first: Some(at(first).into()),
        };
        let Answer::State(seen) = ask(&store, 0, register(60)).await.unwrap() else { panic!() };
        // The mark is made before, so that what is lost is the take's own answer.
        let lease = Duration::from_secs(20);
        let take = |claim, read: i64, at: Time| {
            Take::new(claim, read, at.into(), Deliver::AtLeastOnce { lease })
        };
        let Answer::Taken(first) =
            ask(&store, 60, Act::Take(take(1, seen.fence, at(60)))).await.unwrap()
        else {
            panic!()
        };
        let ran = |then: i64| End::Finish {
            then: Cursor::To(Some(at(then).into())),
            outcome: Ended::Ran,
        };
        let leases = store.leases().unwrap();
        let ending = [Ending::new("job", first.fence, ran(120))];
        let settle = Settle::new("n", now(61), &ending);
        proxy.deafen(true);
        let lost = leases.settle(settle).await.unwrap_err();
        assert_eq!(lost.kind(), Kind::Unavailable);
        // It was carried out all the same.
        let seen_by = async || match ask(&right, 61, Act::Look).await.unwrap() {
            Answer::State(state) => state,
            other => panic!("{other:?}"),
        };
        patiently("the finish arrives", async || seen_by().await.counters.ran == 1).await;
        proxy.deafen(false);
        let mut settled = None;
        patiently("the way is free", async || {
            settled = leases.settle(settle).await.ok();
            settled.is_some()
        })
        .await;
        assert_eq!(settled.unwrap(), [Settled::Done]);
        proxy.deafen(true);
        let lost = ask(&store, 120, Act::Take(take(2, first.fence, at(120)))).await.unwrap_err();
        assert_eq!(lost.kind(), Kind::Unavailable);
        patiently("the take arrives", async || !seen_by().await.holds.is_empty()).await;
        let fence = seen_by().await.holds[0].fence;
        proxy.deafen(false);
        let mut again = None;
        patiently("the way is free", async || {
            again = ask(&store, 121, Act::Take(take(2, first.fence, at(120)))).await.ok();
            again.is_some()
        })
        .await;
        let Some(Answer::Taken(taken)) = again else { panic!("{again:?}") };
        assert_eq!((taken.fence, taken.attempt), (fence, 1));
        assert_eq!(seen_by().await.counters.started, 2);
    });
}

#[test]
fn what_was_changed_though_the_answer_was_lost_is_not_refused_by_the_next_member() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let right = Etcd::builder().connect(members.urls()).await.unwrap();
        let seen = right.schedules().unwrap();
        // An answer may come in several pieces, and others before it: each of them is cut off once.
        for answers in 0..8 {
            let server = format!("127.0.0.1:{}", members.port(0));
            let proxy = Cut::new(server, Cut::NEVER).unwrap();
            let urls = [format!("http://127.0.0.1:{}", proxy.port()), members.url(0)];
            // It is the first that is asked, as long as it answers.
            let connect = async || Etcd::builder().connect(urls.clone()).await.unwrap();
            let name = format!("job {answers}");
            let new = NewSchedule::new(&name, "mail", "x", Some(at(60).into())).data(b"data");
            let store = connect().await;
            proxy.cut_after(answers);
            let added = store.schedules().unwrap().add(&[new], now(0)).await.unwrap().remove(0);
            proxy.cut_after(Cut::NEVER);
            let added = added.unwrap();
            assert_eq!(added, seen.get(&name).await.unwrap());
            let store = connect().await;
            let (edition, data) = (added.edition, Some(&b"other"[..]));
            let edit = Change::Edit { edition, kind: None, definition: None, data };
            proxy.cut_after(answers);
            let edited = store.schedules().unwrap().modify(&name, edit, now(1)).await.unwrap();
            proxy.cut_after(Cut::NEVER);
            assert_eq!(edited, seen.get(&name).await.unwrap());
            let store = connect().await;
            proxy.cut_after(answers);
            store.schedules().unwrap().delete(&name, now(2)).await.unwrap();
            // Asked once more by its user, it is told as it is.
            let store = connect().await;
            let again = store.schedules().unwrap().delete(&name, now(3)).await.unwrap_err();
            assert_eq!(again.kind(), Kind::NotFound);
        }
    });
}

#[test]
fn hints_come_again_after_a_compaction_and_another_leader() {
    runtime().block_on(async {
        let Some(mut members) = Members::start(3, &[]).await else { return };
        let store = Etcd::builder().connect(members.urls()).await.unwrap();
        let schedules = store.schedules().unwrap();
        let new = NewSchedule::new("job", "mail", "x", Some(at(60).into()));
        schedules.add(&[new], now(0)).await.unwrap();
        let mut hints = store.watch().unwrap().subscribe().await.unwrap();
        let leader = members.leader().await;
        for turn in 0..3 {
            if turn == 1 {
                members.kill(leader);
            }
            if turn == 2 {
                members.serve(leader);
            }
            let mut id = 0;
            // A hint may be lost while the stream is opened again, as any hint may.
            patiently("a hint comes", async || {
                id += 1;
                let trigger = format!("{turn}-{id}");
                let told = schedules
                    .modify("job", Change::Trigger { id: &trigger, at: None }, now(1))
                    .await;
                if told.is_err() {
                    return false;
                }
                let hint = tokio::time::timeout(Duration::from_secs(1), hints.next()).await;
                matches!(hint, Ok(Some(Hint::Job(name))) if name == "job")
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
