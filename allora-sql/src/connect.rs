//! Opening a store: by a URL, with a builder, or over a pool of the application.

use crate::{
    Sql, Url,
    client::Client,
    dialect::{Dialect, Flavour},
    driver::Driver,
    error::refused,
    migrate::Migrate,
    url::System,
};
use allora_core::{Error, Result, backend::TimeSource};
use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

/// Opens a store; see [`Sql::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    prefix: String,
    connections: u32,
    timeout: Duration,
    history: u64,
    migrate: Migrate,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            prefix: "allora".into(),
            connections: 5,
            timeout: Duration::from_secs(5),
            history: 0,
            migrate: Migrate::Yes,
        }
    }
}

impl Builder {
    /// The first part of the tables' names, and the store's namespace: two prefixes are invisible
    /// to each other. `^[a-z_][a-z0-9_]{0,39}$`. Default: `allora`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The most connections. Default: 5. Range: 1 to 1000. SQLite has one more, for writing;
    /// PostgreSQL has one more for the notifications of each scheduler. Not used with a given pool.
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// The longest wait for a connection. Default: 5 s. Range: 100 ms to 10 min. Not used with a
    /// given pool.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Keeps the newest `entries` of history. Default: 0, which keeps none. A tenth more may be there
    /// for a while. With history on, a batch of claims costs a read and a commit instead of one
    /// statement.
    pub fn history(mut self, entries: u64) -> Self {
        self.history = entries;
        self
    }

    /// Does not change the tables' definitions: for a role that may not create tables. A missing table
    /// or index is an error then.
    pub fn without_migrations(mut self) -> Self {
        self.migrate = Migrate::No;
        self
    }

    /// Connects, brings the tables up to date, and checks them.
    ///
    /// # Errors
    /// `Invalid` for a bad URL or setting, a database whose feature is off, tables of a newer
    /// version, tables or indexes that are missing, a server that cannot keep the promises.
    /// `Unavailable` if the database does not answer in time or refuses the login. The message
    /// names the URL without its password.
    ///
    /// # Cancel safety
    /// A dropped call may have created tables; connecting again goes on from there.
    pub async fn connect(self, url: &str) -> Result<Sql> {
        self.connect_to(Url::parse(url)?).await
    }

    /// As [`connect`](Self::connect), with a parsed URL.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_to(self, url: Url) -> Result<Sql> {
        self.check()?;
        let (driver, flavour) = self.driver(&url).await?;
        self.open(driver, None, flavour, url).await
    }

    /// Works over a pool of the application, [and beside it](crate#a-given-pool). Its sessions are
    /// used as they are. Refused: an SQLite without WAL and `synchronous = FULL`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    #[cfg(feature = "sqlite")]
    pub async fn sqlite_pool(self, pool: sqlx::SqlitePool) -> Result<Sql> {
        self.check()?;
        let file = pool.connect_options().get_filename().to_string_lossy().into_owned();
        let url = Url::of_pool(System::Sqlite, file);
        let driver = |pool: sqlx::SqlitePool| -> Box<dyn Driver> {
            Box::new(crate::driver::sqlite::SqliteDriver { writer: pool.clone(), readers: pool })
        };
        let beside = driver(crate::driver::beside(&pool, 1));
        let flavour = Arc::new(crate::dialect::sqlite::SqliteFlavour);
        self.open(driver(pool), Some(beside), flavour, url).await
    }

    /// Works over a pool of the application, [and beside it](crate#a-given-pool). Its sessions are
    /// used as they are. Refused: a PostgreSQL with `synchronous_commit` off.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    #[cfg(feature = "postgres")]
    pub async fn postgres_pool(self, pool: sqlx::PgPool) -> Result<Sql> {
        self.check()?;
        let database = pool.connect_options().get_database().unwrap_or_default().to_owned();
        let url = Url::of_pool(System::Postgres, database);
        let driver = |pool| -> Box<dyn Driver> {
            Box::new(crate::driver::postgres::PostgresDriver::new(pool))
        };
        let beside = driver(crate::driver::beside(&pool, 1));
        let flavour = Arc::new(crate::dialect::postgres::PostgresFlavour);
        self.open(driver(pool), Some(beside), flavour, url).await
    }

    /// Works over a pool of the application, [and beside it](crate#a-given-pool). Its sessions are
    /// used as they are. Refused: a MySQL session whose time zone is not `+00:00` (sqlx sets it so).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    #[cfg(feature = "mysql")]
    pub async fn mysql_pool(self, pool: sqlx::MySqlPool) -> Result<Sql> {
        self.check()?;
        let database = pool.connect_options().get_database().unwrap_or_default().to_owned();
        let url = Url::of_pool(System::MySql, database);
        let driver = |pool| -> Box<dyn Driver> {
            Box::new(crate::driver::mysql::MySqlDriver { pool, ours: false })
        };
        let beside = driver(crate::driver::beside(&pool, 1));
        let flavour = Arc::new(crate::dialect::mysql::MySqlFlavour);
        self.open(driver(pool), Some(beside), flavour, url).await
    }

    fn check(&self) -> Result {
        let prefix = self.prefix.as_bytes();
        let first = prefix.first().is_some_and(|b| b.is_ascii_lowercase() || *b == b'_');
        let rest = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
        if !first || prefix.len() > 40 || !prefix.iter().all(rest) {
            let shown: String = self.prefix.chars().take(40).collect();
            return Err(Error::invalid(format!(
                "the prefix {shown:?} is not 1 to 40 of a-z, 0-9 and _ that begin with no digit"
            ))
            .op("connect"));
        }
        if !(1..=1000).contains(&self.connections) {
            let asked = self.connections;
            return Err(
                Error::invalid(format!("{asked} connections; give 1 to 1000")).op("connect")
            );
        }
        let range = Duration::from_millis(100)..=Duration::from_secs(600);
        if !range.contains(&self.timeout) {
            let asked = self.timeout;
            let wrong = format!("a connect timeout of {asked:?}; give 100 ms to 10 min");
            return Err(Error::invalid(wrong).op("connect"));
        }
        if i64::try_from(self.history).is_err() {
            let wrong = format!("{} history entries; give at most {}", self.history, i64::MAX);
            return Err(Error::invalid(wrong).op("connect"));
        }
        Ok(())
    }

    async fn open(
        self,
        driver: Box<dyn Driver>,
        beside: Option<Box<dyn Driver>>,
        flavour: Arc<dyn Flavour>,
        place: Url,
    ) -> Result<Sql> {
        let durability_warning = driver.inspect().await?;
        let client = Client {
            driver,
            beside,
            dialect: Dialect { prefix: self.prefix, flavour },
            place,
            history_limit: self.history,
            appended: AtomicU64::new(0),
        };
        if client.beside.is_some() {
            // Connected now: an extension has no time to lose.
            let time = TimeSource::Store { fallback: allora_core::time::end_of_time() };
            client.now("connect", time).await?;
        }
        client.open(self.migrate).await?;
        Ok(Sql { client: Arc::new(client), durability_warning })
    }

    async fn driver(&self, url: &Url) -> Result<(Box<dyn Driver>, Arc<dyn Flavour>)> {
        match url.system {
            #[cfg(feature = "sqlite")]
            System::Sqlite => self.sqlite(url).await,
            #[cfg(feature = "postgres")]
            System::Postgres => self.postgres(url).await,
            #[cfg(feature = "mysql")]
            System::MySql => self.mysql(url).await,
            #[allow(unreachable_patterns, reason = "every feature may be on")]
            system => Err(Error::invalid(format!(
                "{url} needs the feature {:?} of allora, which is off",
                match system {
                    System::Sqlite => "sqlite",
                    System::Postgres => "postgres",
                    System::MySql => "mysql",
                }
            ))
            .op("connect")),
        }
    }
}

#[cfg(feature = "sqlite")]
impl Builder {
    async fn sqlite(&self, url: &Url) -> Result<(Box<dyn Driver>, Arc<dyn Flavour>)> {
        use sqlx::sqlite::{
            SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
        };
        let path = std::path::Path::new(&url.database);
        if path.is_dir() {
            let wrong = format!("{url} is a directory; name a file in it");
            return Err(Error::invalid(wrong).op("connect"));
        }
        if std::fs::metadata(path).is_ok_and(|file| file.permissions().readonly()) {
            let wrong = format!("{url} may only be read; a store must be written");
            return Err(Error::invalid(wrong).op("connect"));
        }
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .busy_timeout(Duration::from_secs(5))
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        let pool = |connections| {
            SqlitePoolOptions::new().max_connections(connections).acquire_timeout(self.timeout)
        };
        let opened = pool(1).connect_with(options.clone()).await;
        let writer = opened.map_err(|cause| refused(url, cause))?;
        let readers = pool(self.connections).connect_lazy_with(options);
        let driver = crate::driver::sqlite::SqliteDriver { writer, readers };
        Ok((Box::new(driver), Arc::new(crate::dialect::sqlite::SqliteFlavour)))
    }
}

#[cfg(feature = "postgres")]
impl Builder {
    async fn postgres(&self, url: &Url) -> Result<(Box<dyn Driver>, Arc<dyn Flavour>)> {
        use crate::{driver::postgres::SESSION, url::Tls};
        use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
        let mut options = PgConnectOptions::new_without_pgpass()
            .database(&url.database)
            .application_name("allora")
            .ssl_mode(match url.tls {
                Tls::Off => PgSslMode::Disable,
                Tls::Require => PgSslMode::Require,
                Tls::VerifyCa => PgSslMode::VerifyCa,
                Tls::VerifyFull => PgSslMode::VerifyFull,
            });
        if let Some(port) = url.port {
            options = options.port(port);
        }
        options = match &url.socket {
            Some(socket) => options.socket(socket),
            None => options.host(&url.host),
        };
        if let Some(user) = &url.user {
            options = options.username(user);
        }
        if let Some(password) = &url.password {
            options = options.password(password);
        }
        if let Some(ca) = &url.ca {
            options = options.ssl_root_cert(ca);
        }
        let opening = PgPoolOptions::new()
            .max_connections(self.connections)
            .acquire_timeout(self.timeout)
            .after_connect(|conn, _| {
                Box::pin(async move {
                    sqlx::Executor::execute(conn, sqlx::raw_sql(SESSION)).await.map(drop)
                })
            })
            .connect_with(options.clone());
        let probe = <sqlx::PgConnection as sqlx::Connection>::connect_with(&options);
        let opened = either(opening, probe).await;
        let pool = opened.map_err(|cause| refused(url, cause))?;
        let driver = crate::driver::postgres::PostgresDriver::new(pool);
        Ok((Box::new(driver), Arc::new(crate::dialect::postgres::PostgresFlavour)))
    }
}

#[cfg(feature = "mysql")]
impl Builder {
    async fn mysql(&self, url: &Url) -> Result<(Box<dyn Driver>, Arc<dyn Flavour>)> {
        use crate::{driver::mysql::SESSION, url::Tls};
        use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions, MySqlSslMode};
        let mut options =
            MySqlConnectOptions::new().database(&url.database).ssl_mode(match url.tls {
                Tls::Off => MySqlSslMode::Disabled,
                Tls::Require => MySqlSslMode::Required,
                Tls::VerifyCa => MySqlSslMode::VerifyCa,
                Tls::VerifyFull => MySqlSslMode::VerifyIdentity,
            });
        if let Some(port) = url.port {
            options = options.port(port);
        }
        options = match &url.socket {
            Some(socket) => options.socket(socket),
            None => options.host(&url.host),
        };
        if let Some(user) = &url.user {
            options = options.username(user);
        }
        if let Some(password) = &url.password {
            options = options.password(password);
        }
        if let Some(ca) = &url.ca {
            options = options.ssl_ca(ca);
        }
        let opening = MySqlPoolOptions::new()
            .max_connections(self.connections)
            .acquire_timeout(self.timeout)
            .after_connect(|conn, _| {
                Box::pin(async move {
                    for text in SESSION {
                        sqlx::Executor::execute(&mut *conn, sqlx::raw_sql(*text)).await?;
                    }
                    Ok(())
                })
            })
            .connect_with(options.clone());
        let probe = <sqlx::MySqlConnection as sqlx::Connection>::connect_with(&options);
        let opened = either(opening, probe).await;
        let pool = opened.map_err(|cause| refused(url, cause))?;
        let driver = crate::driver::mysql::MySqlDriver { pool, ours: true };
        Ok((Box::new(driver), Arc::new(crate::dialect::mysql::MySqlFlavour)))
    }
}

/// Opens a pool. Where no server listens, a pool tries until its time is up, and then does not return
/// the reason; one connection beside it does.
#[cfg(any(feature = "postgres", feature = "mysql"))]
async fn either<P, C>(
    opening: impl Future<Output = sqlx::Result<P>>,
    probe: impl Future<Output = sqlx::Result<C>>,
) -> sqlx::Result<P> {
    use futures::future::{Either, select};
    match select(std::pin::pin!(probe), std::pin::pin!(opening)).await {
        Either::Left((Err(cause), _)) => Err(cause),
        Either::Left((Ok(_), opening)) => opening.await,
        Either::Right((opened, _)) => opened,
    }
}
