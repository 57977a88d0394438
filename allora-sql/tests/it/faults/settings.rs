//! Servers that are set up to forget, or so that their clock stands still.

use super::server::Server;
use crate::{
    calls::{STORE, create, get, send},
    connect::run,
    sessions::claim,
    stores::{Db, Place, patiently_opened, pause, runtime},
};
use allora_core::{
    Backend, ErrorKind,
    backend::{Action, Completion, Cursor, NewSchedule, NextRun, Operation},
    time::{end_of_time, from_millis},
};
use allora_sql::Sql;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};

/// The store's durability warning for the server's present settings.
async fn durability_warning(server: &Server) -> String {
    let place = server.place();
    let sql = patiently_opened(place.builder(), &place.url).await;
    let warning = sql.durability_warning().unwrap_or_default().to_owned();
    sql.close().await;
    warning
}

#[test]
fn a_postgres_that_may_lose_commits_has_a_durability_warning() {
    let Some(server) = Server::start(Db::Postgres) else { return };
    runtime().block_on(async {
        assert_eq!(durability_warning(&server).await, "");
        let place = server.place();
        let set = async |text: &str| {
            run(&place, &format!("ALTER SYSTEM SET {text}")).await.unwrap();
            run(&place, "SELECT pg_reload_conf()").await.unwrap();
        };
        // The server takes it up a moment later.
        let told = async |word: &str| {
            for _ in 0..600 {
                if durability_warning(&server).await.contains(word) {
                    return;
                }
                pause(100).await;
            }
            panic!("no warning has {word:?}");
        };
        set("fsync = off").await;
        told("`fsync = on`").await;
        set("full_page_writes = off").await;
        told("`full_page_writes = on`").await;
        let both = durability_warning(&server).await;
        assert!(both.contains("fsync") && both.contains("; a power cut"), "{both}");
        // Sessions of ours commit durably all the same.
        for text in ["fsync = on", "full_page_writes = on", "synchronous_commit = off"] {
            set(text).await;
        }
        told("").await;
        let mut conn = sqlx::PgConnection::connect(&place.url).await.unwrap();
        for _ in 0..600 {
            let commit: String =
                sqlx::query_scalar("SHOW synchronous_commit").fetch_one(&mut conn).await.unwrap();
            if commit == "off" && durability_warning(&server).await.is_empty() {
                return;
            }
            pause(100).await;
        }
        panic!("the warning stays although the setting is corrected");
    });
}

#[test]
fn a_mariadb_that_may_lose_commits_has_a_durability_warning_and_a_fixed_clock_is_refused() {
    let Some(mut server) = Server::start(Db::MySql) else { return };
    let told = |server: &mut Server, arguments: &[&str]| {
        server.restart(arguments);
        runtime().block_on(durability_warning(server))
    };
    assert_eq!(runtime().block_on(durability_warning(&server)), "");
    // A new log each time: the server was killed.
    assert_eq!(told(&mut server, &["--log-bin=one", "--sync-binlog=1"]), "");
    let forgets = ["--log-bin=two", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"];
    let said = told(&mut server, &forgets);
    for name in ["`sync_binlog = 1`", "`innodb_flush_log_at_trx_commit = 1`"] {
        assert!(said.contains(name), "{name}: {said}");
    }

    server.restart(&["--log-bin=three", "--binlog-format=STATEMENT"]);
    runtime().block_on(async {
        let place = server.place();
        loop {
            let error = place.builder().connect(&place.url).await.unwrap_err();
            if error.kind() == ErrorKind::Invalid {
                assert!(error.to_string().contains("binlog_format"), "{error}");
                break;
            }
        }
    });

    server.restart(&["--sysdate-is-now"]);
    runtime().block_on(async {
        let place = server.place();
        loop {
            let error = place.builder().connect(&place.url).await.unwrap_err();
            if error.kind() == ErrorKind::Invalid {
                assert!(error.to_string().contains("sysdate-is-now"), "{error}");
                break;
            }
        }
    });

    let provider = "/usr/lib/galera/libgalera_smm.so";
    if std::path::Path::new(provider).exists() {
        let said = told(
            &mut server,
            &[
                "--wsrep-on=ON",
                &format!("--wsrep-provider={provider}"),
                "--wsrep-cluster-address=gcomm://",
                "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:0",
                "--binlog-format=ROW",
                "--innodb-autoinc-lock-mode=2",
            ],
        );
        assert!(said.contains("Galera"), "{said}");
    }
}

/// The variables of each session of the store, whatever the server gives it. `sql_mode` is not among
/// them: a trigger has its own.
const SESSION: [(&str, &str); 20] = [
    ("autocommit", "1"),
    ("completion_type", "NO_CHAIN"),
    ("tx_isolation", "READ-COMMITTED"),
    ("tx_read_only", "0"),
    ("unique_checks", "1"),
    ("sql_select_limit", "18446744073709551615"),
    ("sql_safe_updates", "0"),
    ("sql_big_selects", "1"),
    ("sql_auto_is_null", "0"),
    ("max_sort_length", "1024"),
    ("max_recursive_iterations", "1000"),
    ("time_zone", "+00:00"),
    ("innodb_lock_wait_timeout", "2"),
    ("lock_wait_timeout", "2"),
    ("max_statement_time", "30"),
    ("idle_transaction_timeout", "2"),
    ("idle_write_transaction_timeout", "2"),
    ("net_read_timeout", "5"),
    ("net_write_timeout", "5"),
    ("wait_timeout", "28800"),
];

/// The worst values.
const HOSTILE: &str = "SET SESSION autocommit = 0, completion_type = 'CHAIN', \
    tx_isolation = 'SERIALIZABLE', tx_read_only = 1, unique_checks = 0, sql_select_limit = 1, \
    sql_safe_updates = 1, sql_big_selects = 0, max_join_size = 1, sql_auto_is_null = 1, \
    max_sort_length = 64, max_recursive_iterations = 1, time_zone = '-11:00', \
    innodb_lock_wait_timeout = 3600, lock_wait_timeout = 3600, max_statement_time = 3600, \
    net_read_timeout = 3600, net_write_timeout = 3600, wait_timeout = 3600, \
    idle_transaction_timeout = 3600, idle_write_transaction_timeout = 3600, \
    sql_mode = 'ORACLE,EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT'";

/// A connection of the test's own, with usual settings.
async fn usual(place: &Place) -> MySqlConnection {
    let mut conn = MySqlConnection::connect(&place.url).await.unwrap();
    for text in [
        "SET SESSION autocommit = 1, completion_type = 0, tx_read_only = 0, sql_mode = '', \
         sql_select_limit = DEFAULT, sql_safe_updates = 0, sql_big_selects = 1, tx_isolation = \
         'READ-COMMITTED', idle_transaction_timeout = 0, idle_write_transaction_timeout = 0",
        "ROLLBACK",
    ] {
        conn.execute(text).await.unwrap();
    }
    conn
}

/// The whole way of an occurrence, and what other sessions see of each step before the store's own
/// session ends.
async fn works_durably(place: &Place, sql: &Sql, name: &str) {
    let first: NextRun = from_millis(1_000).unwrap().into();
    let register = Action::Register { definition: "d", version: 0, first: Some(first) };
    let read = send(sql, "n", STORE, Operation::new(name, register)).await.unwrap();
    let then: NextRun = end_of_time().into();
    let claim = claim(1, read.state().unwrap().fence, first, then);
    let claimed = send(sql, "n", STORE, Operation::claim(name, claim)).await.unwrap();
    let fence = claimed.claimed().unwrap().fence;
    let mut conn = usual(place).await;
    let mut seen = async |column: &str| -> Option<i64> {
        let p = &place.prefix;
        let text = format!(
            "SELECT s.{column} FROM {p}_state s JOIN {p}_job j ON j.id = s.id WHERE j.name = '{name}'"
        );
        sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(&mut conn).await.unwrap()
    };
    assert_eq!(seen("lease_fence").await, Some(fence), "another session does not see the claim");
    let end = Operation::complete(name, fence, Cursor::Keep, Completion::Succeeded);
    assert!(send(sql, "n", STORE, end).await.unwrap().is_accepted());
    assert_eq!(seen("lease_fence").await, None, "another session does not see the end");
    create(sql, &format!("{name} stored"), NewSchedule::new("k", "d", None).data(b""), STORE)
        .await
        .unwrap();
    assert_eq!(get(sql, name).await.unwrap().kind, "");
}

#[test]
fn sessions_are_set_up_whatever_the_settings_of_a_mariadb() {
    let Some(mut server) = Server::start(Db::MySql) else { return };
    let init = format!("--init-connect={HOSTILE}");
    // As an option of the whole server, too.
    for (round, argument) in ["--autocommit=0", &init].into_iter().enumerate() {
        server.restart(&[argument]);
        let name = |job: &str| format!("{job} {round}");
        runtime().block_on(async {
            let place = server.place();
            let sql = patiently_opened(place.builder(), &place.url).await;
            works_durably(&place, &sql, &name("a")).await;
            let with_history = patiently_opened(place.builder().history(100), &place.url).await;
            works_durably(&place, &with_history, &name("b")).await;
            let mut conn = usual(&place).await;
            let noted = SESSION.map(|(name, _)| format!("('{name}', @@SESSION.{name})")).join(", ");
            for text in [
                "CREATE TABLE noted (name VARCHAR(99), value VARCHAR(99))".to_owned(),
                format!(
                    "CREATE TRIGGER note AFTER INSERT ON {}_state FOR EACH ROW \
                     INSERT INTO noted VALUES {noted}",
                    place.prefix
                ),
            ] {
                conn.execute(AssertSqlSafe(text)).await.unwrap();
            }
            create(&sql, &name("c"), NewSchedule::new("k", "d", None), STORE).await.unwrap();
            let text = "SELECT name, value FROM noted";
            let noted: Vec<(String, String)> =
                sqlx::query_as(text).fetch_all(&mut conn).await.unwrap();
            let expected = SESSION.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(noted, expected);
            for text in ["DROP TRIGGER note", "DROP TABLE noted"] {
                conn.execute(text).await.unwrap();
            }
        });
    }
}

#[test]
fn a_mariadb_whose_prepared_statements_are_used_up_is_worked_with() {
    let Some(mut server) = Server::start(Db::MySql) else { return };
    server.restart(&["--max-prepared-stmt-count=0"]);
    runtime().block_on(async {
        let place = server.place();
        for history in [0, 100] {
            let builder = place.builder().history(history);
            let sql = patiently_opened(builder, &place.url).await;
            let read = send(&sql, "n", STORE, Operation::read("none")).await.unwrap();
            assert!(read.state().is_none());
            let name = format!("it's job {history}");
            let first: NextRun = from_millis(1_000).unwrap().into();
            let new = NewSchedule::new("k", "d?", Some(first)).data(b"\0'?\\\xff");
            let fence = create(&sql, &name, new, STORE).await.unwrap().fence;
            let claim = claim(1, fence, first, end_of_time().into());
            let claimed = send(&sql, "n", STORE, Operation::claim(&name, claim)).await.unwrap();
            let fence = claimed.claimed().unwrap().fence;
            let end = Operation::complete(&name, fence, Cursor::Keep, Completion::Succeeded);
            assert!(send(&sql, "n", STORE, end).await.unwrap().is_accepted());
            let state = get(&sql, &name).await.unwrap();
            assert_eq!(state.data, b"\0'?\\\xff");
        }
    });
}
