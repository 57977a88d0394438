//! A connection that is cut when the server has answered and the node has not heard it.

use super::node::Fleet;
use crate::{
    desk::t,
    stores::{Db, Place, on},
};
use allora_conformance::{
    faults::{Log, Node, Proxy, Witness},
    history::{Law, check, read},
};
use allora_core::{
    Backend, Kind,
    backend::{
        Act, Answer, Cursor, Deliver, End, Ended, Ending, NewSchedule, Now, Plan, Reschedule,
        Settle, Settled, Take,
    },
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
            Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{error:?}"),
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
    let node = Witness::new(through, Log::append(&path));
    let schedules = direct.schedules().unwrap();
    let (now, next) = (Now::At(t(60)), t(120));
    let (mut unheard_takes, mut unheard_ends) = (0, 0);
    for answers in 0..12 {
        let name = format!("job {answers}");
        let new = NewSchedule::new(&name, "t", "every 1m", Some(t(60).into()));
        let seen = schedules.add(&[new], now).await.unwrap().remove(0).unwrap();
        let deliver = Deliver::AtLeastOnce { lease: Duration::from_secs(60) };
        let take = Take::new(7, seen.fence, seen.head.unwrap(), deliver);
        let plans = [Plan::new(&name, Act::Take(take))];
        proxy.cut_after(answers);
        let (answer, _) = insist(async || {
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
        let (settled, _) = insist(async || {
            let settled = node.leases().unwrap().settle(Settle::new("node", now, &endings)).await;
            if settled.is_err() && schedules.get(&name).await?.counters.ran == 1 {
                unheard_ends += 1;
            }
            settled
        })
        .await;
        proxy.cut_after(NEVER);
        assert_eq!(settled, [Settled::Done]);
        let state = schedules.get(&name).await.unwrap();
        assert_eq!((state.counters.ran, state.holds.len()), (1, 0));
        assert_eq!(state.cursor, Some(next.into()));
    }
    assert!(unheard_takes + unheard_ends > 0, "{unheard_takes} takes, {unheard_ends} ends");
    if place.url.starts_with("mysql") {
        // There an ending is told by a number of rows only.
        assert!(unheard_ends > 0, "{unheard_takes} takes, {unheard_ends} ends");
    }
    let log = read(BufReader::new(File::open(&path).unwrap())).unwrap();
    let following = |_: &str, at| Some(at + 60_000);
    assert_eq!(check(&log, &Law::new(&following)), []);
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
