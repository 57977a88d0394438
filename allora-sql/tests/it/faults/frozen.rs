//! A node that is frozen in the middle of a write, as seen by the others.

use super::cut::before;
use crate::{
    calls::{STORE, change, create},
    stores::{Db, Place, on, pause, runtime},
};
use allora_conformance::{
    environment::patiently,
    faults::{Node, Proxy},
};
use allora_core::{
    Backend, ErrorKind, Runtime as _,
    backend::{Action, DueQuery, NewSchedule},
    runtime::Tokio,
    time::end_of_time,
};
use sqlx::{Connection, Executor, SqliteConnection};
use std::{env, time::Duration};

const TEST: &str = "faults::frozen::a_node_writes_until_it_is_frozen";

/// The longest time for which a frozen node may keep others from its record. The machine may be slow.
const LONGEST: Duration = Duration::from_secs(20);

/// In a process of its own: writes one record without end.
#[test]
fn a_node_writes_until_it_is_frozen() {
    let Some([url, prefix]) = Node::values(["URL", "PREFIX"]) else { return };
    runtime().block_on(async {
        let place = Place { url, prefix, folder: None };
        let builder = place.builder().history(1_000).connections(1);
        let sql = builder.connect(&place.url).await.unwrap();
        for i in 0_u64.. {
            let note = i.to_string();
            change(&sql, "a", Action::Pause { note: &note, until: None }, STORE).await.unwrap();
        }
    });
}

/// Freezes a node after each number of replies that a write consists of.
async fn others_write_on(place: Place) {
    let direct = place.builder().history(1_000).connect(&place.url).await.unwrap();
    create(&direct, "a", NewSchedule::new("k", "d", None), STORE).await.unwrap();
    let clock = Tokio::current().unwrap();
    for replies in 0..6 {
        let (proxy, through) = before(&place);
        let values = [("URL", through.url.clone()), ("PREFIX", place.prefix.clone())];
        let mut node = Node::start(TEST, &values);
        let paused = async || {
            let state = crate::calls::get(&direct, "a").await.unwrap();
            state.paused.map(|pause| pause.note)
        };
        let first = paused().await;
        while paused().await == first {
            pause(20).await;
        }
        proxy.fall_silent_after(replies);
        tokio::task::block_in_place(|| patiently("the line is silent", || proxy.is_silent()));
        node.signal("-STOP");
        let since = clock.now();
        while let Err(error) =
            change(&direct, "a", Action::Pause { note: "b", until: None }, STORE).await
        {
            assert!(clock.now() - since < LONGEST, "after {replies} replies: {error:?}");
        }
        proxy.fall_silent_after(Proxy::NEVER);
        node.kill();
    }
}

mod a_node_that_is_frozen_in_a_write_keeps_no_other_from_its_record {
    use super::*;

    #[test]
    fn postgres() {
        on(Db::Postgres, others_write_on);
    }

    #[test]
    fn mysql() {
        on(Db::MySql, others_write_on);
    }
}

/// SQLite has no server that could end the transaction of a process that is stopped. Another process
/// reads meanwhile, and says why it cannot write.
#[test]
fn a_lock_that_another_process_keeps_is_named_with_its_remedy_on_sqlite() {
    on(Db::Sqlite, async |place| {
        let timeout = Duration::from_secs(2);
        let builder = place.builder().history(1_000).store_timeout(timeout);
        let sql = builder.connect(&place.url).await.unwrap();
        create(&sql, "a", NewSchedule::new("k", "d", None), STORE).await.unwrap();
        let mut other = SqliteConnection::connect(&place.url).await.unwrap();
        other.execute("BEGIN IMMEDIATE").await.unwrap();
        let pause = || Action::Pause { note: "b", until: None };
        let write = tokio::time::timeout(timeout, change(&sql, "a", pause(), STORE)).await;
        let error = write.expect("before the scheduler gives up").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        for part in ["another process", "stopped", "continue or kill"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        let query = DueQuery::new(&["k"], end_of_time(), 9);
        assert!(sql.queries().unwrap().find_due(query, STORE).await.is_ok(), "reads go on");
        other.execute("ROLLBACK").await.unwrap();
        change(&sql, "a", pause(), STORE).await.unwrap();
    });
}

/// The number of times that a process which is frozen at any moment keeps the lock, while it writes
/// without end: `ALLORA_MEASURE=1 cargo test -p allora-sql --all-features -- --nocapture
/// at_any_moment`.
#[test]
#[expect(clippy::print_stderr, reason = "figures are shown")]
fn a_process_that_was_frozen_at_any_moment_leaves_a_file_that_others_write_on_sqlite() {
    on(Db::Sqlite, async |place| {
        let sql = place.builder().history(1_000).connect(&place.url).await.unwrap();
        for name in ["a", "b"] {
            create(&sql, name, NewSchedule::new("k", "d", None), STORE).await.unwrap();
        }
        let values = [("URL", place.url.clone()), ("PREFIX", place.prefix.clone())];
        let node = Node::start(TEST, &values);
        let mut other = SqliteConnection::connect(&place.url).await.unwrap();
        other.execute("PRAGMA busy_timeout = 100").await.unwrap();
        let writes = async || {
            let state = crate::calls::get(&sql, "a").await.unwrap();
            state.paused.and_then(|pause| pause.note.parse::<u64>().ok()).unwrap_or(0)
        };
        while writes().await == 0 {
            pause(20).await;
        }
        let (clock, mut kept) = (Tokio::current().unwrap(), 0);
        let freezes = if env::var("ALLORA_MEASURE").is_ok() { 200 } else { 10 };
        let (mut written, mut took) = (0, Duration::ZERO);
        for i in 0..freezes {
            let (before, since) = (writes().await, clock.now());
            // No write is in step with the start of the process that sends the signal.
            pause(20 + i * 7 % 11).await;
            node.signal("-STOP");
            took += clock.now() - since;
            written += writes().await - before;
            match other.execute("BEGIN IMMEDIATE").await {
                Ok(_) => drop(other.execute("ROLLBACK").await.unwrap()),
                Err(_) => kept += 1,
            }
            node.signal("-CONT");
            change(&sql, "b", Action::Pause { note: "b", until: None }, STORE).await.unwrap();
        }
        eprintln!("{kept} of {freezes} frozen with the lock, {:?} a write", took / written as u32);
    });
}
