//! The databases the tests run on: SQLite in a temporary file, the others where the environment
//! says that there is one.

use allora_conformance::environment;
use allora_core::{ErrorKind, Runtime as _, runtime::Tokio};
use allora_sql::{Sql, SqlBuilder};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};
use std::{sync::OnceLock, time::Duration};
use tokio::runtime::Runtime;

/// One database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Db {
    Sqlite,
    Postgres,
    MySql,
}

/// A set of tables nobody else uses.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) folder: Option<std::sync::Arc<tempfile::TempDir>>,
}

impl Db {
    /// A fresh place; `None`, with a line that says so, where this database is not to be had.
    pub(crate) fn place(self) -> Option<Place> {
        let (name, variable) = match self {
            Db::Sqlite => ("sqlite", ""),
            Db::Postgres => ("postgres", "ALLORA_TEST_POSTGRES_URL"),
            Db::MySql => ("mysql", "ALLORA_TEST_MYSQL_URL"),
        };
        if !environment::is_wanted(name) {
            return None;
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).unwrap();
        let prefix = format!("t{:016x}", u64::from_le_bytes(random));
        if self == Db::Sqlite {
            let folder = tempfile::tempdir().unwrap();
            let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
            return Some(Place { url, prefix, folder: Some(folder.into()) });
        }
        let url = environment::address(name, variable)?;
        Some(Place { url, prefix, folder: None })
    }
}

impl Place {
    /// Another set of tables in the same database.
    pub(crate) fn beside(&self, suffix: impl std::fmt::Display) -> Self {
        let prefix = format!("{}_{suffix}", self.prefix);
        Self { url: self.url.clone(), prefix, folder: self.folder.clone() }
    }

    /// The same tables.
    pub(crate) fn beside_nothing(&self) -> Self {
        Self { url: self.url.clone(), prefix: self.prefix.clone(), folder: self.folder.clone() }
    }

    /// The tables of this place.
    fn tables(&self) -> [String; 8] {
        let tables = ["job", "state", "rare", "data", "history", "change", "flag", "meta"];
        tables.map(|table| format!("{}_{table}", self.prefix))
    }

    /// Drops the tables, if there are any; a file goes with its folder.
    pub(crate) async fn clear(&self) {
        if !self.url.starts_with("sqlite") {
            self.execute(format!("DROP TABLE IF EXISTS {}", self.tables().join(", "))).await;
        }
    }

    /// Deletes every row. The tables stay.
    pub(crate) async fn empty(&self) {
        for table in self.tables() {
            self.execute(format!("DELETE FROM {table}")).await;
        }
    }

    pub(crate) async fn execute(&self, text: String) {
        self.execute_all([text]).await;
    }

    /// Executes statements on one connection.
    pub(crate) async fn execute_all(&self, texts: impl IntoIterator<Item = String>) {
        let statements = texts.into_iter().map(AssertSqlSafe);
        if self.url.starts_with("postgres") {
            let mut conn = PgConnection::connect(&self.url).await.unwrap();
            for statement in statements {
                conn.execute(statement).await.unwrap();
            }
        } else if self.url.starts_with("mysql") {
            let mut conn = MySqlConnection::connect(&self.url).await.unwrap();
            for statement in statements {
                conn.execute(statement).await.unwrap();
            }
        } else {
            let mut conn = SqliteConnection::connect(&self.url).await.unwrap();
            for statement in statements {
                conn.execute(statement).await.unwrap();
            }
        }
    }

    pub(crate) fn builder(&self) -> SqlBuilder {
        // Statements that the machine delays are no concern of these tests.
        Sql::builder().prefix(&self.prefix).store_timeout(Duration::from_secs(30))
    }

    pub(crate) async fn open(&self) -> Sql {
        self.builder().connect(&self.url).await.unwrap()
    }
}

/// Stamps a test for each database.
macro_rules! on_every_database {
    ($($name:ident)*) => {$(
        mod $name {
            #[test]
            fn sqlite() {
                crate::stores::on($crate::stores::Db::Sqlite, super::$name);
            }
            #[test]
            fn postgres() {
                crate::stores::on($crate::stores::Db::Postgres, super::$name);
            }
            #[test]
            fn mysql() {
                crate::stores::on($crate::stores::Db::MySql, super::$name);
            }
        }
    )*};
}

pub(crate) use on_every_database;

/// Runs a test on a fresh place of this database.
pub(crate) fn on(db: Db, test: impl AsyncFnOnce(Place)) {
    if let Some(place) = db.place() {
        runtime().block_on(async {
            let tables = place.beside_nothing();
            test(place).await;
            tables.clear().await;
        });
    }
}

/// The runtime of all tests that do not ask for another.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

/// Opens a store whose server may still be starting.
pub(crate) async fn patiently_opened(builder: SqlBuilder, url: &str) -> Sql {
    for _ in 0..600 {
        match builder.clone().connect(url).await {
            Ok(sql) => return sql,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        }
        pause(100).await;
    }
    panic!("{url} does not answer");
}

/// Lets real time pass: databases have clocks of their own.
pub(crate) async fn pause(ms: u64) {
    let runtime = Tokio::current().unwrap();
    runtime.sleep_until(runtime.now() + Duration::from_millis(ms)).await;
}
