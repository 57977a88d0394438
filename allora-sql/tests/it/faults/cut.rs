//! A connection that is cut when the server has answered and the node has not heard it.

use super::{
    node::Fleet,
    witness::{Log, Witness},
};
use crate::{
    desk::t,
    stores::{Db, Place, on},
};
use allora_conformance::history::{Law, check, read};
use allora_core::{
    Backend, Kind,
    backend::{
        Act, Answer, Cursor, Deliver, End, Ended, Ending, NewSchedule, Now, Plan, Reschedule,
        Settle, Settled, Take,
    },
};
use std::{
    fs::File,
    io::{BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::Duration,
};

/// So many answers that none is cut off.
const NEVER: i64 = i64::MAX / 2;

/// Stands between a node and its server.
struct Proxy {
    port: u16,
    /// How many answers go through before one does not.
    fuse: Arc<AtomicI64>,
}

impl Proxy {
    /// Passes everything on to `server`, and cuts every `every`th answer off.
    fn new(server: String, every: i64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let fuse = Arc::new(AtomicI64::new(every));
        let shared = fuse.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let questions = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || pass(questions.0, questions.1, || true));
                let fuse = shared.clone();
                thread::spawn(move || {
                    pass(server, client, || {
                        let whole = fuse.fetch_sub(1, Ordering::SeqCst) != 0;
                        if !whole {
                            fuse.store(every, Ordering::SeqCst);
                        }
                        whole
                    });
                });
            }
        });
        Self { port, fuse }
    }

    fn before(place: &Place, every: i64) -> (Self, Place) {
        let (user, rest) = place.url.split_once('@').unwrap();
        let (server, database) = rest.split_once('/').unwrap();
        let proxy = Self::new(server.to_owned(), every);
        let mut through = place.beside_nothing();
        through.url = format!("{user}@127.0.0.1:{}/{database}", proxy.port);
        (proxy, through)
    }

    fn cut_after(&self, answers: i64) {
        self.fuse.store(answers, Ordering::SeqCst);
    }
}

/// Passes bytes on until there are no more, or until it may not.
fn pass(mut from: TcpStream, mut to: TcpStream, may: impl Fn() -> bool) {
    let mut bytes = [0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if !may() || to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    // Either may be closed already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
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
    let (proxy, through) = Proxy::before(&place, NEVER);
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
    let log = read(BufReader::new(File::open(&path).unwrap())).unwrap();
    let following = |_: &str, at| Some(at + 60_000);
    assert_eq!(check(&log, &Law::new(&following)), []);
}

/// Two nodes whose connections are cut all the time.
async fn a_bad_line(place: Place) {
    let (proxy, through) = Proxy::before(&place, 40);
    proxy.cut_after(NEVER);
    let fleet = Fleet::new(through, Duration::from_millis(200));
    tokio::task::block_in_place(|| {
        let nodes = [0, 20].map(|ms| fleet.start(Duration::from_millis(ms)));
        super::patiently("the nodes are ready", || fleet.said("Ready") == 2);
        proxy.cut_after(1);
        super::patiently("the nodes lose connections", || fleet.said("StoreDown") >= 3);
        proxy.cut_after(NEVER);
        fleet.more_ends(5);
        nodes.into_iter().for_each(super::node::Node::stop);
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
