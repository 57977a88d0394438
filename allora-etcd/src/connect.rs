//! Opening a store: by the members' addresses, with a builder, or over an existing client.

use crate::{
    client::{Client, Endpoints, Timeouts, gets, kv},
    error::unexpected_response,
    store::{Etcd, Store},
};
use allora_core::{
    Error, Result,
    backend::HistoryLimits,
    store::{HistoryPruning, Layout},
};
use etcd_client::{
    Certificate, Compare, CompareOp, ConnectOptions, Identity, TlsOptions, Txn, TxnOp,
    TxnOpResponse,
};
use std::{fmt, sync::Arc, time::Duration};

/// The newest version of the keys that this build knows.
const LAYOUT: Layout = Layout::new(1);

/// The default number of history entries of each job: the members keep all data in memory.
const PER_JOB: u64 = 100;

/// The number of changes by clients: etcd holds little.
const CHANGES: u64 = 10_000;

/// Opens a store; see [`Etcd::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct EtcdBuilder {
    prefix: String,
    login: Option<(String, String)>,
    tls: Option<Tls>,
    timeout: Duration,
    connect_timeout: Duration,
    history: HistoryLimits,
    operations: usize,
    handle: Option<tokio::runtime::Handle>,
}

/// Certificates for members whose addresses begin with `https`.
#[derive(Clone, Default)]
#[must_use]
pub struct Tls {
    authority: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    name: Option<String>,
}

impl Tls {
    /// Trusts the system's certificates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts this authority as well: a certificate in PEM.
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// Presents this certificate to the members, with its private key: both in PEM.
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// The name in the members' certificates, if it differs from the host in the address.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    fn options(&self) -> TlsOptions {
        let mut options = TlsOptions::new().with_native_roots();
        if let Some(pem) = &self.authority {
            options = options.ca_certificate(Certificate::from_pem(pem));
        }
        if let Some((certificate, key)) = &self.identity {
            options = options.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.name {
            options = options.domain_name(name);
        }
        options
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authority", &self.authority.is_some())
            .field("identity", &self.identity.is_some())
            .field("name", &self.name)
            .finish()
    }
}

impl Default for EtcdBuilder {
    fn default() -> Self {
        Self {
            prefix: "allora".into(),
            login: None,
            tls: None,
            timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            history: HistoryLimits::default().without_successes(),
            operations: 128,
            handle: None,
        }
    }
}

impl Etcd {
    /// Connects with the default settings: `Etcd::connect(["http://127.0.0.1:2379"])`.
    ///
    /// # Errors
    /// As [`EtcdBuilder::connect`].
    ///
    /// # Cancel safety
    /// As [`EtcdBuilder::connect`].
    pub async fn connect<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Result<Self> {
        Self::builder().connect(endpoints).await
    }

    /// Connects with other settings.
    pub fn builder() -> EtcdBuilder {
        EtcdBuilder::default()
    }
}

impl EtcdBuilder {
    /// The store's namespace: all keys are under it and a slash. Stores with different prefixes share
    /// nothing. Form: `^[a-z_][a-z0-9_]{0,39}$`. Default: `allora`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Logs in. The user's role needs permission to read and write every key under the prefix and a
    /// slash, and nothing else.
    pub fn login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Some((user.into(), password.into()));
        self
    }

    /// Uses these certificates. Only for addresses that begin with `https`. Default: the system's
    /// certificates.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The deadline of a call. A deadline that is longer than an election has no use, because the
    /// next call is sent to another member. Default: 1 s. Range: 50 ms to 10 min.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The deadline of connecting, TLS and the login included. A connection that takes longer than a
    /// call is there for a later one. Default: 5 s. Range: 50 ms to 10 min.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Keeps a history within these [limits](HistoryLimits). A number alone is that of each job's
    /// failures, and of its other entries; 0 keeps no history. Default: [`HistoryLimits::default`]
    /// [without successes](HistoryLimits::without_successes). etcd keeps all data in memory, and every change
    /// until it is compacted: `HistoryLimits::default()` has only 100 entries of each job, and as many
    /// failures.
    pub fn history(mut self, limits: impl Into<HistoryLimits>) -> Self {
        self.history = limits.into();
        self
    }

    /// The number of operations that the members allow in one transaction: their `--max-txn-ops`.
    /// Default: 128, which is also etcd's default. Range: 16 to 100 000.
    pub fn operations(mut self, operations: usize) -> Self {
        self.operations = operations;
        self
    }

    /// Talks to etcd on this tokio runtime instead of on a thread of the store's own. The runtime must
    /// have timers and network, and must outlast the store.
    pub fn handle(mut self, handle: tokio::runtime::Handle) -> Self {
        self.handle = Some(handle);
        self
    }

    /// Connects to a cluster by the addresses of its members, such as `http://10.0.0.1:2379`. Name
    /// all members, so that a call that one member does not answer can be sent to another. One
    /// member that answers is enough. One text may have several addresses with commas between them,
    /// as `ETCDCTL_ENDPOINTS` has.
    ///
    /// # Errors
    /// `Invalid` for an invalid address or setting, a login that is rejected or missing, keys
    /// without permission to read and write them, keys of a newer version. `Unavailable` if no
    /// member answers in time, or if what answers is not etcd.
    ///
    /// # Cancel safety
    /// A dropped call may have written the key of the version. Another call then succeeds.
    pub async fn connect<E: Into<String>>(
        self,
        endpoints: impl IntoIterator<Item = E>,
    ) -> Result<Etcd> {
        let endpoints = each(endpoints.into_iter().map(Into::into));
        self.check()?;
        check_endpoints(&endpoints, self.tls.is_some())?;
        let mut options = ConnectOptions::new()
            .with_require_leader(true)
            .with_connect_timeout(self.connect_timeout)
            // Members reject pings that come more often than every five seconds. A call that times out
            // closes a silent connection sooner.
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(3))
            .with_tcp_keepalive(Duration::from_secs(10));
        if endpoints[0].starts_with("https") {
            options = options.with_tls(self.tls.clone().unwrap_or_default().options());
        }
        if let Some((user, password)) = &self.login {
            options = options.with_user(user, password);
        }
        self.open(Endpoints::Addresses(endpoints, Box::new(options))).await
    }

    /// Uses an existing client, with its members, its login and its certificates. It must have been
    /// made on the runtime whose [`handle`](Self::handle) is given, or on one that lives as long.
    /// The store cannot open its connections again: give the client a keep-alive of its own.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn client(self, client: etcd_client::Client) -> Result<Etcd> {
        self.check()?;
        self.open(Endpoints::Client(Box::new(client))).await
    }

    async fn open(self, endpoints: Endpoints) -> Result<Etcd> {
        let timeouts = Timeouts { call: self.timeout, connect: self.connect_timeout };
        let client = Client::new(endpoints, timeouts, self.operations, self.handle)?;
        let history = HistoryPruning::new(self.history, PER_JOB).changes(CHANGES);
        let store = Store::new(client, self.prefix, history);
        store.check_version(self.connect_timeout).await.map_err(|error| {
            let all: Vec<&str> = store.client.endpoints().collect();
            let text = format!("cannot open the store at {}", all.join(", "));
            Error::new(error.kind(), text).op("connect").source(error)
        })?;
        Ok(Etcd { store: Arc::new(store) })
    }

    fn check(&self) -> Result {
        let invalid = |what: String| Err(Error::invalid(what).op("connect"));
        let prefix = self.prefix.as_bytes();
        let first = prefix.first().is_some_and(|b| b.is_ascii_lowercase() || *b == b'_');
        let rest = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
        if !first || prefix.len() > 40 || !prefix.iter().all(rest) {
            let shown: String = self.prefix.chars().take(40).collect();
            return invalid(format!(
                "the prefix {shown:?} is invalid; use 1 to 40 of a-z, 0-9 and _, without a digit first"
            ));
        }
        let range = Duration::from_millis(50)..=Duration::from_secs(600);
        for asked in [self.timeout, self.connect_timeout] {
            if !range.contains(&asked) {
                return invalid(format!(
                    "the timeout {asked:?} is out of range; use 50 ms to 10 min"
                ));
            }
        }
        if let Err(text) = self.history.check() {
            return invalid(text);
        }
        if !(16..=100_000).contains(&self.operations) {
            let asked = self.operations;
            return invalid(format!(
                "{asked} operations per transaction is out of range; use 16 to 100000"
            ));
        }
        Ok(())
    }
}

/// The driver's own `Debug` shows passwords; this does not.
impl fmt::Debug for EtcdBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdBuilder")
            .field("prefix", &self.prefix)
            .field("user", &self.login.as_ref().map(|(user, _)| user))
            .field("tls", &self.tls)
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("history", &self.history)
            .field("operations", &self.operations)
            .finish_non_exhaustive()
    }
}

/// Addresses of one cluster.
fn check_endpoints(endpoints: &[String], tls: bool) -> Result {
    if endpoints.is_empty() {
        return Err(Error::invalid("no addresses; give those of etcd's members").op("connect"));
    }
    for endpoint in endpoints {
        check_endpoint(endpoint, tls)?;
    }
    let secured = endpoints.iter().filter(|endpoint| endpoint.starts_with("https")).count();
    if secured != 0 && secured != endpoints.len() {
        let mixed =
            "some addresses begin with https and some with http; give all members TLS, or none";
        return Err(Error::invalid(mixed).op("connect"));
    }
    Ok(())
}

/// The addresses of texts that may have several.
fn each(texts: impl Iterator<Item = String>) -> Vec<String> {
    let each = |text: String| text.split(',').map(|one| one.trim().to_owned()).collect::<Vec<_>>();
    texts.flat_map(each).collect()
}

/// `http://host:port` or `https://host:port`, and nothing else.
fn check_endpoint(endpoint: &str, tls: bool) -> Result {
    // The part before an @ may contain a password.
    let shown = endpoint.rsplit('@').next().unwrap_or_default();
    let invalid = |why: &str| {
        let text = format!("the address {shown:?} {why}; write it as http://host:2379");
        Err(Error::invalid(text).op("connect"))
    };
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    if scheme != "http" && scheme != "https" {
        return invalid("begins with neither http:// nor https://");
    }
    if rest.contains('@') {
        return invalid("contains a login; give the login to `EtcdBuilder::login`");
    }
    let host = rest.trim_end_matches('/');
    if host.is_empty() || host.contains(['/', '?', '#', ' ']) {
        return invalid("is not a host and a port");
    }
    if tls && scheme == "http" {
        return invalid("begins with http, but certificates are given");
    }
    Ok(())
}

impl Store {
    /// Makes sure that the namespace exists with a version that this build may use, and can be written.
    /// An older version becomes this one: the keys need no other change.
    async fn check_version(&self, timeout: Duration) -> Result {
        const OP: &str = "connect";
        let mut expected = LAYOUT.to_string();
        loop {
            let key = self.keys.version();
            let put = || TxnOp::put(key.clone(), LAYOUT.to_string(), None);
            let txn = Txn::new()
                .when([Compare::value(key.clone(), CompareOp::Equal, expected)])
                // Written in any case: a user who may only read receives an error now.
                .and_then([put(), TxnOp::get(self.keys.page_hint(), None)])
                .or_else([TxnOp::txn(
                    Txn::new()
                        .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
                        .and_then([put()])
                        .or_else([TxnOp::get(key.clone(), None)]),
                )]);
            let reply = self.client.call_within(OP, timeout, move |client| {
                let txn = txn.clone();
                async move { kv(&client).txn(txn).await }
            });
            let reply = reply.await?;
            if reply.succeeded() {
                let hint = gets(&reply).into_iter().next();
                if let Some(hint) = hint.as_ref().and_then(|hint| hint.kvs().first()) {
                    self.name_pages.learn(hint.value());
                }
                return Ok(());
            }
            let Some(TxnOpResponse::Txn(inner)) = reply.op_responses().into_iter().next() else {
                return Err(unexpected_response(OP));
            };
            if inner.succeeded() {
                return Ok(());
            }
            let found = gets(&inner).into_iter().next();
            let found = found.and_then(|get| Some(get.kvs().first()?.value().to_vec()));
            let found = String::from_utf8_lossy(&found.unwrap_or_default()).into_owned();
            if Layout::from_text(&found).is_some_and(|older| older.version < LAYOUT.version) {
                expected = found;
                continue;
            }
            return Layout::refusal_of(&found, LAYOUT.version).map_or(Ok(()), |refusal| {
                Err(Error::invalid(format!("the keys under {:?} {refusal}", self.keys.all()))
                    .op(OP))
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for good in ["http://127.0.0.1:2379", "http://[::1]:2379/", "http://etcd"] {
            assert!(check_endpoint(good, false).is_ok(), "{good}");
        }
        for bad in ["", "127.0.0.1:2379", "ftp://host", "http://", "http://h/path", "http://a b"] {
            assert!(check_endpoint(bad, false).is_err(), "{bad}");
        }
        assert!(check_endpoint("https://h", true).is_ok());
        assert!(check_endpoint("http://h", true).is_err(), "certificates are not ignored");
    }

    #[test]
    fn one_text_may_have_several_addresses() {
        let each =
            each(["https://a:2379,https://b:2379", "https://c"].into_iter().map(String::from));
        assert_eq!(each, ["https://a:2379", "https://b:2379", "https://c"]);
    }

    #[test]
    fn addresses_are_all_of_one_kind() {
        let mixed = ["https://a", "http://b"].map(String::from);
        assert!(check_endpoints(&mixed, false).is_err());
    }

    #[test]
    fn secrets_are_not_shown() {
        let error = check_endpoint("http://me:sentinel@host:1", false).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("sentinel"), "{error:?}");
        let tls = Tls::new().identity("sentinel", "sentinel").authority("sentinel");
        let builder = Etcd::builder().login("me", "sentinel").tls(tls);
        let shown = format!("{builder:?}");
        assert!(!shown.contains("sentinel") && shown.contains("me"), "{shown}");
    }
}
