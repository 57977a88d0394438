//! Pools of the application's own, which it may keep busy.

use crate::stores::{Place, on_every_database};
use allora_core::{ErrorKind, Event, Run, Scheduler, every, job};
use allora_sql::{Sql, SqlxPool as _};
use futures::{FutureExt, StreamExt, channel::mpsc, future::BoxFuture};
use sqlx::{
    mysql::MySqlPoolOptions,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};
use std::{any::Any, str::FromStr, sync::Arc, time::Duration};

on_every_database! {
    a_job_that_keeps_the_only_connection_of_the_pool_stands_in_no_ones_way
    a_given_pool_stays_open_when_the_store_is_closed
}

/// Takes the pool's connection, for as long as what it answers with lives.
type Hold = Arc<dyn Fn() -> BoxFuture<'static, Box<dyn Any + Send>> + Send + Sync>;

macro_rules! hold {
    ($pool:expr) => {{
        let pool = $pool;
        Arc::new(move || {
            let pool = pool.clone();
            async move { Box::new(pool.acquire().await.unwrap()) as Box<dyn Any + Send> }.boxed()
        })
    }};
}

/// A store over a pool of one connection, and how to take that away from it.
async fn over_one(place: &Place) -> (Sql, Hold) {
    // The pool that is given may not create tables, say.
    place.open().await.close().await;
    let builder = place.builder();
    if place.url.starts_with("postgres") {
        let pool = PgPoolOptions::new().max_connections(1).connect(&place.url).await.unwrap();
        (builder.postgres_pool(pool.clone()).await.unwrap(), hold!(pool))
    } else if place.url.starts_with("mysql") {
        let pool = MySqlPoolOptions::new().max_connections(1).connect(&place.url).await.unwrap();
        (builder.mysql_pool(pool.clone()).await.unwrap(), hold!(pool))
    } else {
        let options = SqliteConnectOptions::from_str(&place.url).unwrap();
        let options = options.journal_mode(SqliteJournalMode::Wal);
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
        (builder.sqlite_pool(pool.clone()).await.unwrap(), hold!(pool))
    }
}

async fn a_job_that_keeps_the_only_connection_of_the_pool_stands_in_no_ones_way(place: Place) {
    let (store, hold) = over_one(&place).await;
    let lease = Duration::from_secs(5);
    let (told, mut heard) = mpsc::unbounded();
    let work = async move |_: Run| {
        let held = hold().await;
        crate::stores::pause(12_000).await;
        drop(held);
    };
    let scheduler = Scheduler::builder(store.clone())
        .poll_interval(Duration::from_millis(500))
        .add("a", job(every(Duration::from_millis(500)), work).at_least_once(lease))
        .on_event(move |event| {
            let _ = told.unbounded_send(event.clone());
        })
        .build()
        .unwrap();
    let mut events = Vec::new();
    let until_it_ends = async {
        while let Some(event) = heard.next().await {
            let is_end = matches!(event, Event::RunEnded { .. });
            events.push(event);
            if is_end {
                break;
            }
        }
    };
    let _ = scheduler.run_until(until_it_ends).await;
    let lost =
        |event: &Event| matches!(event, Event::LeaseLost { .. } | Event::LeaseRenewalFailed { .. });
    assert!(!events.iter().any(lost), "{events:?}");
    let ended = events.iter().find_map(|event| match event {
        Event::RunEnded { attempt, outcome, .. } => Some((*attempt, outcome.word())),
        _ => None,
    });
    assert_eq!(ended, Some((1, "succeeded")), "{events:?}");
    // The store never waited for the pool.
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, Event::Began(allora_core::Condition::StoreDown { .. }))),
        "{events:?}"
    );
    store.close().await;
}

async fn a_given_pool_stays_open_when_the_store_is_closed(place: Place) {
    let (store, hold) = over_one(&place).await;
    store.close().await;
    let error = store.ping(Duration::from_secs(30)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    // Panics if the pool is closed.
    drop(hold().await);
}
