//! How a store is opened: by the members' addresses, with a builder, or over a client that is
//! there already.

use crate::{
    Etcd,
    driver::{Driver, Reach, kv},
    error::strange,
    exchange::gets,
    keys::Keys,
    marks::Marks,
    store::Store,
};
use allora_core::{Error, Result};
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, Identity, TlsOptions, Txn, TxnOp,
    TxnOpResponse,
};
use std::{fmt, sync::Arc, time::Duration};

/// The layout's version.
const VERSION: &str = "1";

/// Opens a store; see [`Etcd::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    prefix: String,
    login: Option<(String, String)>,
    tls: Option<Tls>,
    timeout: Duration,
    connect_timeout: Duration,
    history: usize,
    operations: usize,
    handle: Option<tokio::runtime::Handle>,
}

/// What is needed beyond the system's certificates to talk to members whose addresses begin with
/// `https`.
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

    /// Trusts this authority, too: a certificate in PEM.
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// Shows this certificate to the members, which is proved by this key: both in PEM.
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// The name that the members' certificates have, where it is not that of the address.
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

impl Default for Builder {
    fn default() -> Self {
        Self {
            prefix: "allora".into(),
            login: None,
            tls: None,
            timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            history: 0,
            operations: 128,
            handle: None,
        }
    }
}

impl Builder {
    /// Everything is kept under this word and a slash, and it is the store's namespace: two
    /// prefixes are invisible to each other. `^[a-z_][a-z0-9_]{0,39}$`; `allora` unless given.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Logs in. The user's role must be allowed to read and write every key under the prefix and
    /// a slash, and needs nothing else.
    pub fn login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Some((user.into(), password.into()));
        self
    }

    /// With these certificates; only for addresses that begin with `https`, for which the system's
    /// are used unless others are given.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// How long a call may take before it counts as unanswered, 50 ms to 10 min; 1 s unless given.
    /// Longer than an election takes is of no use: the next call goes to another member.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long to try to connect, 50 ms to 10 min; 5 s unless given.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Keeps the newest `entries` of history, at most 100 000; 0 keeps none, which is the default.
    /// A tenth more may be there for a while. etcd keeps all of its data in memory and every change
    /// of it until it is compacted: keep this small.
    pub fn history(mut self, entries: usize) -> Self {
        self.history = entries;
        self
    }

    /// How many operations the members allow in one transaction (their `--max-txn-ops`), 16 to
    /// 100 000; 128 unless given, as there.
    pub fn operations(mut self, operations: usize) -> Self {
        self.operations = operations;
        self
    }

    /// Talks to etcd on this tokio runtime, which must have its timers and its network on and must
    /// outlast the store, instead of on a thread of the store's own.
    pub fn handle(mut self, handle: tokio::runtime::Handle) -> Self {
        self.handle = Some(handle);
        self
    }

    /// Connects to a cluster by the addresses of its members, as `http://10.0.0.1:2379`: all of
    /// them, so that another can be asked when one does not answer. One that answers is enough.
    ///
    /// # Errors
    /// `Invalid` for a bad address or setting, a login that is refused or lacking, keys that may
    /// not be read and written, keys of a newer version. `Unavailable` if nobody answers in time,
    /// or not as an etcd does.
    ///
    /// # Cancel safety
    /// A dropped call may have written the version's key; connecting again goes on from there.
    pub async fn connect<E: Into<String>>(
        self,
        endpoints: impl IntoIterator<Item = E>,
    ) -> Result<Etcd> {
        let endpoints: Vec<String> = endpoints.into_iter().map(Into::into).collect();
        self.check()?;
        if endpoints.is_empty() {
            return Err(Error::invalid("no addresses; give those of etcd's members").op("connect"));
        }
        for endpoint in &endpoints {
            check_endpoint(endpoint, self.tls.is_some())?;
        }
        let mut options = ConnectOptions::new()
            .with_require_leader(true)
            .with_connect_timeout(self.connect_timeout.min(self.timeout))
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(3))
            .with_tcp_keepalive(Duration::from_secs(10));
        if endpoints[0].starts_with("https") {
            options = options.with_tls(self.tls.clone().unwrap_or_default().options());
        }
        if let Some((user, password)) = &self.login {
            options = options.with_user(user, password).with_auto_token_refresh(true);
        }
        self.open(Reach::At(endpoints, Box::new(options))).await
    }

    /// Works over a client that is there already, with its members, its login and its
    /// certificates. It must have been made on the runtime whose [`handle`](Self::handle) is
    /// given, or on one that lives as long.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn client(self, client: Client) -> Result<Etcd> {
        self.check()?;
        self.open(Reach::By(Box::new(client))).await
    }

    async fn open(self, reach: Reach) -> Result<Etcd> {
        let driver = Driver::new(reach, self.timeout, self.handle)?;
        let store = Store {
            driver,
            keys: Keys::new(&self.prefix),
            namespace: self.prefix,
            timeout: self.timeout,
            history: self.history,
            noted: Default::default(),
            operations: self.operations,
            marks: Marks::default(),
            bounds: Default::default(),
            known: Default::default(),
        };
        store.claim_prefix(self.connect_timeout).await.map_err(|error| {
            let all: Vec<&str> = store.driver.endpoints().collect();
            let what = format!("no store at {}", all.join(", "));
            Error::new(error.kind(), what).op("connect").source(error)
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
                "the prefix {shown:?} is not 1 to 40 of a-z, 0-9 and _ that begin with no digit"
            ));
        }
        let range = Duration::from_millis(50)..=Duration::from_secs(600);
        for asked in [self.timeout, self.connect_timeout] {
            if !range.contains(&asked) {
                return invalid(format!("a time-out of {asked:?}; give 50 ms to 10 min"));
            }
        }
        if self.history > 100_000 {
            let asked = self.history;
            return invalid(format!("{asked} entries of history; give at most 100000"));
        }
        if !(16..=100_000).contains(&self.operations) {
            let asked = self.operations;
            return invalid(format!("{asked} operations in a transaction; give 16 to 100000"));
        }
        Ok(())
    }
}

/// The driver's own `Debug` shows passwords; this does not.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
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

/// `http://host:port` or `https://host:port`, and nothing else.
fn check_endpoint(endpoint: &str, tls: bool) -> Result {
    // What stands before an @ may be a password.
    let shown = endpoint.rsplit('@').next().unwrap_or_default();
    let invalid = |why: &str| {
        let what = format!("the address {shown:?} {why}; give it as http://host:2379");
        Err(Error::invalid(what).op("connect"))
    };
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    if scheme != "http" && scheme != "https" {
        return invalid("begins with neither http:// nor https://");
    }
    if rest.contains('@') {
        return invalid("has a login in it, which belongs into `Builder::login`");
    }
    let host = rest.trim_end_matches('/');
    if host.is_empty() || host.contains(['/', '?', '#', ' ']) {
        return invalid("is not a host and a port");
    }
    if tls && scheme == "http" {
        return invalid("does not use the certificates that are given: it begins with http");
    }
    Ok(())
}

impl Store {
    /// Makes sure that the namespace is there and of our version, and that it can be written.
    async fn claim_prefix(&self, timeout: Duration) -> Result {
        const OP: &str = "connect";
        let key = self.keys.version();
        let txn = Txn::new()
            .when([Compare::value(key.clone(), CompareOp::Equal, VERSION)])
            // Written in any case: whoever may only read is told so now.
            .and_then([TxnOp::put(key.clone(), VERSION, None)])
            .or_else([TxnOp::txn(
                Txn::new()
                    .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
                    .and_then([TxnOp::put(key.clone(), VERSION, None)])
                    .or_else([TxnOp::get(key, None)]),
            )]);
        let asked = self.driver.call_within(OP, timeout, move |client| {
            let txn = txn.clone();
            async move { kv(&client).txn(txn).await }
        });
        let answer = asked.await?;
        if answer.succeeded() {
            return Ok(());
        }
        let Some(TxnOpResponse::Txn(inner)) = answer.op_responses().into_iter().next() else {
            return Err(strange(OP));
        };
        if inner.succeeded() {
            return Ok(());
        }
        let found = gets(&inner).into_iter().next();
        let found = found.and_then(|get| Some(get.kvs().first()?.value().to_vec()));
        let found = String::from_utf8_lossy(&found.unwrap_or_default()).into_owned();
        let wrong = format!(
            "the keys under {:?} have version {found:?}, and this build knows {VERSION:?}: update \
             it, or take another prefix",
            self.keys.all()
        );
        Err(Error::invalid(wrong).op(OP))
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
    fn secrets_are_not_shown() {
        let error = check_endpoint("http://me:sentinel@host:1", false).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("sentinel"), "{error:?}");
        let tls = Tls::new().identity("sentinel", "sentinel").authority("sentinel");
        let builder = Etcd::builder().login("me", "sentinel").tls(tls);
        let shown = format!("{builder:?}");
        assert!(!shown.contains("sentinel") && shown.contains("me"), "{shown}");
    }
}
