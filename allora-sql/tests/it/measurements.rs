//! Times of statements on large tables without statistics, to be read and not to be checked:
//! `ALLORA_MEASURE=1 cargo test -p allora-sql --all-features -- --nocapture measurements`.
#![expect(clippy::print_stderr, reason = "figures are shown")]

use crate::{
    calls::STORE,
    connect::run,
    stores::{Db, Place, on},
};
use allora_core::{
    Backend, Runtime as _,
    backend::{DueQuery, HistoryLimits, HistoryQuery, TimeSource},
    runtime::Tokio,
    time::from_millis,
};
use allora_sql::Sql;
use std::time::Duration;

const MILLION: u32 = 1_000_000;

/// Numbers from 1 to this one, named `i`.
fn numbers(place: &Place, last: u32) -> String {
    if place.url.starts_with("postgres") {
        format!("generate_series(1, {last}) AS n (i)")
    } else if place.url.starts_with("mysql") {
        format!("(SELECT seq AS i FROM seq_1_to_{last}) n")
    } else {
        format!(
            "(WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {last}) \
              SELECT i FROM n) n"
        )
    }
}

/// Text as bytes.
fn bytes(place: &Place, text: &str) -> String {
    if place.url.starts_with("postgres") {
        format!("convert_to({text}, 'UTF8')")
    } else {
        format!(
            "CAST({text} AS {})",
            if place.url.starts_with("mysql") { "BINARY" } else { "BLOB" }
        )
    }
}

fn concat(place: &Place, text: &str, number: &str) -> String {
    match place.url.starts_with("mysql") {
        true => format!("CONCAT('{text}', {number})"),
        false => format!("'{text}' || {number}"),
    }
}

/// The least and the most of some times that `call` takes.
async fn measure<T>(what: &str, mut call: impl AsyncFnMut() -> T) -> T {
    let clock = Tokio::current().unwrap();
    let mut took: Vec<Duration> = Vec::new();
    loop {
        let before = clock.now();
        let done = call().await;
        took.push(clock.now() - before);
        if took.len() == 7 {
            took.sort();
            eprintln!("{what}: {:?}, at most {:?}", took[3], took[6]);
            return done;
        }
    }
}

async fn a_due_query(place: Place) {
    let sql = place.open().await;
    if place.url.starts_with("postgres") {
        for table in ["job", "state"] {
            let off = format!("ALTER TABLE {{p}}_{table} SET (autovacuum_enabled = off)");
            run(&place, &off).await.unwrap();
        }
    }
    let name = bytes(&place, &concat(&place, "job ", "i"));
    let kind = bytes(&place, &concat(&place, "k", "(i % 20)"));
    let fill = format!(
        "INSERT INTO {{p}}_job (id, name, kind, definition, definition_version, generation) \
         SELECT i, {name}, {kind}, {def}, 0, 1 FROM {from}",
        def = bytes(&place, "'@hourly'"),
        from = numbers(&place, MILLION),
    );
    run(&place, &fill).await.unwrap();
    let fill = format!(
        "INSERT INTO {{p}}_state (id, version, fence, kind, index_at, wake_at, rare, incarnation, \
           started, succeeded, cursor_scheduled_at, cursor_due_at) \
         SELECT i, 1, 1, {kind}, i, i, 0, 1, 0, 0, i, i FROM {from}",
        from = numbers(&place, MILLION),
    );
    run(&place, &fill).await.unwrap();
    let kinds: Vec<String> = (0..20).map(|i| format!("k{i}")).collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let query = DueQuery::new(&kinds, from_millis(2_000_000).unwrap(), 1_000);
    let due = measure("a due query for 1,000 of 1 M rows of 20 kinds", async || {
        sql.queries().unwrap().find_due(query, STORE).await.unwrap()
    });
    assert_eq!(due.await.found.len(), 1_000);
}

/// Fills the history with this number of entries.
pub(crate) async fn fill_history(place: &Place, entries: u32) {
    let name = bytes(place, &concat(place, "job ", "(i % 1000)"));
    let fill = format!(
        "INSERT INTO {{p}}_history (fence, name, kind, scheduled_at, attempt, node, outcome, \
           is_failure) \
         SELECT i, {name}, {kind}, i, 1, {node}, {outcome}, 0 FROM {from}",
        kind = bytes(place, "'k'"),
        node = bytes(place, "'node'"),
        outcome = bytes(place, "'succeeded'"),
        from = numbers(place, entries),
    );
    run(place, &fill).await.unwrap();
}

/// The entries of [`fill_history`] are from 1970.
async fn opened(place: &Place, limit: u64) -> Sql {
    let limits = HistoryLimits::from(limit).age(Duration::from_secs(36_500 * 86_400));
    place.builder().history(limits).connect(&place.url).await.unwrap()
}

async fn a_page_of_the_history(place: Place) {
    let sql = opened(&place, 1_000_000).await;
    fill_history(&place, MILLION).await;
    let history = sql.history().unwrap();
    let all = measure("a page of 100 of 1 M entries", async || {
        history.entries(HistoryQuery::new(100)).await.unwrap()
    });
    assert_eq!(all.await.len(), 100);
    let one = measure("a page of 100 of one job's 1,000 entries of 1 M", async || {
        history.entries(HistoryQuery::new(100).name("job 7")).await.unwrap()
    });
    assert_eq!(one.await.len(), 100);
}

/// Measures, if that is asked for.
fn measured(db: Db, work: impl AsyncFnOnce(Place)) {
    if std::env::var_os("ALLORA_MEASURE").is_some() {
        on(db, work);
    }
}

macro_rules! measurements {
    ($($name:ident)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn sqlite() {
                measured(Db::Sqlite, super::$name);
            }
            #[test]
            fn postgres() {
                measured(Db::Postgres, super::$name);
            }
            #[test]
            fn mysql() {
                measured(Db::MySql, super::$name);
            }
        }
    )*};
}

/// A limit that is lowered from a million entries, and the batches of a job that runs on.
async fn pruning(place: Place) {
    let sql = opened(&place, 1_000).await;
    fill_history(&place, MILLION).await;
    let mut left = usize::MAX;
    let mut batches = 0;
    let clock = Tokio::current().unwrap();
    let mut longest = Duration::ZERO;
    crate::rows::begin_runs(&sql).await;
    while left > 1_100 {
        for _ in 0..50 {
            let before = clock.now();
            crate::rows::run_once(&sql, batches).await;
            longest = longest.max(clock.now() - before);
            batches += 1;
        }
        Backend::prune(&sql, TimeSource::Store { fallback: Tokio::current().unwrap().wall() })
            .await
            .unwrap();
        left = sql.history().unwrap().entries(HistoryQuery::new(1_200)).await.unwrap().len();
    }
    eprintln!("1 M entries were removed in {batches} runs; the longest took {longest:?}");
}

measurements! {
    a_due_query
    a_page_of_the_history
    pruning
}
