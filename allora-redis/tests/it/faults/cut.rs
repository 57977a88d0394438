//! A connection that is cut when the server has answered and the node has not heard it.

use super::fleet::Fleet;
use crate::{
    server::{ON_DISK, Server, patiently},
    stores::{Place, create, runtime},
};
use allora_conformance::faults::Proxy;
use allora_core::{
    Backend, ErrorKind, Time,
    backend::{Batch, Claim, Completion, Cursor, NewSchedule, Operation, Reply, TimeSource},
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

/// Sends the same operation until there is a reply; calls `failed` after each error.
async fn insist(
    store: &Redis,
    time: TimeSource,
    operation: Operation<'_>,
    mut failed: impl AsyncFnMut(),
) -> Reply {
    let operations = [operation];
    for _ in 0..5 {
        let applied = store.reschedule(Batch::new("node", time, &operations)).await;
        match applied.and_then(|applied| applied.single()) {
            Ok(reply) => return reply,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        }
        failed().await;
    }
    panic!("no reply although the connection is not cut any more");
}

/// A claim and a completion, each cut off after every number of replies that it may consist of.
async fn lost_replies(server: &Server, history: u64) {
    let (proxy, place) = through(server);
    let timeout = Duration::from_secs(5);
    let builder = Redis::builder().prefix("lost").history(history).timeout(timeout);
    let direct = builder.clone().connect(server.url()).await.unwrap();
    let node = builder.connect(&*place.urls[0]).await.unwrap();
    let queries = direct.queries().unwrap();
    let (now, next) = (TimeSource::Fixed(t(60)), t(120));
    let (mut lost_claims, mut lost_ends) = (0, 0);
    // The last ones with the scripts loaded, so that the first reply is that of the call.
    for (i, replies) in [3, 2, 1, 0, 0].into_iter().enumerate() {
        let name = format!("job {history} {i}");
        let new = NewSchedule::new("t", "every 1m", Some(t(60).into()));
        let seen = create(&direct, now, &name, new).await;
        let lease = Duration::from_secs(60);
        let claim = Claim::at_least_once(7, seen.fence, seen.head.unwrap(), lease);
        proxy.cut_after(replies);
        let claimed = insist(&node, now, Operation::claim(&name, claim), async || {
            if queries.get(&name).await.unwrap().leases.len() == 1 {
                lost_claims += 1;
            }
        })
        .await
        .claimed()
        .unwrap();
        let state = queries.get(&name).await.unwrap();
        assert_eq!((state.counters.started, state.attempts), (1, 1));
        assert_eq!((state.leases.len(), state.leases[0].fence), (1, claimed.fence));

        let then = Cursor::To(Some(next.into()));
        let complete = Operation::complete(&name, claimed.fence, then, Completion::Succeeded);
        proxy.cut_after(replies);
        let completed = insist(&node, now, complete, async || {
            if queries.get(&name).await.unwrap().counters.succeeded == 1 {
                lost_ends += 1;
            }
        })
        .await;
        proxy.cut_after(Proxy::NEVER);
        assert_eq!(completed, Reply::Accepted);
        let state = queries.get(&name).await.unwrap();
        assert_eq!((state.counters.succeeded, state.leases.len()), (1, 0));
        assert_eq!(state.cursor, Some(next.into()));
    }
    assert!(lost_claims > 0 && lost_ends > 0, "{lost_claims} claims, {lost_ends} ends");
}

#[test]
fn a_lost_reply_is_resolved_by_claim_id_and_fence() {
    let Some(server) = Server::start(ON_DISK) else { return };
    runtime().block_on(lost_replies(&server, 0));
}

#[test]
fn a_lost_reply_is_resolved_with_a_history_too() {
    let Some(server) = Server::start(ON_DISK) else { return };
    runtime().block_on(lost_replies(&server, 1_000));
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
