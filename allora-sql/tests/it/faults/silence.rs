//! Connections that fall silent: nothing arrives any more, and neither side notices. And servers that
//! need longer for a new session than a call may take.

use super::cut::before;
use crate::{
    calls::{STORE, create},
    stores::{Db, Place, on, pause},
};
use allora_core::{
    Backend, Error, ErrorKind, Result,
    backend::{Batch, NewSchedule},
};
use allora_sql::{Sql, SqlBuilder, SqlxPool as _};
use futures::future::{Either, select};
use sqlx::{mysql::MySqlPoolOptions, postgres::PgPoolOptions};
use std::{pin::pin, time::Duration};

/// The store timeout of these calls, as a scheduler has it.
const STORE_TIMEOUT: u64 = 3_000;

/// A call with a time limit.
async fn within<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    match select(pin!(call), pin!(pause(STORE_TIMEOUT))).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => Err(Error::new(ErrorKind::Unavailable, "no answer in time")),
    }
}

/// A write through the store.
async fn write(store: &Sql, name: &str) -> Result<()> {
    within(create(store, name, NewSchedule::new("k", "d", None), STORE)).await.map(drop)
}

/// Calls through connections that fell silent after each number of replies that they may consist of.
async fn recovers(node: &Sql, proxy: &allora_conformance::faults::Proxy) {
    for replies in 0..6 {
        let name = |part: &str| format!("{part} {replies}");
        // Both connections are in use when they fall silent, or about to be.
        let (a, b) = (name("a"), name("b"));
        futures::try_join!(write(node, &a), write(node, &b)).unwrap();
        proxy.fall_silent_after(replies);
        let (a, b) = (name("c"), name("d"));
        let _ = futures::join!(write(node, &a), write(node, &b));
        proxy.fall_silent();
        proxy.fall_silent_after(allora_conformance::faults::Proxy::NEVER);
        let mut failed = 0;
        while within(node.reschedule(Batch::new("n", STORE, &[]))).await.is_err() {
            failed += 1;
            assert!(failed <= 2, "after {replies} replies, {failed} calls in a row have failed");
        }
    }
}

fn two(place: &Place) -> SqlBuilder {
    place.builder().connections(2).store_timeout(Duration::from_millis(STORE_TIMEOUT))
}

async fn of_our_own(place: Place) {
    place.open().await.close().await;
    let (proxy, through) = before(&place);
    let node = two(&through).connect(&through.url).await.unwrap();
    recovers(&node, &proxy).await;
}

async fn of_a_given_pool(place: Place) {
    place.open().await.close().await;
    let (proxy, through) = before(&place);
    let builder = two(&through);
    let node = if place.url.starts_with("postgres") {
        let pool = PgPoolOptions::new().max_connections(2).connect(&through.url).await.unwrap();
        builder.postgres_pool(pool).await.unwrap()
    } else {
        let pool = MySqlPoolOptions::new().max_connections(2).connect(&through.url).await.unwrap();
        builder.mysql_pool(pool).await.unwrap()
    };
    recovers(&node, &proxy).await;
}

mod a_pool_of_silent_connections_recovers_within_two_calls {
    use super::*;

    #[test]
    fn postgres() {
        on(Db::Postgres, of_our_own);
    }

    #[test]
    fn mysql() {
        on(Db::MySql, of_our_own);
    }

    #[test]
    fn postgres_with_a_given_pool() {
        on(Db::Postgres, of_a_given_pool);
    }

    #[test]
    fn mysql_with_a_given_pool() {
        on(Db::MySql, of_a_given_pool);
    }
}

/// Each answer takes less than a call may, and a new session consists of several.
async fn with_slow_sessions(place: Place) {
    place.open().await.close().await;
    let (proxy, through) = before(&place);
    let builder = two(&through).connections(1).connect_timeout(Duration::from_secs(300));
    let node = builder.connect(&through.url).await.unwrap();
    proxy.fall_silent();
    proxy.delay(Duration::from_millis(STORE_TIMEOUT / 4));
    let mut failed = 0;
    while within(node.reschedule(Batch::new("n", STORE, &[]))).await.is_err() {
        failed += 1;
        assert!(failed < 20, "{failed} calls in a row have failed");
    }
    assert!(failed > 1, "a new session was ready within one call");
}

mod a_session_that_takes_longer_than_a_call_is_there_for_a_later_one {
    use super::*;

    #[test]
    fn postgres() {
        on(Db::Postgres, with_slow_sessions);
    }

    #[test]
    fn mysql() {
        on(Db::MySql, with_slow_sessions);
    }
}
