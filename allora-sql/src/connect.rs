//! Opening a store: by a URL, with a builder, or over a pool of the application.

use crate::{
    Sql, Url,
    client::{Client, Ids, Migrate},
    dialect::{Dialect, Flavour, LATER, Later},
    driver::{self, Connections, Driver},
    error::refused,
    frontier::Frontier,
    url::System,
};
use allora_core::{Error, Result, backend::HistoryLimits, store::HistoryPruning};
use std::{
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

/// The default number of history entries of each job.
const PER_JOB: u64 = 1_000;

/// Opens a store; see [`Sql::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct SqlBuilder {
    prefix: String,
    connections: u32,
    timeout: Duration,
    store_timeout: Duration,
    /// `None`: the default, which depends on the database.
    history: Option<HistoryLimits>,
    migrate: Migrate,
    /// The versions of the tables after the first. A test has others.
    pub(crate) later: &'static [Later],
}

impl Default for SqlBuilder {
    fn default() -> Self {
        Self {
            prefix: "allora".into(),
            connections: 5,
            timeout: Duration::from_secs(5),
            store_timeout: Duration::from_secs(1),
            history: None,
            migrate: Migrate::Yes,
            later: LATER,
        }
    }
}

impl SqlBuilder {
    /// The first part of the tables' names, and the store's namespace: two prefixes are invisible
    /// to each other. `^[a-z_][a-z0-9_]{0,39}$`. Default: `allora`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The most connections. Default: 5. Range: 1 to 1000. SQLite has one more, for writing;
    /// PostgreSQL has one more for the notifications of each scheduler.
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// The longest wait for a connection. Default: 5 s. Range: 100 ms to 10 min. `connect_timeout` in
    /// the URL replaces it. Not used with a given pool.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The scheduler's [`store_timeout`](allora_core::SchedulerBuilder::store_timeout): the server
    /// ends a statement that takes longer, because no caller waits for it any more. MySQL ends
    /// only those that read, SQLite none. Default: 1 s. Range: 10 ms to 60 s.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout;
        self
    }

    /// Keeps a history within these [limits](HistoryLimits). A number alone is that of each job's
    /// failures, and of its other entries; 0 keeps no history. Default: on PostgreSQL
    /// [`HistoryLimits::default`]; on SQLite and MySQL the same
    /// [without successes](HistoryLimits::without_successes), which would cost a whole worker up to a
    /// third of its throughput. With a history, a batch of completions is a transaction of two statements. On
    /// PostgreSQL it stays one statement, which also writes the entries.
    ///
    /// ```
    /// use allora::backend::HistoryLimits;
    /// use allora_sql::Sql;
    ///
    /// let builder = Sql::builder().history(500);
    /// let builder = Sql::builder().history(HistoryLimits::default().per_job(200));
    /// ```
    pub fn history(mut self, limits: impl Into<HistoryLimits>) -> Self {
        self.history = Some(limits.into());
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
    /// A connection whose server is not verified is logged as a
    /// [warning](Url::security_warning).
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
    pub async fn connect_to(mut self, url: Url) -> Result<Sql> {
        self.check()?;
        if let Some(timeout) = url.connect_timeout {
            self.timeout = timeout;
        }
        let warning = url.security_warning();
        if let Some(warning) = &warning {
            tracing::warn!(target: "allora", "{warning}");
        }
        let (driver, flavour) = self.driver(&url).await?;
        let store = self.open(driver, flavour, url).await?;
        Ok(Sql { security_warning: warning.map(Arc::from), ..store })
    }

    #[cfg(feature = "sqlite")]
    pub(crate) async fn with_sqlite_pool(self, pool: sqlx::SqlitePool) -> Result<Sql> {
        self.check()?;
        let file = pool.connect_options().get_filename().to_string_lossy().into_owned();
        let url = Url::of_pool(System::Sqlite, file);
        let writer = driver::like(&pool, 1, self.timeout);
        let readers = driver::like(&pool, self.connections, self.timeout);
        let driver = self.sqlite_driver(writer, readers, Some(pool));
        driver.open().await.map_err(|cause| refused(&url, cause))?;
        self.open(driver, Arc::new(crate::dialect::sqlite::SqliteFlavour), url).await
    }

    #[cfg(feature = "postgres")]
    pub(crate) async fn with_postgres_pool(self, pool: sqlx::PgPool) -> Result<Sql> {
        self.check()?;
        let options = pool.connect_options();
        let database = options.get_database().unwrap_or_default().to_owned();
        let url = Url::of_pool(System::Postgres, database);
        let source = driver::like(&pool, self.connections, self.timeout);
        let driver = self.postgres_driver(source, Some(pool));
        reach::<sqlx::PgConnection>(&*driver, &options, &url).await?;
        self.open(driver, Arc::new(crate::dialect::postgres::PostgresFlavour), url).await
    }

    #[cfg(feature = "mysql")]
    pub(crate) async fn with_mysql_pool(self, pool: sqlx::MySqlPool) -> Result<Sql> {
        self.check()?;
        let options = pool.connect_options();
        let database = options.get_database().unwrap_or_default().to_owned();
        let url = Url::of_pool(System::MySql, database);
        let source = driver::like(&pool, self.connections, self.timeout);
        let driver = self.mysql_driver(source, Some(pool));
        reach::<sqlx::MySqlConnection>(&*driver, &options, &url).await?;
        self.open(driver, Arc::new(crate::dialect::mysql::MySqlFlavour), url).await
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
        let range = Duration::from_millis(10)..=Duration::from_secs(60);
        if !range.contains(&self.store_timeout) {
            let asked = self.store_timeout;
            let wrong = format!("a store timeout of {asked:?}; give 10 ms to 60 s");
            return Err(Error::invalid(wrong).op("connect"));
        }
        let checked = self.history.map_or(Ok(()), |limits| limits.check());
        checked.map_err(|wrong| Error::invalid(wrong).op("connect"))
    }

    async fn open(
        self,
        driver: Box<dyn Driver>,
        flavour: Arc<dyn Flavour>,
        place: Url,
    ) -> Result<Sql> {
        let durability_warning = driver.inspect().await?;
        let limits = self.history.unwrap_or_else(|| match place.system() {
            System::Sqlite | System::MySql => HistoryLimits::default().without_successes(),
            System::Postgres => HistoryLimits::default(),
        });
        let history = HistoryPruning::new(limits, PER_JOB);
        let has_entries = history.is_on() && history.limits().successes;
        let client = Client {
            driver,
            dialect: Dialect { prefix: self.prefix, flavour, has_entries, later: self.later },
            place,
            migrate: self.migrate,
            history: Arc::new(history),
            ids: Ids::default(),
            leased: AtomicI64::new(0),
            frontier: Frontier::default(),
        };
        client.open(self.migrate).await?;
        Ok(Sql { client: Arc::new(client), durability_warning, security_warning: None })
    }

    /// A source of connections with these options.
    fn source<D: sqlx::Database>(
        &self,
        connections: u32,
        options: &<D::Connection as sqlx::Connection>::Options,
    ) -> sqlx::Pool<D> {
        let source = sqlx::pool::PoolOptions::new().max_connections(connections);
        source.acquire_timeout(self.timeout).connect_lazy_with(options.clone())
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

/// Opens a connection of the driver to a server.
#[cfg(any(feature = "postgres", feature = "mysql"))]
async fn reach<C: sqlx::Connection>(
    driver: &dyn Driver,
    options: &C::Options,
    url: &Url,
) -> Result {
    let opened = driver::unless_refused(driver.open(), C::connect_with(options)).await;
    opened.map_err(|cause| refused(url, cause))
}

/// The options with the address, the login and the certificates of a URL. Those of PostgreSQL and
/// MySQL have the same methods without a common trait, except `$ca`.
#[cfg(any(feature = "postgres", feature = "mysql"))]
macro_rules! with_server {
    ($options:expr, $url:expr, $ca:ident) => {{
        let (mut options, url) = ($options, $url);
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
            options = options.$ca(ca);
        }
        if let Some((certificate, key)) = &url.certificate {
            options = options.ssl_client_cert(certificate).ssl_client_key(key);
        }
        options
    }};
}

#[cfg(feature = "sqlite")]
impl SqlBuilder {
    async fn sqlite(&self, url: &Url) -> Result<(Box<dyn Driver>, Arc<dyn Flavour>)> {
        use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
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
            .busy_timeout(self.store_timeout)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        let (writer, readers) = (self.source(1, &options), self.source(self.connections, &options));
        let driver = self.sqlite_driver(writer, readers, None);
        let opened = driver::sqlite::open(&*driver, self.timeout).await;
        opened.map_err(|cause| refused(url, cause))?;
        Ok((driver, Arc::new(crate::dialect::sqlite::SqliteFlavour)))
    }

    fn sqlite_driver(
        &self,
        writer: sqlx::SqlitePool,
        readers: sqlx::SqlitePool,
        given: Option<sqlx::SqlitePool>,
    ) -> Box<dyn Driver> {
        let of = |source, connections| {
            let session = driver::sqlite::session(self.store_timeout);
            Connections::new(source, given.clone(), connections, self.store_timeout, session)
        };
        let file = driver::sqlite::DatabaseFile::new(writer.connect_options().get_filename());
        let (writer, readers) = (of(writer, 1), of(readers, self.connections));
        Box::new(driver::sqlite::SqliteDriver { writer, readers, file })
    }
}

#[cfg(feature = "postgres")]
impl SqlBuilder {
    async fn postgres(&self, url: &Url) -> Result<(Box<dyn Driver>, Arc<dyn Flavour>)> {
        use crate::url::Tls;
        use sqlx::postgres::{PgConnectOptions, PgSslMode};
        let mut options = PgConnectOptions::new_without_pgpass()
            .database(&url.database)
            .application_name(url.application_name.as_deref().unwrap_or("allora"))
            .ssl_mode(match url.tls {
                Tls::Off => PgSslMode::Disable,
                Tls::Prefer => PgSslMode::Prefer,
                Tls::Require => PgSslMode::Require,
                Tls::VerifyCa => PgSslMode::VerifyCa,
                Tls::VerifyFull => PgSslMode::VerifyFull,
            });
        options = with_server!(options, url, ssl_root_cert);
        if !url.options.is_empty() {
            options = options.options(url.options.iter().map(|(name, value)| (name, value)));
        }
        let driver = self.postgres_driver(self.source(self.connections, &options), None);
        reach::<sqlx::PgConnection>(&*driver, &options, url).await?;
        Ok((driver, Arc::new(crate::dialect::postgres::PostgresFlavour)))
    }

    fn postgres_driver(
        &self,
        source: sqlx::PgPool,
        given: Option<sqlx::PgPool>,
    ) -> Box<dyn Driver> {
        let listeners = driver::like(&source, 1_000, self.timeout);
        let session = driver::postgres::session(self.store_timeout);
        let connections =
            Connections::new(source, given, self.connections, self.store_timeout, session);
        Box::new(driver::postgres::PostgresDriver::new(connections, listeners))
    }
}

#[cfg(feature = "mysql")]
impl SqlBuilder {
    async fn mysql(&self, url: &Url) -> Result<(Box<dyn Driver>, Arc<dyn Flavour>)> {
        use crate::url::Tls;
        use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
        let options = MySqlConnectOptions::new().database(&url.database).ssl_mode(match url.tls {
            Tls::Off => MySqlSslMode::Disabled,
            Tls::Prefer => MySqlSslMode::Preferred,
            Tls::Require => MySqlSslMode::Required,
            Tls::VerifyCa => MySqlSslMode::VerifyCa,
            Tls::VerifyFull => MySqlSslMode::VerifyIdentity,
        });
        let options = with_server!(options, url, ssl_ca);
        let driver = self.mysql_driver(self.source(self.connections, &options), None);
        reach::<sqlx::MySqlConnection>(&*driver, &options, url).await?;
        Ok((driver, Arc::new(crate::dialect::mysql::MySqlFlavour)))
    }

    fn mysql_driver(
        &self,
        source: sqlx::MySqlPool,
        given: Option<sqlx::MySqlPool>,
    ) -> Box<dyn Driver> {
        let session = driver::mysql::session(self.store_timeout);
        let connections =
            Connections::new(source, given, self.connections, self.store_timeout, session);
        Box::new(driver::mysql::MySqlDriver { connections })
    }
}
