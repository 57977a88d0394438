//! A connection that is cut when the server has answered and the node has not heard it.

use super::fleet::Fleet;
use crate::{
    server::{ON_DISK, Server, patiently},
    stores::{Place, runtime},
};
use allora_conformance::faults::Proxy;
use allora_core::{
    Backend, Kind, Time,
    backend::{
        Act, Answer, Cursor, Deliver, End, Ended, Ending, NewSchedule, Now, Plan, Reschedule,
        Settle, Settled, Take,
    },
    time::from_millis,
};
use allora_redis::Redis;
use std::time::Duration;

/// A line to the server, and the place at its end.
fn through(server: &Server) -> (Proxy, Place) {
    let proxy = Proxy::new(format!("127.0.0.1:{}", server.port), Proxy::NEVER).unwrap();
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let place = Place { urls: vec![url], ..server.place() };
    (proxy, place)
}

fn t(seconds: i64) -> Time {
    from_millis(seconds * 1_000).unwrap()
}

/// Asks until there is an answer; what is asked is always the same.
async fn insist<T>(mut ask: impl AsyncFnMut() -> allora_core::Result<T>) -> T {
    for _ in 0..5 {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{error:?}"),
        }
    }
    panic!("no answer although nothing is cut any more");
}

/// A take and a finish, each cut off after every number of answers that it may consist of.
async fn lost_answers(server: &Server, history: u64) {
    let (proxy, place) = through(server);
    let builder = Redis::builder().prefix("lost").history(history);
    let direct = builder.clone().connect(server.url()).await.unwrap();
    let node = builder.timeout(Duration::from_secs(5)).connect(&*place.urls[0]).await.unwrap();
    let schedules = direct.schedules().unwrap();
    let (now, next) = (Now::At(t(60)), t(120));
    let (mut unheard_takes, mut unheard_ends) = (0, 0);
    // The last ones with the scripts loaded, so that the first answer is that of the call.
    for (i, answers) in [3, 2, 1, 0, 0].into_iter().enumerate() {
        let name = format!("job {history} {i}");
        let new = NewSchedule::new(&name, "t", "every 1m", Some(t(60).into()));
        let seen = schedules.add(&[new], now).await.unwrap().remove(0).unwrap();
        let deliver = Deliver::AtLeastOnce { lease: Duration::from_secs(60) };
        let take = Take::new(7, seen.fence, seen.head.unwrap(), deliver);
        let plans = [Plan::new(&name, Act::Take(take))];
        proxy.cut_after(answers);
        let answer = insist(async || {
            let answer = node.reschedule(Reschedule::new("node", now, &plans)).await;
            if answer.is_err() && schedules.get(&name).await?.holds.len() == 1 {
                unheard_takes += 1;
            }
            answer
        })
        .await;
        let [Answer::Taken(taken)] = &answer.answers[..] else { panic!("{answer:?}") };
        let state = schedules.get(&name).await.unwrap();
        assert_eq!((state.counters.started, state.attempts), (1, 1));
        assert_eq!((state.holds.len(), state.holds[0].fence), (1, taken.fence));

        let end = End::Finish { then: Cursor::To(Some(next.into())), outcome: Ended::Ran };
        let endings = [Ending::new(&name, taken.fence, end)];
        proxy.cut_after(answers);
        let settled = insist(async || {
            let settled = node.leases().unwrap().settle(Settle::new("node", now, &endings)).await;
            if settled.is_err() && schedules.get(&name).await?.counters.ran == 1 {
                unheard_ends += 1;
            }
            settled
        })
        .await;
        proxy.cut_after(Proxy::NEVER);
        assert_eq!(settled, [Settled::Done]);
        let state = schedules.get(&name).await.unwrap();
        assert_eq!((state.counters.ran, state.holds.len()), (1, 0));
        assert_eq!(state.cursor, Some(next.into()));
    }
    assert!(unheard_takes > 0 && unheard_ends > 0, "{unheard_takes} takes, {unheard_ends} ends");
}

#[test]
fn a_lost_answer_is_resolved_by_claim_and_fence() {
    let Some(server) = Server::start(ON_DISK) else { return };
    runtime().block_on(lost_answers(&server, 0));
}

#[test]
fn a_lost_answer_is_resolved_with_a_history_too() {
    let Some(server) = Server::start(ON_DISK) else { return };
    runtime().block_on(lost_answers(&server, 1_000));
}

#[test]
fn nodes_get_along_on_a_bad_line() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let (proxy, place) = through(&server);
    let fleet = Fleet::start(&place, &Redis::builder());
    let before = fleet.said("StoreDown");
    for answers in [0, 1, 2, 3, 5, 7] {
        proxy.cut_after(answers);
        fleet.more_ends(2);
    }
    patiently("the nodes lose connections", || {
        proxy.cut_after(0);
        fleet.more_ends(1);
        fleet.said("StoreDown") >= before + 2
    });
    proxy.cut_after(Proxy::NEVER);
    fleet.more_ends(5);
    fleet.stop_and_judge();
}
