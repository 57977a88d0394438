//! Facts about each database that were found out, kept as tests.

use crate::{
    calls::{STORE, create, delete, get, replies, send},
    connect::run,
    stores::{Db, Place, on, on_every_database, patiently_opened, pause},
};
use allora_conformance::a_days_work;
use allora_core::{
    Backend, ErrorKind, Time,
    backend::{
        Action, Batch, Claim, ClaimKey, Completion, Cursor, NewSchedule, NextRun, Notification,
        Operation, Reply, Sharing, TimeSource,
    },
    time::{end_of_time, from_millis},
};
use allora_sql::{Sql, SqlxPool as _};
use futures::{StreamExt, future::Either};
use sqlx::{
    AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, PgPool, Row,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};
use std::{str::FromStr, time::Duration};

on_every_database! {
    one_of_many_claims_succeeds_and_the_others_receive_the_current_state
    a_write_that_held_the_row_is_not_lost
    time_that_passed_while_waiting_for_a_row_counts
    time_that_passed_while_waiting_for_the_row_of_a_key_counts
    lost_and_expired_runs_are_returned_without_a_history
}

/// A claim of the cursor's occurrence.
pub(crate) fn claim(id: u128, fence: i64, expected: NextRun, then: NextRun) -> Claim {
    let (expected, then) = (expected.scheduled_at.into(), Cursor::To(Some(then)));
    Claim::at_most_once(id, fence, expected, then, Duration::from_secs(60), Sharing::Shared)
}

async fn one_of_many_claims_succeeds_and_the_others_receive_the_current_state(place: Place) {
    let names: Vec<String> = (0..100).map(|i| format!("job {i}")).collect();
    let first: NextRun = from_millis(1_000).unwrap().into();
    let sql = place.open().await;
    let register = Action::Register { definition: "d", version: 0, first: Some(first) };
    let registrations: Vec<Operation<'_>> =
        names.iter().map(|name| Operation::new(name, register.clone())).collect();
    let rounds = 5;
    for round in 0..rounds {
        // Registering an existing job changes nothing, and reads it.
        let read = replies(&sql, STORE, &registrations).await.into_iter();
        let fences: Vec<i64> = read.map(|reply| reply.state().unwrap().fence).collect();
        // A claim id that was used before would get the reply of then.
        let at = |round: i64| NextRun::from(from_millis(1_000 + round).unwrap());
        let node = async |node: u128| {
            let other = place.open().await;
            let claims: Vec<Operation<'_>> = (0..names.len())
                .map(|i| {
                    let id = (node << 32 | round as u128) << 64 | i as u128;
                    let claim = claim(id, fences[i], at(round), at(round + 1));
                    Operation::claim(&names[i], claim)
                })
                .collect();
            let replies = replies(&other, STORE, &claims).await.into_iter();
            replies.filter(|reply| matches!(reply, Reply::Claimed(_))).count()
        };
        let won = futures::future::join_all((0..4).map(node)).await;
        assert_eq!(won.iter().sum::<usize>(), names.len(), "{won:?}");
    }
    let state = get(&sql, "job 7").await.unwrap();
    assert_eq!((state.counters.started, state.leases.len()), (rounds as u64, rounds as usize));
}

/// Does `work` while another writer has the row of the only job for 1.2 s.
async fn while_another_has_the_row<T>(place: &Place, work: impl Future<Output = T>) -> T {
    let begin = if place.url.starts_with("sqlite") { "BEGIN IMMEDIATE" } else { "BEGIN" };
    // As every write does.
    let touch = "UPDATE {p}_state SET missed = COALESCE(missed, 0) + 1, version = version + 1";
    let text = format!("{begin}; {}", touch.replace("{p}", &place.prefix));
    let wait =
        if place.url.starts_with("mysql") { "DO SLEEP(1.2)" } else { "SELECT pg_sleep(1.2)" };
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
    let work = async {
        held.await.unwrap();
        work.await
    };
    futures::join!(hold, work).1
}

/// Two ways: the fast statements, and with a history a read and a commit.
async fn two_ways(place: &Place) -> [(Sql, Place); 2] {
    let other = place.beside("history");
    let with_history = other.builder().history(10).connect(&other.url).await.unwrap();
    [(place.open().await, place.beside_nothing()), (with_history, other)]
}

/// A read and a write without comparing would overwrite it.
async fn a_write_that_held_the_row_is_not_lost(place: Place) {
    for (sql, place) in two_ways(&place).await {
        let first: NextRun = from_millis(1_000).unwrap().into();
        let new = NewSchedule::new("k", "d", Some(first));
        let fence = create(&sql, "a", new, STORE).await.unwrap().fence;
        let claim = claim(1, fence, first, end_of_time().into());
        let claiming = send(&sql, "n", STORE, Operation::claim("a", claim));
        let reply = while_another_has_the_row(&place, claiming).await.unwrap();
        assert!(matches!(reply, Reply::Claimed(_)), "{reply:?}");
        let counters = get(&sql, "a").await.unwrap().counters;
        assert_eq!((counters.missed, counters.started), (1, 1), "an update was lost");
    }
    place.beside("history").clear().await;
}

/// A clock that was read before the wait would find the claim in time.
async fn time_that_passed_while_waiting_for_a_row_counts(place: Place) {
    for (sql, place) in two_ways(&place).await {
        let first: NextRun = from_millis(1_000).unwrap().into();
        let new = NewSchedule::new("k", "d", Some(first));
        let fence = create(&sql, "a", new, STORE).await.unwrap().fence;
        let now: Time = sql.reschedule(Batch::new("n", STORE, &[])).await.unwrap().now;
        let mut claim = claim(1, fence, first, end_of_time().into());
        claim.not_after = Some(now + Duration::from_millis(800));
        let claiming = send(&sql, "n", STORE, Operation::claim("a", claim.clone()));
        let reply = while_another_has_the_row(&place, claiming).await.unwrap();
        assert!(matches!(reply, Reply::State(_)), "it was claimed too late: {reply:?}");
        // It is the time that was over.
        claim.not_after = None;
        let reply = send(&sql, "n", STORE, Operation::claim("a", claim)).await.unwrap();
        assert!(matches!(reply, Reply::Claimed(_)), "{reply:?}");
    }
    place.beside("history").clear().await;
}

async fn time_that_passed_while_waiting_for_the_row_of_a_key_counts(place: Place) {
    let sql = place.open().await;
    let claim = |id| ClaimKey::new(id, 2, "job", Time::UNIX_EPOCH, Duration::from_secs(60));
    let ask =
        async |claim| send(&sql, "n", STORE, Operation::new("a", Action::ClaimKey(claim))).await;
    let fence = ask(claim(1)).await.unwrap().claimed().unwrap().fence;
    let release = Action::ReleaseKey { fence };
    send(&sql, "n", STORE, Operation::new("a", release)).await.unwrap();
    let now: Time = sql.reschedule(Batch::new("n", STORE, &[])).await.unwrap().now;
    let late = claim(2).not_after(Some(now + Duration::from_millis(800)));
    let reply = while_another_has_the_row(&place, ask(late)).await.unwrap();
    assert!(matches!(reply, Reply::State(_)), "a place was given too late: {reply:?}");
    let reply = ask(claim(2)).await.unwrap();
    assert!(matches!(reply, Reply::Claimed(_)), "{reply:?}");
}

async fn lost_and_expired_runs_are_returned_without_a_history(place: Place) {
    let sql = place.open().await;
    let time = |ms: i64| TimeSource::Fixed(from_millis(ms).unwrap());
    let first: NextRun = from_millis(1_000).unwrap().into();
    for (name, is_lost) in [("lost", true), ("expired", false)] {
        let new = NewSchedule::new("k", "d", Some(first));
        let fence = create(&sql, name, new, time(0)).await.unwrap().fence;
        let least = |id, fence| {
            Claim::at_least_once(id, fence, first.scheduled_at.into(), Duration::from_secs(60))
        };
        let claim = match is_lost {
            true => claim(1, fence, first, end_of_time().into()),
            false => least(1, fence),
        };
        let claimed = send(&sql, "n", time(1_000), Operation::claim(name, claim)).await.unwrap();
        let fence = claimed.claimed().unwrap().fence;
        let late = match is_lost {
            true => Operation::new(name, Action::Reap),
            false => Operation::claim(name, least(2, fence)),
        };
        let batch = [late];
        let applied = sql.reschedule(Batch::new("m", time(70_000), &batch)).await.unwrap();
        let lapsed = applied.lapsed.iter().map(|entry| (&*entry.name, &*entry.node, entry.fence));
        assert_eq!(lapsed.collect::<Vec<_>>(), [(name, "n", fence)]);
    }
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
            format!("ALTER ROLE {role} SET jit = on"),
            format!("ALTER ROLE {role} SET enable_bitmapscan = on"),
            format!("ALTER ROLE {role} SET plan_cache_mode = 'force_custom_plan'"),
            format!("ALTER ROLE {role} SET enable_indexscan = off"),
            format!("ALTER ROLE {role} SET enable_indexonlyscan = off"),
            format!("ALTER ROLE {role} SET enable_nestloop = off"),
            format!("ALTER ROLE {role} SET lock_timeout = '1h'"),
            format!("ALTER ROLE {role} SET statement_timeout = '1h'"),
            format!("ALTER ROLE {role} SET idle_in_transaction_session_timeout = '1h'"),
        ] {
            run(&place, &text).await.unwrap();
        }
        // Not every version has these.
        let mut newer = Vec::new();
        for name in ["idle_session_timeout", "transaction_timeout"] {
            let text = format!("ALTER ROLE {role} SET {name} = '1h'");
            newer.extend(run(&place, &text).await.is_ok().then_some((name, "0")));
        }
        let (_, rest) = place.url.split_once('@').unwrap();
        let url = format!("postgres://{role}:pw@{rest}");
        let sql = place.builder().connect(&url).await.unwrap();
        // Each write notes the settings of its session.
        let noted = "CREATE TABLE {p}_noted AS SELECT name, setting FROM pg_settings WHERE FALSE; \
            CREATE FUNCTION {p}_note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ \
              BEGIN INSERT INTO {p}_noted SELECT name, setting FROM pg_settings; RETURN NULL; END $$; \
            CREATE TRIGGER {p}_note AFTER INSERT ON {p}_state EXECUTE FUNCTION {p}_note()";
        run(&place, noted).await.unwrap();
        create(&sql, "a", NewSchedule::new("k", "d", None), STORE).await.unwrap();
        let mut conn = PgConnection::connect(&place.url).await.unwrap();
        for (name, expected) in [
            ("transaction_isolation", "read committed"),
            ("transaction_read_only", "off"),
            ("synchronous_commit", "on"),
            ("TimeZone", "UTC"),
            ("jit", "off"),
            ("enable_bitmapscan", "off"),
            ("enable_seqscan", "off"),
            ("plan_cache_mode", "force_generic_plan"),
            ("enable_indexscan", "on"),
            ("enable_indexonlyscan", "on"),
            ("enable_nestloop", "on"),
            ("lock_timeout", "2000"),
            ("statement_timeout", "30000"),
            ("idle_in_transaction_session_timeout", "2000"),
        ]
        .into_iter()
        .chain(newer)
        {
            let text = format!("SELECT setting FROM {}_noted WHERE name = $1", place.prefix);
            let setting: String = sqlx::query_scalar(AssertSqlSafe(text))
                .bind(name)
                .fetch_one(&mut conn)
                .await
                .unwrap();
            assert_eq!(setting, expected, "{name}");
        }
        run(&place, "DROP TABLE {p}_noted; DROP FUNCTION {p}_note() CASCADE").await.unwrap();
        // Connections like those of a pool are sessions of the store; the pool's own are not touched.
        let pool = PgPool::connect(&url).await.unwrap();
        let like = place.builder().postgres_pool(pool.clone()).await.unwrap();
        create(&like, "b", NewSchedule::new("k", "d", None), STORE).await.unwrap();
        let commit: String =
            sqlx::query_scalar("SHOW synchronous_commit").fetch_one(&pool).await.unwrap();
        assert_eq!(commit, "off");
        like.close().await;
        pool.close().await;
        sql.close().await;
        place.clear().await;
        run(&place, &format!("DROP OWNED BY {role}")).await.unwrap();
        run(&place, &format!("DROP ROLE {role}")).await.unwrap();
    });
}

/// One of a scheduler's calls comes after any time without one.
#[test]
fn an_idle_session_that_its_role_would_lose_is_kept() {
    on(Db::Postgres, async |place| {
        let role = format!("{}_hasty", place.prefix);
        run(&place, &format!("CREATE ROLE {role} LOGIN PASSWORD 'pw'")).await.unwrap();
        run(&place, &format!("GRANT ALL ON SCHEMA public TO {role}")).await.unwrap();
        // Not before version 14.
        let hasty = format!("ALTER ROLE {role} SET idle_session_timeout = '500ms'");
        if run(&place, &hasty).await.is_ok() {
            let (_, rest) = place.url.split_once('@').unwrap();
            // A slow machine may lose a session before it is set up.
            let url = format!("postgres://{role}:pw@{rest}");
            let sql = patiently_opened(place.builder(), &url).await;
            for _ in 0..3 {
                // Less than the time after which a connection is tested.
                pause(800).await;
                sql.reschedule(Batch::new("n", STORE, &[])).await.unwrap();
            }
            sql.close().await;
        }
        place.clear().await;
        run(&place, &format!("DROP OWNED BY {role}")).await.unwrap();
        run(&place, &format!("DROP ROLE {role}")).await.unwrap();
    });
}

/// Its tables would be temporary, so that each session had its own.
#[test]
fn a_postgres_without_a_usable_schema_is_refused() {
    on(Db::Postgres, async |place| {
        for path in ["pg_temp", "nothing_there"] {
            let between = if place.url.contains('?') { '&' } else { '?' };
            let url = format!("{}{between}options=-csearch_path%3D{path}", place.url);
            let error = place.builder().connect(&url).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("search_path"), "{error}");
        }
    });
}

#[test]
fn the_error_of_each_operation_of_a_refused_statement_has_its_cause() {
    on(Db::Sqlite, async |place| {
        let sql = place.open().await;
        let refuse = "CREATE TRIGGER {p}_refuse BEFORE INSERT ON {p}_job \
                      BEGIN SELECT RAISE(ABORT, 'the quota is used up'); END";
        run(&place, refuse).await.unwrap();
        let register = Action::Register { definition: "d", version: 0, first: None };
        let operations = ["a", "b", "b"].map(|name| Operation::new(name, register.clone()));
        let applied = sql.reschedule(Batch::new("n", STORE, &operations)).await.unwrap();
        for reply in applied.replies {
            let error = format!("{:#}", reply.unwrap_err());
            assert!(error.contains("the quota is used up"), "{error}");
        }
    });
}

#[test]
fn a_role_that_may_not_create_tables_works_once_they_are_there() {
    on(Db::Postgres, async |place| {
        let owner = place.open().await;
        let role = format!("{}_worker", place.prefix);
        let made = [
            format!("CREATE ROLE {role} LOGIN PASSWORD 'pw'"),
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC".to_owned(),
        ];
        for text in made.into_iter().chain(owner.grants(&role).unwrap()) {
            run(&place, &text).await.unwrap();
        }
        owner.close().await;
        let (_, rest) = place.url.split_once('@').unwrap();
        let url = format!("postgres://{role}:pw@{rest}");
        a_days_work(place.builder().history(10).connect(&url).await.unwrap()).await;
        run(&place, &format!("DROP OWNED BY {role}")).await.unwrap();
        run(&place, &format!("DROP ROLE {role}")).await.unwrap();
    });
    on(Db::MySql, async |place| {
        let owner = place.open().await;
        let user = format!("{}'@'127.0.0.1", &place.prefix);
        run(&place, &format!("CREATE USER '{user}' IDENTIFIED BY 'pw'")).await.unwrap();
        for text in owner.grants(&format!("{}@127.0.0.1", place.prefix)).unwrap() {
            run(&place, &text).await.unwrap();
        }
        owner.close().await;
        let (_, rest) = place.url.split_once('@').unwrap();
        let url = format!("mysql://{}:pw@{rest}", place.prefix);
        a_days_work(place.builder().history(10).connect(&url).await.unwrap()).await;
        run(&place, &format!("DROP USER '{user}'")).await.unwrap();
    });
}

/// A statement that changes nothing reports no row on MySQL: an extension must not believe it.
#[test]
fn an_extension_that_changes_nothing_is_granted() {
    on(Db::MySql, async |place| {
        let sql = place.open().await;
        let now = TimeSource::Fixed(from_millis(5_000).unwrap());
        let first: NextRun = from_millis(1_000).unwrap().into();
        let new = NewSchedule::new("k", "d", Some(first));
        let fence = create(&sql, "a", new, now).await.unwrap().fence;
        let then: NextRun = end_of_time().into();
        let claim = Operation::claim("a", claim(1, fence, first, then));
        let claimed = send(&sql, "n", now, claim).await.unwrap().claimed().unwrap();
        let duration = Duration::from_secs(60);
        let extend = Operation::new("a", Action::Extend { fence: claimed.fence, duration });
        for _ in 0..2 {
            let reply = send(&sql, "n", now, extend.clone()).await.unwrap();
            assert_eq!(reply, Reply::Extended(claimed.until));
        }
        let then = Cursor::To(Some(then));
        let end = Operation::complete("a", claimed.fence, then, Completion::Succeeded);
        for _ in 0..2 {
            let reply = send(&sql, "n", now, end.clone()).await.unwrap();
            assert_eq!(reply, Reply::Accepted);
        }
    });
}

/// Without STRICT, a text in a column of numbers is never due, and no error appears.
#[test]
fn sqlite_refuses_text_where_a_number_belongs() {
    on(Db::Sqlite, async |place| {
        let sql = place.open().await;
        create(&sql, "a", NewSchedule::new("k", "d", None), STORE).await.unwrap();
        assert!(
            run(&place, "UPDATE {p}_state SET cursor_scheduled_at = 'tomorrow'").await.is_err()
        );
    });
}

/// The other servers of that table are compared by `cargo xtask versions`.
#[test]
fn the_table_of_tested_versions_names_the_sqlite_that_is_compiled_in() {
    on(Db::Sqlite, async |place| {
        place.open().await;
        let mut conn = sqlx::SqliteConnection::connect(&place.url).await.unwrap();
        let row = conn.fetch_one("SELECT sqlite_version()").await.unwrap();
        let row = format!("| SQLite | {} |", row.get::<String, _>(0));
        let page = include_str!("../../../src/guide/choosing_a_store.md");
        assert!(page.lines().any(|line| line == row), "the guide of the stores lacks {row:?}");
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
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("synchronous"), "{error}");
    });
}

/// A claim by key must not read the other jobs.
#[test]
fn claims_and_queries_use_the_indexes() {
    on(Db::Sqlite, async |place| {
        place.open().await;
        let mut conn = sqlx::SqliteConnection::connect(&place.url).await.unwrap();
        let mut plan = async |text: &str| {
            let text = format!("EXPLAIN QUERY PLAN {}", text.replace("{p}", &place.prefix));
            let rows = conn.fetch_all(AssertSqlSafe(text)).await.unwrap();
            rows.iter().map(|row| row.get::<String, _>(3)).collect::<Vec<_>>().join("; ")
        };
        let by_key = "SELECT * FROM {p}_job j LEFT JOIN {p}_state s ON s.id = j.id \
                      WHERE j.name IN (X'00', X'01')";
        let by_key = plan(by_key).await;
        assert!(by_key.contains("SEARCH") && !by_key.contains("SCAN"), "{by_key}");
        let find = "SELECT id, wake_at FROM {p}_state WHERE kind = X'00' AND index_at <= 7 \
                    ORDER BY index_at, id LIMIT 5";
        let noticed = plan(find).await;
        assert!(
            noticed.contains("_state_index_at") && !noticed.contains("TEMP B-TREE"),
            "{noticed}"
        );
    });
}

#[test]
fn postgres_notifies_subscribed_nodes() {
    on(Db::Postgres, async |place| {
        let (sql, other) = (place.open().await, place.open().await);
        let mut notifications = sql.notifier().unwrap().subscribe().await.unwrap();
        let due = from_millis(7_000).unwrap();
        let new = NewSchedule::new("k", "d", Some(due.into()));
        create(&other, "a", new, STORE).await.unwrap();
        assert_eq!(notifications.next().await, Some(Notification::DueAt(due)));
        delete(&other, "a", STORE).await.unwrap();
        assert_eq!(notifications.next().await, Some(Notification::Job("a".into())));
    });
}

/// A lock that was not granted must not be taken for one that was.
#[test]
fn a_node_that_may_not_migrate_says_so_and_a_dropped_one_holds_no_lock() {
    on(Db::MySql, async |place| {
        let lock = |call: &str, more: &str| {
            format!(
                "SELECT {call}(SHA2(CONCAT('allora/', DATABASE(), '/{}'), 224){more})",
                place.prefix
            )
        };
        let mut other = MySqlConnection::connect(&place.url).await.unwrap();
        other.execute(AssertSqlSafe(lock("GET_LOCK", ", 0"))).await.unwrap();
        {
            let dropped = std::pin::pin!(place.open());
            let waits = std::pin::pin!(pause(500));
            assert!(matches!(futures::future::select(dropped, waits).await, Either::Right(_)));
        }
        let error = place.builder().connect(&place.url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("another node"), "{error}");
        other.execute(AssertSqlSafe(lock("RELEASE_LOCK", ""))).await.unwrap();
        place.open().await;
        // The server ends a closed session a moment later, so this waits; a session that lives on
        // would keep the lock.
        let free: Option<i64> = sqlx::query_scalar(AssertSqlSafe(lock("GET_LOCK", ", 10")))
            .fetch_one(&mut other)
            .await
            .unwrap();
        assert_eq!(free, Some(1));
    });
}
