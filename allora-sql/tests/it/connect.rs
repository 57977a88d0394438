//! Opening a store: what can be wrong with the address, the server, the tables.

use crate::{
    calls::{create, get},
    stores::{Db, Place, on, on_every_database, pause},
};
use allora_core::{
    Backend, ErrorKind, Runtime as _,
    backend::{NewSchedule, Page, TimeSource},
    runtime::Tokio,
    time::from_millis,
};
use allora_sql::{Sql, SqlxPool as _};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};
use std::time::Duration;

on_every_database! {
    opening_twice_changes_nothing
    nodes_that_open_at_once_agree
    a_newer_schema_is_refused_with_both_versions
    a_missing_index_is_named_and_restored_by_a_migration
    a_missing_history_is_named_and_made_again_by_a_migration
    a_missing_table_is_named
    tables_that_are_not_there_are_not_made_unasked
    two_prefixes_are_invisible_to_each_other
    rows_of_the_first_release_are_read
}

/// Runs a statement of the test's own.
pub(crate) async fn run(place: &Place, text: &str) -> sqlx::Result<()> {
    let text = AssertSqlSafe(text.replace("{p}", &place.prefix));
    if place.url.starts_with("postgres") {
        PgConnection::connect(&place.url).await?.execute(text).await?;
    } else if place.url.starts_with("mysql") {
        MySqlConnection::connect(&place.url).await?.execute(text).await?;
    } else {
        SqliteConnection::connect(&place.url).await?.execute(text).await?;
    }
    Ok(())
}

async fn refused(place: &Place) -> (ErrorKind, String) {
    match place.builder().connect(&place.url).await {
        Ok(sql) => panic!("{sql:?} was opened"),
        Err(error) => (error.kind(), format!("{error}")),
    }
}

async fn opening_twice_changes_nothing(place: Place) {
    let first = place.open().await;
    let now = TimeSource::Fixed(from_millis(5_000).unwrap());
    let new = NewSchedule::new("mail", "def", None).data(&[0, 255]);
    let state = create(&first, "a", new, now).await.unwrap();
    let second = place.builder().without_migrations().connect(&place.url).await.unwrap();
    assert_eq!(get(&second, "a").await.unwrap(), state);
}

async fn nodes_that_open_at_once_agree(place: Place) {
    let opened = futures::future::join_all((0..6).map(|_| place.open())).await;
    for sql in opened {
        assert!(sql.queries().unwrap().list(Page::first(1)).await.unwrap().is_empty());
    }
}

/// SQLite turns the WAL of a new file on with its first connection, and does not wait for the lock.
#[test]
fn a_new_sqlite_file_that_another_process_writes_is_opened_when_it_is_free() {
    on(Db::Sqlite, async |place: Place| {
        let mut writer =
            SqliteConnection::connect(&format!("{}?mode=rwc", place.url)).await.unwrap();
        writer.execute("BEGIN IMMEDIATE").await.unwrap();
        let impatient = place.builder().connect_timeout(Duration::from_millis(100));
        let error = impatient.connect(&place.url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("keeps the write lock"), "{error}");

        let patient = place.builder().connect_timeout(Duration::from_secs(60));
        let free = async {
            pause(100).await;
            writer.execute("COMMIT").await.unwrap();
        };
        let (opened, ()) = futures::join!(patient.connect(&place.url), free);
        opened.unwrap();
    });
}

async fn a_newer_schema_is_refused_with_both_versions(place: Place) {
    place.open().await;
    run(&place, "UPDATE {p}_meta SET value = 99").await.unwrap();
    let (kind, said) = refused(&place).await;
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(said.contains("version 99") && said.contains("knows version 1"), "{said}");
}

async fn a_missing_index_is_named_and_restored_by_a_migration(place: Place) {
    place.open().await;
    let drop = if place.url.starts_with("mysql") {
        "DROP INDEX {p}_state_index_at ON {p}_state"
    } else {
        "DROP INDEX {p}_state_index_at"
    };
    run(&place, drop).await.unwrap();
    let checked = async || place.builder().without_migrations().connect(&place.url).await;
    let error = checked().await.unwrap_err();
    let said = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(said.contains("_state_index_at") && said.contains("with migrations on"), "{said}");
    place.open().await;
    checked().await.unwrap();
}

async fn a_missing_table_is_named(place: Place) {
    place.open().await;
    run(&place, "DROP TABLE {p}_data").await.unwrap();
    let (kind, said) = refused(&place).await;
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(said.contains("_data"), "{said}");
}

async fn a_missing_history_is_named_and_made_again_by_a_migration(place: Place) {
    let before = place.open().await;
    let now = TimeSource::Fixed(from_millis(5_000).unwrap());
    create(&before, "a", NewSchedule::new("mail", "def", None), now).await.unwrap();
    run(&place, "DROP TABLE {p}_history").await.unwrap();
    let checked = async || place.builder().without_migrations().connect(&place.url).await;
    let error = checked().await.unwrap_err();
    let said = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(said.contains("_history") && said.contains("with migrations on"), "{said}");
    let again = place.open().await;
    checked().await.unwrap();
    assert_eq!(get(&again, "a").await.unwrap().kind, "mail");
}

async fn tables_that_are_not_there_are_not_made_unasked(place: Place) {
    let error = place.builder().without_migrations().connect(&place.url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("migrations"), "{error}");
}

async fn two_prefixes_are_invisible_to_each_other(place: Place) {
    let other = place.beside("b");
    let (first, second) = (place.open().await, other.open().await);
    let now = TimeSource::Fixed(from_millis(5_000).unwrap());
    let new = NewSchedule::new("mail", "def", None);
    create(&first, "a", new, now).await.unwrap();
    assert_eq!(get(&second, "a").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_ne!(first.namespace(), second.namespace());
    other.clear().await;
}

/// Rows as version 1 wrote them: every later version must read them.
async fn rows_of_the_first_release_are_read(place: Place) {
    let sql = place.open().await;
    let blob = |text: &str| {
        let hex: String = text.bytes().map(|b| format!("{b:02x}")).collect();
        if place.url.starts_with("postgres") { format!("'\\x{hex}'") } else { format!("X'{hex}'") }
    };
    let more = concat!(
        r#"{"v":1,"kind":"","definition":"","version":0,"incarnation":0,"generation":0,"#,
        r#""fence":0,"cursor":null,"last_started":null,"#,
        r#""triggers":[{"scheduled_at":8,"trigger":"t"}]}"#
    );
    let dead = concat!(
        r#"{"v":1,"kind":"","definition":"","version":0,"incarnation":0,"generation":0,"#,
        r#""fence":0,"cursor":null,"last_started":null,"#,
        r#""dead":[{"occurrence":{"scheduled_at":7},"attempts":2,"died_at":9,"error":"e"}]}"#
    );
    let job = format!(
        "INSERT INTO {{p}}_job VALUES (5, {a}, 4, {mail}, {def}, 2, 4, NULL)",
        a = blob("a"),
        mail = blob("mail"),
        def = blob("def"),
    );
    run(&place, &job).await.unwrap();
    let row = format!(
        "INSERT INTO {{p}}_state VALUES (5, 12, 77, 8, 8, {mail}, 2, 3, \
         60000, 61000, 5000, {node}, {claim}, 77, 5000, 1, 6000, 7000, 9000, 0, 70, 0, {failed}, {boom}, \
         9, 8, 7, 6, 5, NULL, 3, 2, NULL)",
        mail = blob("mail"),
        node = blob("n1"),
        claim = blob("0123456789abcdef"),
        failed = blob("failed"),
        boom = blob("boom"),
    );
    run(&place, &row).await.unwrap();
    let rare = format!("INSERT INTO {{p}}_rare VALUES (5, {}, {})", blob(more), blob(dead));
    run(&place, &rare).await.unwrap();
    let data = format!("INSERT INTO {{p}}_data VALUES (5, 4, {})", blob("payload"));
    run(&place, &data).await.unwrap();
    let again = place.open().await;
    let state = get(&again, "a").await.unwrap();
    assert_eq!((state.kind.as_str(), state.data.as_slice()), ("mail", &b"payload"[..]));
    assert_eq!(state.head.unwrap().trigger.as_deref(), Some("t"));
    assert_eq!(state.next.unwrap().due_at, from_millis(61_000).unwrap());
    let lease = &state.leases[0];
    assert_eq!((lease.fence, lease.node.as_str()), (77, "n1"));
    let times = [6_000, 7_000].map(|ms| from_millis(ms).unwrap());
    assert_eq!([lease.due_at, lease.started_at], times);
    assert_eq!(state.last, Some(allora_core::backend::Outcome::Failed("boom".into())));
    assert_eq!((state.counters.started, state.counters.expired), (9, 2));
    assert_eq!((state.counters.missed, state.dead[0].error.as_str()), (0, "e"));
    drop(sql);
}

#[test]
fn wrong_settings_are_refused_before_anything_is_asked() {
    on(Db::Sqlite, async |place| {
        for prefix in ["", "A", "1a", "a-b", "a b", "a\"; DROP TABLE x; --", &"a".repeat(41)] {
            let error = Sql::builder().prefix(prefix).connect(&place.url).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{prefix:?}");
        }
        Sql::builder().prefix("a".repeat(40)).connect(&place.url).await.unwrap();
        assert!(Sql::builder().connections(0).connect(&place.url).await.is_err());
        let never = Duration::ZERO;
        assert!(Sql::builder().connect_timeout(never).connect(&place.url).await.is_err());
    });
}

#[test]
fn errors_of_files_that_cannot_be_a_store_differ() {
    on(Db::Sqlite, async |place| {
        let folder = place.folder.as_ref().unwrap().path();
        let said = |error: allora_core::Error| error.to_string();
        let open = async |name: &str| {
            said(
                Sql::connect(&format!("sqlite:{}", folder.join(name).display())).await.unwrap_err(),
            )
        };
        std::fs::create_dir(folder.join("dir")).unwrap();
        assert!(open("dir").await.contains("is a directory"));
        std::fs::write(folder.join("text"), "x".repeat(5000)).unwrap();
        assert!(open("text").await.contains("not an SQLite database"));
        std::fs::write(folder.join("ro"), "").unwrap();
        let mut rights = std::fs::metadata(folder.join("ro")).unwrap().permissions();
        rights.set_readonly(true);
        std::fs::set_permissions(folder.join("ro"), rights).unwrap();
        assert!(open("ro").await.contains("may only be read"));
        assert!(open("none/jobs.db").await.contains("is its folder there"));
    });
}

#[test]
fn refusals_of_servers_differ_and_show_no_password() {
    for db in [Db::Postgres, Db::MySql] {
        on(db, async |place| {
            let secret = "s3ntinel";
            let (login, rest) = place.url.split_once('@').unwrap();
            let user = login.rsplit_once(':').unwrap().0;
            let (host, _) = rest.split_once('/').unwrap();
            for (url, wanted, kind) in [
                (format!("{user}:{secret}@{rest}"), "refused the user", ErrorKind::Invalid),
                (
                    format!("{login}@{host}/no_such_database"),
                    "no such database",
                    ErrorKind::Invalid,
                ),
                (
                    format!("{user}:{secret}@127.0.0.1:1/x"),
                    "cannot be reached",
                    ErrorKind::Unavailable,
                ),
                // A place that nobody answers from: addresses set apart for documentation.
                (format!("{user}:{secret}@192.0.2.1/x?tls=off"), "", ErrorKind::Unavailable),
                (format!("{login}@{rest}?tls=verify-full"), "TLS", ErrorKind::Invalid),
                (format!("{login}@{rest}?tls=require"), "TLS", ErrorKind::Invalid),
            ] {
                let is_reached = kind != ErrorKind::Unavailable;
                let timeout = Duration::from_secs(if is_reached { 60 } else { 2 });
                let opened = Sql::builder().connect_timeout(timeout).connect(&url).await;
                let error = opened.unwrap_err();
                let mut all = format!("{error} {error:?}");
                let mut cause = std::error::Error::source(&error);
                while let Some(error) = cause {
                    all = format!("{all} {error} {error:?}");
                    cause = error.source();
                }
                assert!(!all.contains(secret), "{all}");
                assert!(error.to_string().contains(wanted), "{wanted}: {error}: {all}");
                assert_eq!(error.kind(), kind, "{all}");
            }
            let sql = place.open().await;
            assert!(!format!("{sql:?}").contains(":allora@"), "{sql:?}");
        });
    }
}

/// The errors of opening the store at this address by its URL and over a pool, and the longest time
/// that took.
async fn opened_at(port: u16, timeout: Duration) -> (Vec<String>, Duration) {
    let (mut errors, mut longest) = (Vec::new(), Duration::ZERO);
    for (system, by_pool) in
        [("postgres", false), ("postgres", true), ("mysql", false), ("mysql", true)]
    {
        let url = format!("{system}://app:s3cret@127.0.0.1:{port}/jobs");
        let builder = Sql::builder().connect_timeout(timeout);
        let began = Tokio::current().unwrap().now();
        let opened = match (system, by_pool) {
            ("postgres", true) => {
                let pool = sqlx::PgPool::connect_lazy(&url).unwrap();
                builder.postgres_pool(pool).await
            }
            ("mysql", true) => {
                let pool = sqlx::MySqlPool::connect_lazy(&url).unwrap();
                builder.mysql_pool(pool).await
            }
            _ => builder.connect(&url).await,
        };
        let error = opened.unwrap_err();
        longest = longest.max(Tokio::current().unwrap().now() - began);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        errors.push(format!("{error:#}"));
    }
    (errors, longest)
}

#[test]
fn a_port_at_which_no_server_listens_is_reported_as_refused() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    crate::stores::runtime().block_on(async {
        // Long enough that a wait for the whole time would be noticed.
        let timeout = Duration::from_secs(120);
        let (errors, took) = opened_at(port, timeout).await;
        assert!(took < timeout / 2, "{took:?}");
        for error in errors {
            assert!(error.contains("refuses connections"), "{error}");
            assert!(!error.contains("did not answer") && !error.contains("s3cret"), "{error}");
        }
    });
}

#[test]
fn a_server_that_never_answers_is_reported_within_the_connect_timeout() {
    // Connections to it are accepted by the system, and never read.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    crate::stores::runtime().block_on(async {
        let (errors, took) = opened_at(port, Duration::from_millis(500)).await;
        // The pools themselves would wait for 30 s.
        assert!(took < Duration::from_secs(20), "{took:?}");
        for error in errors {
            assert!(error.contains("did not answer within the connect timeout"), "{error}");
        }
    });
}

on_every_database! {
    a_ping_says_that_the_database_answers
    a_missing_privilege_is_named_with_the_other_way
}

async fn a_ping_says_that_the_database_answers(place: Place) {
    let sql = place.open().await;
    sql.ping(Duration::from_secs(30)).await.unwrap();
    sql.close().await;
    let error = sql.ping(Duration::from_secs(30)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

/// SQLite has no users.
async fn a_missing_privilege_is_named_with_the_other_way(place: Place) {
    let user = format!("u{}", &place.prefix[..12]);
    let Some((login, rest)) = place.url.split_once('@') else { return };
    let (_, database) = rest.split_once('/').unwrap();
    let database = database.split('?').next().unwrap();
    let (make, drop) = if login.starts_with("postgres") {
        (
            vec![
                format!("CREATE ROLE {user} LOGIN PASSWORD 'pw'"),
                "REVOKE CREATE ON SCHEMA public FROM PUBLIC".to_owned(),
            ],
            format!("DROP OWNED BY {user}; DROP ROLE {user}"),
        )
    } else {
        (
            vec![
                format!("CREATE USER {user} IDENTIFIED BY 'pw'"),
                format!("GRANT SELECT ON {database}.* TO {user}"),
            ],
            format!("DROP USER {user}"),
        )
    };
    for statement in make {
        run(&place, &statement).await.unwrap();
    }
    let scheme = login.split(':').next().unwrap();
    let opened = place.builder().connect(&format!("{scheme}://{user}:pw@{rest}")).await;
    let without_right = opened.unwrap_err();
    place.open().await;
    let opened = place.builder().without_migrations();
    let opened = opened.connect(&format!("{scheme}://{user}:pw@{rest}")).await;
    run(&place, &drop).await.unwrap();
    let text = without_right.to_string();
    assert_eq!(without_right.kind(), ErrorKind::Invalid, "{text}");
    assert!(text.contains("may not make") && text.contains("without_migrations"), "{text}");
    if scheme == "mysql" {
        // This one may read the tables.
        let store = opened.unwrap();
        let now = TimeSource::Fixed(from_millis(5_000).unwrap());
        let new = NewSchedule::new("mail", "def", None);
        let error = create(&store, "a", new, now).await.unwrap_err();
        assert!(error.to_string().contains("grant SELECT, INSERT"), "{error}");
    } else {
        let error = opened.unwrap_err();
        assert!(format!("{error:#}").contains("grant SELECT, INSERT"), "{error:#}");
    }
}
