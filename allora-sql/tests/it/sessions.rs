//! What was found out about each database, kept as tests.

use crate::{
    connect::run,
    stores::{Db, Place, on, on_every_database, pause},
};
use allora_core::{
    Backend, Kind,
    backend::{
        Act, Answer, Beside, Change, Cursor, Deliver, End, Ended, Ending, Mark, NewSchedule, Next,
        Now, Plan, Reschedule, Settle, Settled, Take,
    },
    time::{end_of_time, from_millis},
};
use allora_sql::Sql;
use futures::StreamExt;
use sqlx::{
    AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, PgPool, Row,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};
use std::{str::FromStr, time::Duration};

on_every_database! {
    one_of_many_takes_wins_and_the_others_are_told
    time_that_passed_while_waiting_for_a_row_counts
}

const STORE: Now = Now::Store { node: chrono::DateTime::<chrono::Utc>::UNIX_EPOCH };

/// A take of the cursor's occurrence.
fn take(claim: u128, fence: i64, expected: Next, then: Next) -> Act<'static> {
    let mark = Some(Mark { lasts: Duration::from_secs(60), beside: Beside::Others });
    let deliver = Deliver::AtMostOnce { then: Cursor::To(Some(then)), mark };
    Act::Take(Take::new(claim, fence, expected.at.into(), deliver))
}

async fn one_of_many_takes_wins_and_the_others_are_told(place: Place) {
    let names: Vec<String> = (0..100).map(|i| format!("job {i}")).collect();
    let first: Next = from_millis(1_000).unwrap().into();
    let sql = place.open().await;
    let register = Act::Register { definition: "d", version: 0, first: Some(first) };
    let plans: Vec<Plan<'_>> = names.iter().map(|n| Plan::new(n, register.clone())).collect();
    let rounds = 5;
    for round in 0..rounds {
        // Registering what is there alters nothing, and reads it.
        let read = sql.reschedule(Reschedule::new("n", STORE, &plans)).await.unwrap().answers;
        let fence = |answer: &Answer| match answer {
            Answer::State(state) => state.fence,
            other => panic!("{other:?}"),
        };
        let fences: Vec<i64> = read.iter().map(fence).collect();
        // A claim that was used before would be answered with what it won then.
        let at = |round: i64| Next::from(from_millis(1_000 + round).unwrap());
        let node = async |node: u128| {
            let other = place.open().await;
            let plans: Vec<Plan<'_>> = (0..names.len())
                .map(|i| {
                    let claim = (node << 32 | round as u128) << 64 | i as u128;
                    Plan::new(&names[i], take(claim, fences[i], at(round), at(round + 1)))
                })
                .collect();
            let answer = other.reschedule(Reschedule::new("n", STORE, &plans)).await.unwrap();
            answer.answers.iter().filter(|a| matches!(a, Answer::Taken(_))).count()
        };
        let won = futures::future::join_all((0..4).map(node)).await;
        assert_eq!(won.iter().sum::<usize>(), names.len(), "{won:?}");
    }
    let state = sql.schedules().unwrap().get("job 7").await.unwrap();
    assert_eq!((state.counters.started, state.holds.len()), (rounds as u64, rounds as usize));
}

/// A clock that was read before the wait would find the occurrence not due yet.
async fn time_that_passed_while_waiting_for_a_row_counts(place: Place) {
    // With a history every take locks its row.
    let sql = place.builder().history(10).connect(&place.url).await.unwrap();
    let store = sql.schedules().unwrap();
    let soon = sql.reschedule(Reschedule::new("n", STORE, &[])).await.unwrap().now
        + Duration::from_millis(600);
    let soon = from_millis(soon.timestamp_millis()).unwrap();
    let new = NewSchedule::new("a", "k", "d", Some(soon.into()));
    let fence = store.add(&[new], STORE).await.unwrap().remove(0).unwrap().fence;
    let (begin, touch) = match place.url.split(':').next() {
        Some("sqlite") => ("BEGIN IMMEDIATE", "UPDATE {p}_job SET missed = missed + 1"),
        _ => ("BEGIN", "UPDATE {p}_job SET missed = missed + 1"),
    };
    let touch = touch.replace("{p}", &place.prefix);
    let text = format!("{begin}; {touch}");
    let wait =
        if place.url.starts_with("mysql") { "DO SLEEP(1.2)" } else { "SELECT pg_sleep(1.2)" };
    // Somebody has the row until it is due.
    let (has_it, held) = futures::channel::oneshot::channel();
    let hold = async {
        if place.url.starts_with("postgres") {
            let mut conn = PgConnection::connect(&place.url).await.unwrap();
            conn.execute(AssertSqlSafe(text.clone())).await.unwrap();
            has_it.send(()).unwrap();
            conn.execute(wait).await.unwrap();
            conn.execute("COMMIT").await.unwrap();
        } else if place.url.starts_with("mysql") {
            let mut conn = MySqlConnection::connect(&place.url).await.unwrap();
            conn.execute(AssertSqlSafe(text.clone())).await.unwrap();
            has_it.send(()).unwrap();
            conn.execute(wait).await.unwrap();
            conn.execute("COMMIT").await.unwrap();
        } else {
            let mut conn = sqlx::SqliteConnection::connect(&place.url).await.unwrap();
            conn.execute(AssertSqlSafe(text.clone())).await.unwrap();
            has_it.send(()).unwrap();
            pause(1_200).await;
            conn.execute("COMMIT").await.unwrap();
        }
    };
    let taking = async {
        held.await.unwrap();
        let then = Next::from(soon + Duration::from_secs(9));
        let plans = [Plan::new("a", take(1, fence, soon.into(), then))];
        sql.reschedule(Reschedule::new("n", STORE, &plans)).await.unwrap()
    };
    let ((), answer) = futures::join!(hold, taking);
    assert!(matches!(answer.answers[0], Answer::Taken(_)), "{answer:?}");
    let state = store.get("a").await.unwrap();
    assert_eq!((state.counters.missed, state.counters.started), (1, 1), "an update was lost");
}

#[test]
fn sessions_are_set_up_whatever_the_defaults_of_the_database() {
    on(Db::Postgres, async |place| {
        let role = format!("{}_strange", place.prefix);
        for text in [
            format!("CREATE ROLE {role} LOGIN PASSWORD 'pw'"),
            format!("GRANT ALL ON SCHEMA public TO {role}"),
            format!("ALTER ROLE {role} SET default_transaction_isolation = 'serializable'"),
            format!("ALTER ROLE {role} SET default_transaction_read_only = on"),
            format!("ALTER ROLE {role} SET synchronous_commit = off"),
            format!("ALTER ROLE {role} SET timezone = 'Pacific/Apia'"),
        ] {
            run(&place, &text).await.unwrap();
        }
        let (_, rest) = place.url.split_once('@').unwrap();
        let url = format!("postgres://{role}:pw@{rest}");
        let sql = place.builder().connect(&url).await.unwrap();
        let new = NewSchedule::new("a", "k", "d", None);
        sql.schedules().unwrap().add(&[new], STORE).await.unwrap().remove(0).unwrap();
        // A pool that is given keeps its sessions, and one that would lose takes is refused.
        let pool = PgPool::connect(&url).await.unwrap();
        let error = place.builder().postgres_pool(pool.clone()).await.unwrap_err();
        assert!(error.to_string().contains("synchronous_commit"), "{error}");
        pool.close().await;
        sql.close().await;
        place.clear().await;
        run(&place, &format!("DROP OWNED BY {role}")).await.unwrap();
        run(&place, &format!("DROP ROLE {role}")).await.unwrap();
    });
}

#[test]
fn a_role_that_may_not_create_tables_works_once_they_are_there() {
    on(Db::Postgres, async |place| {
        place.open().await.close().await;
        let role = format!("{}_worker", place.prefix);
        let (p, tables) = (&place.prefix, ["job", "data", "history"]);
        let tables = tables.map(|table| format!("{p}_{table}")).join(", ");
        for text in [
            format!("CREATE ROLE {role} LOGIN PASSWORD 'pw'"),
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC".to_owned(),
            format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {tables}, {p}_meta TO {role}"),
        ] {
            run(&place, &text).await.unwrap();
        }
        let (_, rest) = place.url.split_once('@').unwrap();
        let url = format!("postgres://{role}:pw@{rest}");
        works(&place.builder().history(10).connect(&url).await.unwrap()).await;
        run(&place, &format!("DROP OWNED BY {role}")).await.unwrap();
        run(&place, &format!("DROP ROLE {role}")).await.unwrap();
    });
    on(Db::MySql, async |place| {
        place.open().await.close().await;
        let user = format!("{}'@'127.0.0.1", &place.prefix);
        run(&place, &format!("CREATE USER '{user}' IDENTIFIED BY 'pw'")).await.unwrap();
        for table in ["job", "data", "history", "meta"] {
            let rights = "SELECT, INSERT, UPDATE, DELETE";
            let text = format!("GRANT {rights} ON {{p}}_{table} TO '{user}'");
            run(&place, &text).await.unwrap();
        }
        let (_, rest) = place.url.split_once('@').unwrap();
        let url = format!("mysql://{}:pw@{rest}", place.prefix);
        works(&place.builder().history(10).connect(&url).await.unwrap()).await;
        run(&place, &format!("DROP USER '{user}'")).await.unwrap();
    });
}

async fn works(sql: &Sql) {
    let store = sql.schedules().unwrap();
    let new = NewSchedule::new("a", "k", "d", None).data(b"x");
    store.add(&[new], STORE).await.unwrap().remove(0).unwrap();
    store.modify("a", Change::Trigger { id: "t", at: None }, STORE).await.unwrap();
    store.delete("a", STORE).await.unwrap();
}

/// A statement that changes nothing reports no row on MySQL: an extension must not believe it.
#[test]
fn an_extension_that_changes_nothing_is_granted() {
    on(Db::MySql, async |place| {
        let sql = place.open().await;
        let now = Now::At(from_millis(5_000).unwrap());
        let first: Next = from_millis(1_000).unwrap().into();
        let new = NewSchedule::new("a", "k", "d", Some(first));
        let fence =
            sql.schedules().unwrap().add(&[new], now).await.unwrap().remove(0).unwrap().fence;
        let then: Next = end_of_time().into();
        let plans = [Plan::new("a", take(1, fence, first, then))];
        let answer = sql.reschedule(Reschedule::new("n", now, &plans)).await.unwrap();
        let Answer::Taken(taken) = &answer.answers[0] else { panic!("{answer:?}") };
        for _ in 0..2 {
            let end = End::Extend { lasts: Duration::from_secs(60) };
            let endings = [Ending::new("a", taken.fence, end)];
            let settled = sql.leases().unwrap().settle(Settle::new("n", now, &endings)).await;
            assert_eq!(settled.unwrap(), [Settled::Until(taken.until.unwrap())]);
        }
        let finish = End::Finish { then: Cursor::To(Some(then)), outcome: Ended::Ran };
        let endings = [Ending::new("a", taken.fence, finish)];
        for _ in 0..2 {
            let settled = sql.leases().unwrap().settle(Settle::new("n", now, &endings)).await;
            assert_eq!(settled.unwrap(), [Settled::Done]);
        }
    });
}

/// Without STRICT a text in a column of numbers is never due, and nobody is told.
#[test]
fn sqlite_refuses_text_where_a_number_belongs() {
    on(Db::Sqlite, async |place| {
        let sql = place.open().await;
        let new = NewSchedule::new("a", "k", "d", None);
        sql.schedules().unwrap().add(&[new], STORE).await.unwrap().remove(0).unwrap();
        assert!(run(&place, "UPDATE {p}_job SET cursor_at = 'tomorrow'").await.is_err());
    });
}

#[test]
fn a_given_pool_of_sqlite_must_be_durable() {
    on(Db::Sqlite, async |place| {
        place.open().await.close().await;
        let options = SqliteConnectOptions::from_str(&place.url).unwrap();
        let options = options.synchronous(SqliteSynchronous::Off);
        let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
        let error = place.builder().sqlite_pool(pool).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("synchronous"), "{error}");
    });
}

/// A take by key must not read the other jobs.
#[test]
fn takes_and_looks_use_the_indexes() {
    on(Db::Sqlite, async |place| {
        place.open().await;
        let mut conn = sqlx::SqliteConnection::connect(&place.url).await.unwrap();
        let mut plan = async |text: &str| {
            let text = format!("EXPLAIN QUERY PLAN {}", text.replace("{p}", &place.prefix));
            let rows = conn.fetch_all(AssertSqlSafe(text)).await.unwrap();
            rows.iter().map(|row| row.get::<String, _>(3)).collect::<Vec<_>>().join("; ")
        };
        let by_key = plan("SELECT * FROM {p}_job WHERE name IN (X'00', X'01')").await;
        assert!(by_key.contains("SEARCH") && !by_key.contains("SCAN"), "{by_key}");
        let find = "SELECT * FROM {p}_job j WHERE j.notice_at IS NOT NULL AND j.gone_at IS NULL \
                    AND j.kind = X'00' ORDER BY j.notice_at, j.name LIMIT 5";
        let noticed = plan(find).await;
        assert!(noticed.contains("_job_notice") && !noticed.contains("TEMP B-TREE"), "{noticed}");
    });
}

#[test]
fn postgres_tells_those_who_watch() {
    on(Db::Postgres, async |place| {
        let (sql, other) = (place.open().await, place.open().await);
        let mut hints = sql.watch().unwrap().subscribe().await.unwrap();
        let due = from_millis(7_000).unwrap();
        let new = NewSchedule::new("a", "k", "d", Some(due.into()));
        other.schedules().unwrap().add(&[new], STORE).await.unwrap().remove(0).unwrap();
        assert_eq!(hints.next().await, Some(allora_core::backend::Hint::DueAt(due)));
        other.schedules().unwrap().delete("a", STORE).await.unwrap();
        assert_eq!(hints.next().await, Some(allora_core::backend::Hint::Job("a".into())));
    });
}
