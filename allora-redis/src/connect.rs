//! Connecting to a server, to a cluster, or through sentinels.

use crate::{
    Redis,
    client::{Connection, Servers},
    cluster::Cluster,
    error::{refused, refused_at},
    keys::Keys,
    script::{Confirm, Scripts},
    sentinels::{Address, MakeServer, Sentinels},
    server::{Failure, Server},
    server_info::{Expected, ServerInfo},
    store::Store,
    unused::Unused,
};
use allora_core::{
    Error, ErrorKind, Result,
    backend::{HistoryLimits, plain_text_warning},
    store::{HistoryPruning, Layout},
};
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

const OP: &str = "connect";

/// The default number of history entries of each job.
const PER_JOB: u64 = 1_000;

/// The newest version of the keys that this build knows.
const LAYOUT: Layout = Layout::new(1);

/// A function that writes a [`Layout`] where there is none or an older one, and returns the one that is there.
pub const VERSION: &str = "
local function version(field, ours)
  local found = redis.call('HGET', KEYS[1], field)
  local number = tonumber(string.match(found or '0', '^%d+'))
  if number and number < tonumber(string.match(ours, '^%d+')) then
    redis.call('HSET', KEYS[1], field, ours)
    return ours
  end
  return found
end
";

/// Connects to a store.
///
/// ```no_run
/// # async fn connect() -> allora::Result {
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
pub struct RedisBuilder {
    prefix: String,
    shards: u32,
    history: HistoryLimits,
    timeout: Duration,
    replicas: u32,
    ephemeral: bool,
    unused: Option<Duration>,
    certificates: Option<TlsCertificates>,
    sentinels: Option<Login>,
}

/// The user and password of sentinels.
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

impl Default for RedisBuilder {
    fn default() -> Self {
        Self {
            prefix: "allora".into(),
            shards: 1,
            history: HistoryLimits::default().without_successes(),
            timeout: Duration::from_secs(1),
            replicas: 0,
            ephemeral: false,
            unused: None,
            certificates: None,
            sentinels: None,
        }
    }
}

impl RedisBuilder {
    /// The first part of every key, and the store's namespace: two prefixes are invisible to each
    /// other. Default: `allora`. Range: `^[a-z_][a-z0-9_]{0,39}$`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The number of hash tags over which the jobs are distributed. A cluster distributes the work
    /// over at most this number of its nodes. A batch costs one call for each tag that it touches.
    /// Fixed by the first connection: another number later is an error. Default: 1. Range: 1 to
    /// 1024.
    pub fn shards(mut self, shards: u32) -> Self {
        self.shards = shards;
        self
    }

    /// Keeps a history within these [limits](HistoryLimits). A number alone is that of each job's
    /// failures, and of its other entries; 0 keeps no history. Default: [`HistoryLimits::default`]
    /// [without successes](HistoryLimits::without_successes), which would cost a whole worker half of
    /// its throughput. Redis keeps the history in memory: an entry without an output takes about 500 bytes.
    pub fn history(mut self, limits: impl Into<HistoryLimits>) -> Self {
        self.history = limits.into();
        self
    }

    /// The longest time to wait for a connection, and for a reply. With several shards, a reply has
    /// three quarters of it, so that a shard that does not reply does not delay the replies of the
    /// others. Default: 1 s. Range: 10 ms to 1 min.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The number of replicas that must have a claim before its run starts: a failover loses the writes
    /// that the promoted replica does not have. If they do not confirm within a third of the
    /// [`timeout`](Self::timeout), the run is not started, and the claim is sent again. When half of
    /// its lease is over, it is released. Default: 0. Range: 0 to 100.
    pub fn wait_replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// Accepts a server that keeps nothing on disk: its restart loses everything, and occurrences
    /// that have run may run again.
    pub fn ephemeral(mut self) -> Self {
        self.ephemeral = true;
        self
    }

    /// Deletes jobs in code that no node has declared for this time. Default: never. Range: 1 s to
    /// 10 years.
    ///
    /// A job is unused if three conditions hold: one of its occurrences has been due for this time;
    /// no node has claimed, skipped or moved the occurrence; and in that time the nodes with this
    /// setting were never all stopped for more than a quarter of it. Set days, and more than the
    /// longest outage after which jobs should continue with their old cursor. A paused job is never
    /// deleted. A job without a further occurrence is not deleted either: one that runs by triggers
    /// only, or has ended, would be registered as a new job. Stored schedules stay. Nodes search
    /// when they poll: set more than ten times their `poll_interval`.
    ///
    /// The deleted job leaves a tombstone. If its name is registered again, it is a new job, whose
    /// fences are higher than those of the deleted one.
    pub fn forget_unused(mut self, after: Duration) -> Self {
        self.unused = Some(after);
        self
    }

    /// The authority to trust instead of the system's, and the certificate to present, for addresses
    /// that begin with `rediss://`; other addresses are then an error.
    pub fn certificates(mut self, certificates: TlsCertificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// The login for the sentinels, if it differs from that for the server; the user is `default` if
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
    /// A dropped call may have left the installation's id in the store; connecting again uses it.
    pub async fn connect(self, server: impl IntoConnectionInfo) -> Result<Redis> {
        let info = connection_info(server, self.certificates.as_ref())?;
        let (place, warning) = (place_of(&info), security_warning([&info]));
        let client = Client::open(info).map_err(|cause| refused(&place, cause))?;
        let server = Server::new(client, place.clone(), self.timeout);
        self.open(Servers::One(server), place, Expected::One, warning).await
    }

    /// Uses an existing client with its settings.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn connect_client(self, client: Client) -> Result<Redis> {
        let info = client.get_connection_info();
        let (place, warning) = (place_of(info), security_warning([info]));
        let server = Server::new(client, place.clone(), self.timeout);
        self.open(Servers::One(server), place, Expected::One, warning).await
    }

    /// Connects to the primary that these sentinels watch under the name `master`. When they
    /// promote another server, the store connects to that one. User, password, database and TLS of
    /// the first address are those of the primary; the sentinels have the same user and password,
    /// or those of [`sentinel_login`](Self::sentinel_login).
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
        let sentinels = self.addresses(sentinels)?;
        let Some(first) = sentinels.first() else { return Err(none("sentinel")) };
        let place = format!("{} (sentinel of {master:?})", place_of(first));
        let warning = security_warning(&sentinels);
        let login = self.sentinels.clone();
        let each = sentinels.iter().map(|sentinel| {
            let settings = sentinel.redis_settings().clone().set_db(0);
            let settings = match &login {
                Some(login) => settings.set_username(&login.user).set_password(&login.password),
                None => settings,
            };
            self.server(sentinel.clone().set_redis_settings(settings))
        });
        let each = each.collect::<Result<Vec<_>, _>>();
        let each = each.map_err(|failure| refused_at(&place, failure))?;
        let sentinels = Sentinels::new(each, master, self.servers_like(first), self.timeout);
        self.open(Servers::Sentinel(Arc::new(sentinels)), place, Expected::One, warning).await
    }

    /// Connects to the cluster of these nodes; one of them must reply.
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
        let nodes = self.addresses(nodes)?;
        let Some(first) = nodes.first() else { return Err(none("node")) };
        let place = format!("{} (cluster)", place_of(first));
        let warning = security_warning(&nodes);
        if let Some(other) = nodes.iter().find(|node| node.redis_settings().db() != 0) {
            let place = place_of(other);
            let wrong = format!("{place}: a cluster has one database, 0; leave it out");
            return Err(Error::invalid(wrong).op(OP));
        }
        let seeds = nodes.iter().filter_map(|node| match node.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), *port))
            }
            _ => None,
        });
        let cluster = Cluster::new(seeds.collect(), self.servers_like(first), self.timeout);
        self.open(Servers::Cluster(Arc::new(cluster)), place, Expected::Cluster, warning).await
    }

    fn addresses<T: IntoConnectionInfo>(
        &self,
        servers: impl IntoIterator<Item = T>,
    ) -> Result<Vec<ConnectionInfo>> {
        let info = |server| connection_info(server, self.certificates.as_ref());
        servers.into_iter().map(info).collect()
    }

    fn server(&self, info: ConnectionInfo) -> Result<Arc<Server>, Failure> {
        server(info, self.timeout)
    }

    /// Servers at other addresses, with the settings of this one.
    fn servers_like(&self, info: &ConnectionInfo) -> MakeServer {
        let (info, timeout) = (info.clone(), self.timeout);
        Box::new(move |(host, port): &Address| {
            let (host, port) = (host.clone(), *port);
            let address = match info.addr() {
                ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                    let (insecure, tls_params) = (*insecure, tls_params.clone());
                    ConnectionAddr::TcpTls { host, port, insecure, tls_params }
                }
                _ => ConnectionAddr::Tcp(host, port),
            };
            server(info.clone().set_addr(address), timeout).map_err(|failure| failure.cause)
        })
    }

    async fn open(
        self,
        servers: Servers,
        place: String,
        expected: Expected,
        security_warning: Option<String>,
    ) -> Result<Redis> {
        self.check()?;
        install_crypto();
        let connection = Connection::new(servers, self.timeout)?;
        let servers = ServerInfo::ask(&connection).await;
        let servers = servers.map_err(|failure| refused_at(&place, failure))?;
        for server in &servers {
            server.check(&place, expected, self.ephemeral)?;
        }
        let mut warnings: Vec<&str> =
            servers.iter().flat_map(|server| server.durability_warnings(self.replicas)).collect();
        warnings.sort_unstable();
        warnings.dedup();
        let durability_warning = Some(warnings.join("; ")).filter(|all| !all.is_empty());
        let mut random = [0; 6];
        getrandom::fill(&mut random).map_err(|cause| {
            Error::new(ErrorKind::Other, "the system gives no random numbers").op(OP).source(cause)
        })?;
        let within = self.timeout / 3;
        let store = Store {
            connection,
            keys: Keys { prefix: self.prefix, shards: self.shards },
            scripts: Scripts::default(),
            place,
            durability_warning,
            security_warning,
            history: HistoryPruning::new(self.history, PER_JOB),
            unused: self.unused.map(Unused::new),
            confirm: (self.replicas > 0).then_some(Confirm { replicas: self.replicas, within }),
            store_ids: Mutex::new(HashMap::new()),
            writer: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            written: AtomicU64::new(0),
            kinds: Mutex::default(),
            cache: Mutex::default(),
        };
        store.initialise().await?;
        Ok(Redis { store: Arc::new(store) })
    }

    fn check(&self) -> Result {
        let wrong = |what: String| Err(Error::invalid(what).op(OP));
        check_prefix(&self.prefix)?;
        if !(1..=1_024).contains(&self.shards) {
            return wrong(format!("{} shards; give 1 to 1024", self.shards));
        }
        let range = Duration::from_millis(10)..=Duration::from_secs(60);
        if !range.contains(&self.timeout) {
            return wrong(format!("a time-out of {:?}; give 10 ms to 1 min", self.timeout));
        }
        if let Err(text) = self.history.check() {
            return wrong(text);
        }
        let range = Duration::from_secs(1)..=Duration::from_secs(10 * 366 * 86_400);
        if self.unused.is_some_and(|after| !range.contains(&after)) {
            let after = self.unused.unwrap_or_default();
            return wrong(format!("unused jobs deleted after {after:?}; give 1 s to 10 years"));
        }
        if self.replicas > 100 {
            return wrong(format!("{} replicas to wait for; give at most 100", self.replicas));
        }
        Ok(())
    }
}

impl Store {
    /// Checks the settings of this installation, and gives ids to new shards.
    async fn initialise(&self) -> Result {
        let failed = |cause| self.failed(OP, cause);
        let meta = self.keys.meta();
        let mut check = redis::cmd("EVAL");
        check.arg(format!("{VERSION}return version('version', '{LAYOUT}')")).arg(1).arg(&meta);
        let found = self.connection.ask::<String>(&check).await;
        let found = found.map_err(|failure| refused_at(&self.place, failure))?;
        if let Some(refusal) = Layout::refusal_of(&found, LAYOUT.version) {
            let keys = format!("{}: the keys of {:?}", self.place, self.keys.prefix);
            return Err(Error::invalid(format!("{keys} {refusal}")).op(OP));
        }
        let mut set = redis::cmd("HSETNX");
        set.arg(&meta).arg("shards").arg(self.keys.shards);
        let set = self.connection.ask::<bool>(&set).await;
        set.map_err(|failure| refused_at(&self.place, failure))?;
        let mut get = redis::cmd("HGET");
        let shards: u32 =
            self.connection.ask(get.arg(&meta).arg("shards")).await.map_err(failed)?;
        if shards != self.keys.shards {
            let (place, prefix, asked) = (&self.place, &self.keys.prefix, self.keys.shards);
            return Err(Error::invalid(format!(
                "{place}: {prefix:?} has {shards} shards, not {asked}; connect with the same \
                 number, or use another prefix"
            ))
            .op(OP));
        }
        for shard in 0..self.keys.shards {
            self.open(OP, shard).await?;
        }
        Ok(())
    }
}

/// Checks that this can be a store's namespace.
///
/// # Errors
/// `Invalid` if it is not `^[a-z_][a-z0-9_]{0,39}$`.
pub fn check_prefix(prefix: &str) -> Result {
    let bytes = prefix.as_bytes();
    let first = bytes.first().is_some_and(|b| b.is_ascii_lowercase() || *b == b'_');
    let rest = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
    if first && bytes.len() <= 40 && bytes.iter().all(rest) {
        return Ok(());
    }
    let shown: String = prefix.chars().take(40).collect();
    Err(Error::invalid(format!(
        "the prefix {shown:?} is not 1 to 40 of a-z, 0-9 and _ that begin with no digit"
    ))
    .op(OP))
}

/// Installs `ring` as the cryptography of TLS, unless the application has installed another.
pub fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A server's address, with the certificates for it.
///
/// # Errors
/// `Invalid` for an address or certificates that cannot be read, and for certificates with an address
/// without TLS.
pub fn connection_info(
    server: impl IntoConnectionInfo,
    certificates: Option<&TlsCertificates>,
) -> Result<ConnectionInfo> {
    let info = address(server)?;
    let Some(certificates) = certificates else { return Ok(info) };
    let place = place_of(&info);
    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        let open = format!("{place} has no TLS, but certificates are given; write rediss://");
        return Err(Error::invalid(open).op(OP));
    }
    match Client::build_with_tls(info, certificates.clone()) {
        Ok(client) => Ok(client.get_connection_info().clone()),
        Err(cause) => {
            let unreadable = "the certificates or the key cannot be read; give PEM";
            Err(Error::invalid(unreadable).op(OP).source(cause))
        }
    }
}

/// The warning of the first of these servers on another machine that is reached without TLS, or with TLS that verifies
/// nothing. It is logged.
pub fn security_warning<'a>(
    servers: impl IntoIterator<Item = &'a ConnectionInfo>,
) -> Option<String> {
    let warning = servers.into_iter().find_map(|info| match info.addr() {
        ConnectionAddr::Tcp(host, _) => {
            plain_text_warning(&place_of(info), host, "write rediss:// for TLS")
        }
        ConnectionAddr::TcpTls { insecure: true, .. } => Some(format!(
            "the connection to {} is encrypted, and the server's certificate is not verified; remove #insecure",
            place_of(info)
        )),
        _ => None,
    })?;
    tracing::warn!(target: "allora", "{warning}");
    Some(warning)
}

fn server(info: ConnectionInfo, timeout: Duration) -> Result<Arc<Server>, Failure> {
    let place = place_of(&info);
    Ok(Server::new(Client::open(info)?, place, timeout))
}

fn address(server: impl IntoConnectionInfo) -> Result<ConnectionInfo> {
    server.into_connection_info().map_err(|_| {
        // The cause may quote the address with its password.
        Error::invalid(
            "the address cannot be read; give redis://user:password@host:port/db, rediss:// for \
             TLS, redis+unix:///path for a socket, with reserved characters percent-encoded; sentinels \
             and clusters have `connect_sentinel` and `connect_cluster`, each with such addresses",
        )
        .op(OP)
    })
}

fn none(what: &str) -> Error {
    Error::invalid(format!("no {what} is given; name at least one")).op(OP)
}

/// The address of a server without user and password.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_and_unverified_servers_elsewhere_are_warned_of() {
        let warning = |url: &str| security_warning([&address(url).unwrap()]);
        for here in
            ["redis://localhost", "redis://:s3cret@127.0.0.1:1", "redis+unix:///s", "rediss://db"]
        {
            assert_eq!(warning(here), None, "{here}");
        }
        let said = warning("redis://:s3cret@db:7000/1").unwrap();
        assert!(
            said.contains("redis://db:7000/1 is plain text") && !said.contains("s3cret"),
            "{said}"
        );
        let said = warning("rediss://db#insecure").unwrap();
        assert!(said.contains("not verified"), "{said}");
    }

    #[test]
    fn the_urls_that_providers_hand_out_are_read() {
        for (provider, url, place, user) in [
            (
                "Upstash",
                "rediss://default:s3cret@eu2-loving-slug-30404.upstash.io:30404",
                "rediss://eu2-loving-slug-30404.upstash.io:30404",
                Some("default"),
            ),
            (
                "ElastiCache",
                "rediss://app:s3cret@master.jobs.abc123.euc1.cache.amazonaws.com:6379/0",
                "rediss://master.jobs.abc123.euc1.cache.amazonaws.com:6379",
                Some("app"),
            ),
            (
                "ElastiCache, a cluster's own address",
                "rediss://:s3cret@clustercfg.jobs.abc123.euc1.cache.amazonaws.com:6379",
                "rediss://clustercfg.jobs.abc123.euc1.cache.amazonaws.com:6379",
                None,
            ),
            (
                "Heroku",
                "rediss://:s3cret@ec2-203-0-113-7.compute-1.amazonaws.com:17000",
                "rediss://ec2-203-0-113-7.compute-1.amazonaws.com:17000",
                None,
            ),
            ("a database", "redis://u%40x:s3cret@h/2", "redis://h:6379/2", Some("u@x")),
            ("an IPv6 address", "redis://:s3cret@[::1]:6380", "redis://::1:6380", None),
        ] {
            let info = connection_info(url, None).unwrap();
            assert_eq!(place_of(&info), place, "{provider}");
            assert_eq!(info.redis_settings().username(), user, "{provider}");
            assert_eq!(info.redis_settings().password(), Some("s3cret"), "{provider}");
        }
        for url in ["redis+sentinel://:s3cret@h:26379/main", "redis://:s3cret@h/main", "http://h"] {
            let error = connection_info(url, None).unwrap_err();
            let said = format!("{error:#} {error:?}");
            assert!(said.contains("connect_sentinel") && !said.contains("s3cret"), "{said}");
        }
    }
}
