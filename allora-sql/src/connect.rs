//! How a store is opened: by a URL, with a builder, or over a pool that is there already.

use crate::{
    Sql, Url,
    dialect::{Dialect, Flavour},
    driver::Driver,
    migrate::Migrate,
    store::Store,
    url::System,
};
use allora_core::{Error, Kind, Result};
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
    /// to each other. `^[a-z_][a-z0-9_]{0,39}$`; `allora` unless given.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// At most so many connections, 1 to 1000; 5 unless given. SQLite has one more, for writing;
    /// PostgreSQL has one more for the hints of each scheduler. Not used with a pool that is given.
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// How long to wait for a connection, 100 ms to 10 min; 5 s unless given. Not used with a pool
    /// that is given.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Keeps the newest `entries` of history; 0 keeps none, which is the default. A tenth more may
    /// be there for a while. With history on, takes cost one transaction a batch and not one
    /// statement.
    pub fn history(mut self, entries: u64) -> Self {
        self.history = entries;
        self
    }

    /// Does not touch the tables' definitions: for a role that may not create tables. Whatever is
    /// missing is an error then.
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

    /// As [`connect`](Self::connect), with a URL that was read already.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_to(self, url: Url) -> Result<Sql> {
        self.check()?;
        let (driver, flavour) = self.driver(&url).await?;
        self.open(driver, None, flavour, url).await
    }

    /// Works over a pool that is there already, [and beside it](crate#a-pool-that-is-given). Its
    /// sessions are used as they are; what they must not be is refused: an SQLite without WAL and `synchronous = FULL`.
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
        let leases = driver(crate::driver::beside(&pool, 1));
        let flavour = Arc::new(crate::dialect::sqlite::SqliteFlavour);
        self.open(driver(pool), Some(leases), flavour, url).await
    }

    /// Works over a pool that is there already, [and beside it](crate#a-pool-that-is-given). Its
    /// sessions are used as they are; what they must not be is refused: a PostgreSQL with `synchronous_commit` off.
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
        let leases = driver(crate::driver::beside(&pool, 1));
        let flavour = Arc::new(crate::dialect::postgres::PostgresFlavour);
        self.open(driver(pool), Some(leases), flavour, url).await
    }

    /// Works over a pool that is there already, [and beside it](crate#a-pool-that-is-given). Its
    /// sessions are used as they are; what they must not be is refused: a MySQL session whose time zone is not `+00:00` (sqlx sets it so).
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
        let leases = driver(crate::driver::beside(&pool, 1));
        let flavour = Arc::new(crate::dialect::mysql::MySqlFlavour);
        self.open(driver(pool), Some(leases), flavour, url).await
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
            let wrong = format!("a connect time-out of {asked:?}; give 100 ms to 10 min");
            return Err(Error::invalid(wrong).op("connect"));
        }
        if i64::try_from(self.history).is_err() {
            let wrong = format!("{} entries of history; give at most {}", self.history, i64::MAX);
            return Err(Error::invalid(wrong).op("connect"));
        }
        Ok(())
    }

    async fn open(
        self,
        driver: Box<dyn Driver>,
        leases: Option<Box<dyn Driver>>,
        flavour: Arc<dyn Flavour>,
        place: Url,
    ) -> Result<Sql> {
        let caveat = driver.inspect().await?;
        let dialect = Dialect { prefix: self.prefix, flavour };
        let store = |driver| Store {
            driver,
            dialect: dialect.clone(),
            place: place.clone(),
            history: self.history,
            noted: AtomicU64::new(0),
        };
        let leases = leases.map(|driver| Arc::new(store(driver)));
        if let Some(leases) = &leases {
            // Made now: an extension has no time to lose.
            leases.time("connect").await?;
        }
        let store = Arc::new(store(driver));
        store.open(self.migrate).await?;
        Ok(Sql { leases: leases.unwrap_or_else(|| store.clone()), store, caveat })
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

/// Opens a pool. A pool tries again where nobody listens, until its time is up, and then does not
/// say why; one connection beside it does.
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

/// Whether the two could not agree on TLS. What the library for TLS finds wrong with a certificate
/// comes as data that an I/O error calls invalid.
fn is_tls(cause: &sqlx::Error) -> bool {
    match cause {
        sqlx::Error::Tls(_) => true,
        sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}

/// Why nobody could connect, and what to do about it.
fn refused(url: &Url, cause: sqlx::Error) -> Error {
    let code = cause.as_database_error().and_then(|error| error.code().map(|c| c.into_owned()));
    let (kind, said) = match (&cause, code.as_deref()) {
        (_, Some("28P01" | "28000")) => {
            (Kind::Invalid, format!("{url} refused the user or the password"))
        }
        (_, Some("3D000" | "42000")) => {
            (Kind::Invalid, format!("{url} has no such database, or not for this user"))
        }
        _ if is_tls(&cause) => (
            Kind::Invalid,
            format!(
                "{url} could not be verified by TLS: is the name the certificate's, and its \
                 authority known, or named by ca=FILE? tls=off in the URL is plain text"
            ),
        ),
        (sqlx::Error::PoolTimedOut, _) => {
            (Kind::Unavailable, format!("{url} did not answer within the connect time-out"))
        }
        (sqlx::Error::Io(_), _) => (Kind::Unavailable, format!("{url} cannot be reached")),
        (_, Some("8" | "1032" | "1288")) => {
            (Kind::Invalid, format!("{url} may only be read; a store must be written"))
        }
        (_, Some("14")) => {
            (Kind::Invalid, format!("{url} cannot be opened or made; is its folder there?"))
        }
        (_, Some("26")) => (Kind::Invalid, format!("{url} is not an SQLite database")),
        _ => (Kind::Unavailable, format!("{url} could not be opened")),
    };
    Error::new(kind, said).op("connect").source(cause)
}
