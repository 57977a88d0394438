//! Opening a quorum.

use super::{
    RedisQuorum,
    backend::invalid_setting,
    inner::Inner,
    noop_proposals::NoopProposals,
    proposer::majority,
    server::{Fault, Server},
    unacknowledged::Unacknowledged,
    wire::ServerConnection,
};
use allora_core::{Error, ErrorKind, Result, Runtime, runtime};
use allora_redis::{
    Client, TlsCertificates,
    internal::{
        check_prefix, check_version, connection_info, install_crypto, refused, security_warning,
    },
};
use futures::{
    StreamExt,
    future::{BoxFuture, Either, select},
    stream::FuturesUnordered,
};
use redis::InfoDict;
use std::{
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

/// The longest time that a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// The longest wait for the other servers after a majority has answered.
const GRACE: Duration = Duration::from_millis(250);

/// Opens a quorum; see [`RedisQuorum::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct QuorumBuilder {
    prefix: String,
    deadline: Duration,
    names: Option<Vec<String>>,
    runtime: Option<Arc<dyn Runtime>>,
    certificates: Option<TlsCertificates>,
}

impl Default for QuorumBuilder {
    fn default() -> Self {
        let deadline = Duration::from_millis(250);
        Self { prefix: "allora".into(), deadline, names: None, runtime: None, certificates: None }
    }
}

impl QuorumBuilder {
    /// The store's namespace, and the beginning of its one key on each server: stores of two
    /// prefixes do not see each other. `^[a-z_][a-z0-9_]{0,39}$`. Default: `allora`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The time that one server has to answer. Default: 250 ms. Range: 10 ms to 1 s, and at most a
    /// twentieth of the shortest lease. A server that hangs delays one call by that much, and no
    /// further call until it answers again.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The servers' names, in the order of their URLs, for nodes that reach the same servers at
    /// different addresses. Default: host, port and database. Every node, and the program that
    /// calls [`init`](RedisQuorum::init), must give the same names.
    pub fn names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.names = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// The authority to trust in place of the system's, and the client's certificate. Every URL
    /// must then begin with `rediss://`.
    pub fn certificates(mut self, certificates: TlsCertificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// The source of sleep, tasks and random numbers. Default: the
    /// [detected](allora_core::runtime::detect) runtime.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Connects to three or five servers, `redis://` or `rediss://`, and checks those that answer.
    /// A majority must answer. They need not be initialised yet; see [`init`](RedisQuorum::init).
    ///
    /// # Errors
    /// `Invalid` for another number of servers, a server that is given twice, a bad URL or setting,
    /// a wrong password or database, a certificate that is not trusted, a server older than 6.2, a
    /// replica, or a node of a cluster. `Unavailable` if fewer than a majority answer. No message
    /// contains a password.
    ///
    /// # Cancel safety
    /// Nothing is changed on any server.
    pub async fn connect<U: AsRef<str>>(self, urls: &[U]) -> Result<RedisQuorum> {
        let n = urls.len();
        if !matches!(n, 3 | 5) {
            return Err(invalid_setting(format!(
                "{n} servers; give 3 or 5: one more than an odd number tolerates nothing more"
            )));
        }
        self.check()?;
        install_crypto();
        let (mut servers, mut infos) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for (i, url) in urls.iter().enumerate() {
            let number = i + 1;
            let info = connection_info(url.as_ref(), self.certificates.as_ref())
                .map_err(|error| invalid_setting(format!("the URL of server {number}: {error}")))?;
            infos.push(info.clone());
            // Without its cause, which may repeat the URL and the password in it.
            let client = Client::open(info)
                .map_err(|_| invalid_setting(format!("the URL of server {number} is unusable")))?;
            let info = client.get_connection_info();
            let address = format!("{}/{}", info.addr(), info.redis_settings().db());
            servers.push(Server::new(address, ServerConnection::new(client)));
        }
        let names = match &self.names {
            Some(names) => names.clone(),
            None => servers.iter().map(|server| server.address.clone()).collect(),
        };
        let places = places(&names, n)?;
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => runtime::detect()?,
        };
        let inner = Arc::new(Inner {
            key: format!("{}:quorum", self.prefix),
            prefix: self.prefix,
            servers,
            places,
            deadline: self.deadline,
            proposer: runtime.random(),
            runtime,
            round: AtomicU64::new(0),
            cluster_id: Mutex::new(None),
            security_warning: security_warning(&infos),
            unacknowledged: Unacknowledged::default(),
            noop_proposals: NoopProposals::default(),
        });
        inspect(&inner).await?;
        Ok(RedisQuorum { inner })
    }

    fn check(&self) -> Result {
        check_prefix(&self.prefix)?;
        let range = Duration::from_millis(10)..=Duration::from_secs(1);
        if !range.contains(&self.deadline) {
            let asked = self.deadline;
            return Err(invalid_setting(format!("a deadline of {asked:?}; give 10 ms to 1 s")));
        }
        Ok(())
    }
}

/// The place that each server receives: its number, and all names.
fn places(names: &[String], n: usize) -> Result<Vec<String>> {
    if names.len() != n {
        let given = names.len();
        return Err(invalid_setting(format!("{given} names for {n} servers; give one for each")));
    }
    for (i, name) in names.iter().enumerate() {
        if name.is_empty() || name.contains(['|', '\n']) {
            return Err(invalid_setting(format!(
                "{name:?} cannot name a server: empty, or with a | in it"
            )));
        }
        if names[..i].contains(name) {
            return Err(invalid_setting(format!("the server {name} is given twice")));
        }
    }
    Ok((1..=n).map(|i| format!("{i}|{}", names.join("|"))).collect())
}

/// Checks every server that answers until shortly after a majority has.
async fn inspect(inner: &Arc<Inner>) -> Result {
    let n = inner.servers.len();
    let mut asked: FuturesUnordered<_> = inner
        .servers
        .iter()
        .map(async |server| (server, server.info(&*inner.runtime, CONNECT).await))
        .collect();
    let mut seen: Vec<(String, &str)> = Vec::new();
    let mut silent = String::new();
    let mut grace: Option<BoxFuture<'_, ()>> = None;
    loop {
        let next = match &mut grace {
            None => asked.next().await,
            Some(end) => match select(asked.next(), end).await {
                Either::Left((next, _)) => next,
                Either::Right(_) => break,
            },
        };
        let Some((server, info)) = next else { break };
        let address = server.address.as_str();
        match info {
            Ok(info) => {
                let run = check(address, &info)?;
                if let Some((_, other)) = seen.iter().find(|(other, _)| *other == run) {
                    return Err(invalid_setting(format!(
                        "{other} and {address} are the same server"
                    )));
                }
                seen.push((run, address));
            }
            Err(Fault::Failed(cause)) => {
                let error = refused(address, cause);
                if error.kind() == ErrorKind::Invalid {
                    return Err(error);
                }
                silent += &format!("; {error}");
            }
            Err(fault) => silent += &format!("; {address}: {fault}"),
        }
        if grace.is_none() && seen.len() >= majority(n) {
            let end = inner.runtime.now() + inner.deadline.min(GRACE);
            grace = Some(inner.runtime.sleep_until(end));
        }
    }
    drop(asked);
    for server in &inner.servers {
        if !seen.iter().any(|(_, address)| *address == server.address) {
            // No call waits for it before it has answered again.
            server.back_off(&*inner.runtime);
        }
    }
    if seen.len() < majority(n) {
        let few = format!("{} of {n} servers answered{silent}", seen.len());
        return Err(Error::new(ErrorKind::Unavailable, few).op("connect"));
    }
    Ok(())
}

/// Checks that a server can vote, and returns its run id.
fn check(address: &str, info: &InfoDict) -> Result<String> {
    let told = |name: &str| info.get::<String>(name).unwrap_or_default();
    check_version(address, &told("redis_version"))?;
    if told("redis_mode") != "standalone" {
        let mode = told("redis_mode");
        let wants = "a quorum is of standalone servers";
        return Err(invalid_setting(format!("{address} runs as {mode}; {wants}")));
    }
    if told("role") != "master" {
        return Err(invalid_setting(format!(
            "{address} is a replica; give servers that replicate nothing"
        )));
    }
    Ok(told("run_id"))
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn a_place_says_which_of_all_the_servers_it_is() {
        let names = ["a", "b", "c"].map(String::from);
        assert_eq!(places(&names, 3).unwrap()[1], "2|a|b|c");
        for bad in [["a", "b", "a"], ["a", "", "c"], ["a", "b|c", "d"]] {
            assert!(places(&bad.map(String::from), 3).is_err(), "{bad:?}");
        }
        assert!(places(&names, 5).is_err());
    }
}
