//! A connection that is cut when the server has answered and the node has not heard it.

use super::node::Fleet;
use crate::{
    calls::{create, get, send},
    desk::t,
    stores::{Db, Place, on},
};
use allora_conformance::{
    faults::{Log, Node, Proxy, RecordingBackend},
    history::{Invariant, check, read},
};
use allora_core::{
    ErrorKind,
    backend::{Claim, Completion, Cursor, NewSchedule, Operation, Reply, TimeSource},
};
use std::{fs::File, io::BufReader, time::Duration};

const NEVER: i64 = Proxy::NEVER;

/// A line to the place's server, and the place at its end.
fn before(place: &Place, every: i64) -> (Proxy, Place) {
    let (user, rest) = place.url.split_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    let proxy = Proxy::new(server.to_owned(), every).unwrap();
    let mut through = place.beside_nothing();
    through.url = format!("{user}@127.0.0.1:{}/{database}", proxy.port());
    (proxy, through)
}

/// Asks until there is an answer; what is asked is always the same.
async fn insist<T>(mut ask: impl AsyncFnMut() -> allora_core::Result<T>) -> (T, usize) {
    for failures in 0..5 {
        match ask().await {
            Ok(answer) => return (answer, failures),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        }
    }
    panic!("no answer although nothing is cut any more");
}

/// A take and a finish, each cut off after every number of answers that it may consist of.
async fn an_answer_that_was_lost(place: Place) {
    let direct = place.open().await;
    let (proxy, through) = before(&place, NEVER);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let through = through.builder().connections(1).connect(&through.url).await.unwrap();
    let node = RecordingBackend::new(through, Log::append(&path));
    let (now, next) = (TimeSource::Fixed(t(60)), t(120));
    let (mut unheard_claims, mut unheard_ends) = (0, 0);
    for answers in 0..12 {
        let name = format!("job {answers}");
        let new = NewSchedule::new("t", "every 1m", Some(t(60).into()));
        let seen = create(&direct, &name, new, now).await.unwrap();
        let lease = Duration::from_secs(60);
        let claim = Claim::at_least_once(7, seen.fence, seen.head.unwrap(), lease);
        proxy.cut_after(answers);
        let (reply, _) = insist(async || {
            let reply = send(&node, "node", now, Operation::claim(&name, claim.clone())).await;
            if reply.is_err() && get(&direct, &name).await?.leases.len() == 1 {
                unheard_claims += 1;
            }
            reply
        })
        .await;
        let claimed = reply.claimed().unwrap();
        let state = get(&direct, &name).await.unwrap();
        assert_eq!((state.counters.started, state.attempts), (1, 1));
        assert_eq!((state.leases.len(), state.leases[0].fence), (1, claimed.fence));

        let then = Cursor::To(Some(next.into()));
        let end = Operation::complete(&name, claimed.fence, then, Completion::Succeeded);
        proxy.cut_after(answers);
        let (reply, _) = insist(async || {
            let reply = send(&node, "node", now, end.clone()).await;
            if reply.is_err() && get(&direct, &name).await?.counters.succeeded == 1 {
                unheard_ends += 1;
            }
            reply
        })
        .await;
        proxy.cut_after(NEVER);
        assert_eq!(reply, Reply::Accepted);
        let state = get(&direct, &name).await.unwrap();
        assert_eq!((state.counters.succeeded, state.leases.len()), (1, 0));
        assert_eq!(state.cursor, Some(next.into()));
    }
    assert!(unheard_claims + unheard_ends > 0, "{unheard_claims} claims, {unheard_ends} ends");
    if place.url.starts_with("mysql") {
        // There the reply to a completion is a number of rows only.
        assert!(unheard_ends > 0, "{unheard_claims} claims, {unheard_ends} ends");
    }
    let log = read(BufReader::new(File::open(&path).unwrap())).unwrap();
    let following = |_: &str, at| Some(at + 60_000);
    assert_eq!(check(&log, &Invariant::new(&following)), []);
}

/// Two nodes whose connections are cut all the time.
async fn a_bad_line(place: Place) {
    let (proxy, through) = before(&place, 40);
    proxy.cut_after(NEVER);
    let fleet = Fleet::new(through, Duration::from_millis(200));
    tokio::task::block_in_place(|| {
        let nodes = [0, 20].map(|ms| fleet.start(Duration::from_millis(ms)));
        super::patiently("the nodes are ready", || fleet.said("Ready") == 2);
        proxy.cut_after(1);
        super::patiently("the nodes lose connections", || fleet.said("StoreDown") >= 3);
        proxy.cut_after(NEVER);
        fleet.more_ends(5);
        nodes.into_iter().for_each(Node::stop);
        fleet.judge();
    });
}

mod a_lost_answer_is_resolved_by_claim_and_fence {
    use super::*;

    #[test]
    fn postgres() {
        on(Db::Postgres, an_answer_that_was_lost);
    }

    #[test]
    fn mysql() {
        on(Db::MySql, an_answer_that_was_lost);
    }
}

mod nodes_get_along_on_a_bad_line {
    use super::*;

    #[test]
    fn postgres() {
        on(Db::Postgres, a_bad_line);
    }

    #[test]
    fn mysql() {
        on(Db::MySql, a_bad_line);
    }
}
