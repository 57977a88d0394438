//! Connecting to a server, to a cluster, or through sentinels.

use crate::{
    Redis,
    inspect::{Expected, Server},
    keys::Keys,
    link::{Confirm, Link, Target},
    script::Scripts,
    store::Store,
    unused::Unused,
};
use allora_core::{Error, Kind, Result};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError,
    TlsCertificates, TlsMode,
    cluster::ClusterClient,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

const OP: &str = "connect";

/// Connects to a store.
///
/// ```no_run
/// # async fn connect() -> allora_core::Result {
/// use allora_redis::Redis;
/// use std::time::Duration;
///
/// let store = Redis::builder()
///     .prefix("billing")
///     .timeout(Duration::from_millis(500))
///     .connect("redis://user:secret@db.example:6379/2")
///     .await?;
/// # let _: Redis = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder connects with `connect` and its like"]
pub struct Builder {
    prefix: String,
    shards: u32,
    history: u64,
    timeout: Duration,
    replicas: u32,
    ephemeral: bool,
    unused: Option<Duration>,
    certificates: Option<TlsCertificates>,
    sentinels: Option<Login>,
}

/// What sentinels are told.
#[derive(Clone)]
struct Login {
    user: String,
    password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            prefix: "allora".into(),
            shards: 1,
            history: 0,
            timeout: Duration::from_secs(1),
            replicas: 0,
            ephemeral: false,
            unused: None,
            certificates: None,
            sentinels: None,
        }
    }
}

impl Builder {
    /// The first part of every key, and the store's namespace: two prefixes are invisible to each
    /// other. `^[a-z_][a-z0-9_]{0,39}$`; `allora` unless given.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Over how many hash tags the jobs are spread, 1 to 1024; 1 unless given. The nodes of a
    /// cluster share the work only as far as there are tags; a batch costs one call for each that it
    /// touches. Fixed with the first connection: another number later is refused.
    pub fn shards(mut self, shards: u32) -> Self {
        self.shards = shards;
        self
    }

    /// Keeps the newest `entries` of history, at most 10 million; 0 keeps none, which is the
    /// default. With several shards, each keeps so many. With history on, takes and endings cost two
    /// calls a batch and not one.
    pub fn history(mut self, entries: u64) -> Self {
        self.history = entries;
        self
    }

    /// How long to wait for a connection, and for an answer, 10 ms to 1 min; 1 s unless given.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// An occurrence counts as taken only when so many replicas have it, up to 100; 0 unless given:
    /// a failover can forget what the replicas did not have yet. If they do not confirm within half
    /// of the [`timeout`](Self::timeout), nothing is started, and the take is asked for again.
    pub fn wait_replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// Accepts a server that keeps nothing on disk: its restart forgets everything, and what was
    /// run already may run again.
    pub fn ephemeral(mut self) -> Self {
        self.ephemeral = true;
        self
    }

    /// Forgets jobs in code that no node has had for this long, 1 s to 10 years; never unless given.
    ///
    /// A job counts as had by nobody when one of its occurrences has been due for so long, and in
    /// all that time none of the nodes that have this setting was away for more than a quarter of
    /// it together, and still nobody has taken, skipped or moved the occurrence. So give days, and
    /// more than the longest outage after which jobs should go on where they were. A job is never
    /// forgotten while it is paused, or when it has no further occurrence: what runs by triggers
    /// only, or has ended, would begin anew. Stored schedules stay.
    ///
    /// A forgotten job has left a tombstone, as a deleted one: should its name come back, it begins
    /// anew, and its fences go on.
    pub fn forget_unused(mut self, after: Duration) -> Self {
        self.unused = Some(after);
        self
    }

    /// The authority to trust instead of the system's, and the certificate to show, for addresses
    /// that begin with `rediss://`; other addresses are then refused.
    pub fn certificates(mut self, certificates: TlsCertificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// How to log in to sentinels, where that is not as to the server; the user is `default` where
    /// they have a password only.
    pub fn sentinel_login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.sentinels = Some(Login { user: user.into(), password: password.into() });
        self
    }

    /// Connects to one server and checks it. The address is a URL, `redis://`, `rediss://` for TLS
    /// or `redis+unix://` for a socket; a host and a port; or a [`ConnectionInfo`] with all that
    /// the driver can set.
    ///
    /// # Errors
    /// `Invalid` for a bad address or setting, a wrong password, a server that is no Redis, too old
    /// (before 6.2), a replica, a node of a cluster, without persistence, or set to evict jobs.
    /// `Unavailable` if it does not answer in time. The message names the server without its
    /// password.
    ///
    /// # Cancel safety
    /// A dropped call may have left a mark in the store; connecting again goes on from there.
    pub async fn connect(self, server: impl IntoConnectionInfo) -> Result<Redis> {
        let info = self.address(server)?;
        let place = place_of(&info);
        let client = Client::open(info).map_err(|cause| refused(&place, cause))?;
        self.open(Target::One(Box::new(client)), place, Expected::One).await
    }

    /// Works with a client that is there already, with all that was set in it.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn connect_client(self, client: Client) -> Result<Redis> {
        let place = place_of(client.get_connection_info());
        self.open(Target::One(Box::new(client)), place, Expected::One).await
    }

    /// Connects to the primary that these sentinels watch under the name `master`; when they make
    /// another one primary, to that. User, password, database and TLS of the first address are those
    /// of the primary; the sentinels have the same user and password, or those of
    /// [`sentinel_login`](Self::sentinel_login).
    ///
    /// # Errors
    /// As [`connect`](Self::connect); `Invalid` if no sentinel knows the name.
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn connect_sentinel<T: IntoConnectionInfo>(
        self,
        sentinels: impl IntoIterator<Item = T>,
        master: &str,
    ) -> Result<Redis> {
        let sentinels: Vec<ConnectionInfo> =
            sentinels.into_iter().map(|one| self.address(one)).collect::<Result<_>>()?;
        let Some(first) = sentinels.first() else { return Err(none("sentinel")) };
        let place = format!("{} (sentinel of {master:?})", place_of(first));
        let client = self.sentinels(&sentinels, first, master);
        let client = client.map_err(|cause| refused(&place, cause))?;
        let target = Target::Sentinel(Box::new(futures::lock::Mutex::new(client)));
        self.open(target, place, Expected::One).await
    }

    /// Connects to the cluster that these nodes belong to; any of them that answers will do.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); `Invalid` for an address with a database other than 0, which
    /// clusters do not have.
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn connect_cluster<T: IntoConnectionInfo>(
        self,
        nodes: impl IntoIterator<Item = T>,
    ) -> Result<Redis> {
        let nodes: Vec<ConnectionInfo> =
            nodes.into_iter().map(|one| self.address(one)).collect::<Result<_>>()?;
        let Some(first) = nodes.first() else { return Err(none("node")) };
        let place = format!("{} (cluster)", place_of(first));
        if let Some(other) = nodes.iter().find(|node| node.redis_settings().db() != 0) {
            let place = place_of(other);
            let wrong = format!("{place}: a cluster has one database, 0; leave it out");
            return Err(Error::invalid(wrong).op(OP));
        }
        let each = nodes.iter().map(|node| Client::open(node.clone()));
        let each = each.collect::<Result<Vec<_>, _>>().map_err(|cause| refused(&place, cause))?;
        let mut client = ClusterClient::builder(nodes)
            .connection_timeout(self.timeout)
            .response_timeout(self.timeout)
            .overall_response_timeout(Some(self.timeout))
            // While a slot moves, its keys are in two places, and scripts are told to try again. They
            // do, some 25 ms apart, until the time is over; further tries are core's, with the same
            // claims. The driver's own waits are longer than that time.
            .min_retry_wait(1)
            .max_retry_wait(50)
            .retry_wait_formula(50, 1)
            .retries(u32::try_from(self.timeout.as_millis() / 25).unwrap_or(u32::MAX));
        if let Some(certificates) = &self.certificates {
            client = client.certs(certificates.clone());
        }
        let client = client.build().map_err(|cause| refused(&place, cause))?;
        self.open(
            Target::Cluster { client: Box::new(client), nodes: each },
            place,
            Expected::Cluster,
        )
        .await
    }

    /// An address, with the certificates for it.
    fn address(&self, server: impl IntoConnectionInfo) -> Result<ConnectionInfo> {
        let info = address(server)?;
        let Some(certificates) = &self.certificates else { return Ok(info) };
        let place = place_of(&info);
        if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            let open = format!("{place} is not talked to by TLS, but certificates are given");
            return Err(Error::invalid(format!("{open}; write rediss://")).op(OP));
        }
        match Client::build_with_tls(info, certificates.clone()) {
            Ok(client) => Ok(client.get_connection_info().clone()),
            Err(cause) => {
                let unreadable = "the certificates or the key cannot be read; give PEM";
                Err(Error::invalid(unreadable).op(OP).source(cause))
            }
        }
    }

    fn sentinels(
        &self,
        all: &[ConnectionInfo],
        first: &ConnectionInfo,
        master: &str,
    ) -> Result<SentinelClient, RedisError> {
        let settings = first.redis_settings();
        let addresses = all.iter().map(|one| one.addr().clone());
        let mut client = SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?
            .set_client_to_redis_db(settings.db())
            .set_client_to_redis_protocol(settings.protocol());
        if let Some(user) = settings.username() {
            client = client.set_client_to_redis_username(user);
        }
        if let Some(password) = settings.password() {
            client = client.set_client_to_redis_password(password);
        }
        if let ConnectionAddr::TcpTls { insecure, .. } = first.addr() {
            let mode = if *insecure { TlsMode::Insecure } else { TlsMode::Secure };
            client = client.set_client_to_redis_tls_mode(mode);
        }
        if let Some(certificates) = &self.certificates {
            client = client.set_client_to_redis_certificates(certificates.clone());
        }
        let (user, password) = match &self.sentinels {
            Some(login) => (Some(&*login.user), Some(&*login.password)),
            None => (settings.username(), settings.password()),
        };
        if let Some(user) = user {
            client = client.set_client_to_sentinel_username(user);
        }
        if let Some(password) = password {
            client = client.set_client_to_sentinel_password(password);
        }
        client.build()
    }

    async fn open(self, target: Target, place: String, expected: Expected) -> Result<Redis> {
        self.check()?;
        install_crypto();
        let link = Link::new(target, self.timeout);
        let servers = Server::ask(&link).await.map_err(|cause| refused(&place, cause))?;
        for server in &servers {
            server.check(&place, expected, self.ephemeral)?;
        }
        let caveat = servers.iter().find_map(|server| server.caveat(self.replicas));
        let mut random = [0; 6];
        getrandom::fill(&mut random).map_err(|cause| {
            Error::new(Kind::Other, "the system gives no random numbers").op(OP).source(cause)
        })?;
        let within = self.timeout / 2;
        let store = Store {
            link,
            keys: Keys { prefix: self.prefix, shards: self.shards },
            scripts: Scripts::default(),
            place,
            caveat,
            history: self.history,
            unused: self.unused.map(Unused::new),
            confirm: (self.replicas > 0).then_some(Confirm { replicas: self.replicas, within }),
            marks: Mutex::new(HashMap::new()),
            writer: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            written: AtomicU64::new(0),
            cache: Mutex::default(),
        };
        store.settle_in().await?;
        Ok(Redis { store: Arc::new(store) })
    }

    fn check(&self) -> Result {
        let wrong = |what: String| Err(Error::invalid(what).op(OP));
        let prefix = self.prefix.as_bytes();
        let first = prefix.first().is_some_and(|b| b.is_ascii_lowercase() || *b == b'_');
        let rest = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
        if !first || prefix.len() > 40 || !prefix.iter().all(rest) {
            let shown: String = self.prefix.chars().take(40).collect();
            return wrong(format!(
                "the prefix {shown:?} is not 1 to 40 of a-z, 0-9 and _ that begin with no digit"
            ));
        }
        if !(1..=1_024).contains(&self.shards) {
            return wrong(format!("{} shards; give 1 to 1024", self.shards));
        }
        let range = Duration::from_millis(10)..=Duration::from_secs(60);
        if !range.contains(&self.timeout) {
            return wrong(format!("a time-out of {:?}; give 10 ms to 1 min", self.timeout));
        }
        if self.history > 10_000_000 {
            return wrong(format!("{} entries of history; give at most 10 million", self.history));
        }
        let range = Duration::from_secs(1)..=Duration::from_secs(10 * 366 * 86_400);
        if self.unused.is_some_and(|after| !range.contains(&after)) {
            let after = self.unused.unwrap_or_default();
            return wrong(format!("unused jobs forgotten after {after:?}; give 1 s to 10 years"));
        }
        if self.replicas > 100 {
            return wrong(format!("{} replicas to wait for; give at most 100", self.replicas));
        }
        Ok(())
    }
}

impl Store {
    /// Finds out whether this installation is what it is said to be, and marks what is new.
    async fn settle_in(&self) -> Result {
        let failed = |cause| self.failed(OP, cause);
        let meta = self.keys.meta();
        let mut set = redis::cmd("HSETNX");
        set.arg(&meta).arg("shards").arg(self.keys.shards);
        self.link.ask::<bool>(&set).await.map_err(|cause| refused(&self.place, cause))?;
        let mut get = redis::cmd("HGET");
        let shards: u32 = self.link.ask(get.arg(&meta).arg("shards")).await.map_err(failed)?;
        if shards != self.keys.shards {
            let (place, prefix, asked) = (&self.place, &self.keys.prefix, self.keys.shards);
            return Err(Error::invalid(format!(
                "{place}: {prefix:?} is spread over {shards} shards, not {asked}; connect with \
                 the same number, or use another prefix"
            ))
            .op(OP));
        }
        for shard in 0..self.keys.shards {
            self.open(OP, shard).await?;
        }
        Ok(())
    }
}

/// TLS needs somebody to do the arithmetic. Where the application has chosen already, its choice
/// stands.
fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn address(server: impl IntoConnectionInfo) -> Result<ConnectionInfo> {
    server.into_connection_info().map_err(|_| {
        // The cause may quote what it could not read.
        Error::invalid(
            "the address cannot be read; give redis://user:password@host:port/db, rediss:// for \
             TLS, redis+unix:///path for a socket, with reserved characters percent-encoded",
        )
        .op(OP)
    })
}

fn none(what: &str) -> Error {
    Error::invalid(format!("no {what} is given; name at least one")).op(OP)
}

/// Where a server is, without user and password.
fn place_of(info: &ConnectionInfo) -> String {
    struct Place<'a>(&'a ConnectionInfo);
    impl fmt::Display for Place<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0.addr() {
                ConnectionAddr::Tcp(host, port) => write!(f, "redis://{host}:{port}")?,
                ConnectionAddr::TcpTls { host, port, .. } => write!(f, "rediss://{host}:{port}")?,
                ConnectionAddr::Unix(path) => write!(f, "redis+unix://{}", path.display())?,
                _ => f.write_str("redis")?,
            }
            match self.0.redis_settings().db() {
                0 => Ok(()),
                db => write!(f, "/{db}"),
            }
        }
    }
    Place(info).to_string()
}

/// Whether one of the causes says so: what TLS has to say arrives as text.
fn said(cause: &RedisError, what: &str) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(cause);
    while let Some(error) = cause {
        if error.to_string().contains(what) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Why nobody could connect, and what to do about it.
fn refused(place: &str, cause: RedisError) -> Error {
    let detail = cause.detail().unwrap_or_default().to_ascii_lowercase();
    let (kind, why) = match (cause.kind(), cause.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH")) => {
            (Kind::Invalid, format!("{place} refused the user or the password"))
        }
        (_, Some("NOPERM")) => {
            (Kind::Invalid, format!("{place} does not permit this user what allora needs"))
        }
        (_, Some("READONLY")) => (Kind::Invalid, format!("{place} can only be read")),
        (_, Some("WRONGTYPE")) => {
            (Kind::Invalid, format!("{place} has something else under allora's keys"))
        }
        (ErrorKind::MasterNameNotFoundBySentinel, _) => (
            Kind::Invalid,
            format!("{place}: no sentinel that answers knows a primary of this name"),
        ),
        (ErrorKind::InvalidClientConfig, _) => {
            (Kind::Invalid, format!("{place}: the address or its settings are wrong"))
        }
        (ErrorKind::Parse, _) => {
            (Kind::Invalid, format!("{place} does not speak as a Redis does: is it one?"))
        }
        (ErrorKind::Server(_), _) if detail.contains("db index") => {
            (Kind::Invalid, format!("{place}: there is no such database"))
        }
        (ErrorKind::Server(_) | ErrorKind::Extension, _) => {
            (Kind::Unavailable, format!("{place} refused a command"))
        }
        _ if said(&cause, "peer certificate") => (
            Kind::Invalid,
            format!(
                "{place} shows a certificate that is not trusted, or is another's; its authority \
                 goes into `Builder::certificates`"
            ),
        ),
        _ if said(&cause, "fatal alert") => (
            Kind::Invalid,
            format!("{place} refused TLS as it was offered: it may want another certificate"),
        ),
        _ if cause.is_timeout() => {
            (Kind::Unavailable, format!("{place} did not answer within the time-out"))
        }
        _ => (Kind::Unavailable, format!("{place} cannot be reached")),
    };
    Error::new(kind, why).op(OP).source(cause)
}
