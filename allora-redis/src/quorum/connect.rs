//! How a quorum is opened.

use super::{
    Inner, RedisQuorum,
    backend::wrong,
    proposer::majority,
    server::{Fault, Server},
    unheard::Unheard,
    vain::Vain,
    wire::Line,
};
use allora_core::{Error, Kind, Result, Runtime, runtime};
use futures::{
    StreamExt,
    future::{BoxFuture, Either, select},
    stream::FuturesUnordered,
};
use redis::{Client, InfoDict};
use std::{
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

/// The oldest Redis that is known to do.
const OLDEST: (u32, u32) = (6, 2);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// How long servers are waited for when a majority has answered.
const GRACE: Duration = Duration::from_millis(250);

/// Opens a quorum; see [`RedisQuorum::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    prefix: String,
    deadline: Duration,
    names: Option<Vec<String>>,
    runtime: Option<Arc<dyn Runtime>>,
}

impl Default for Builder {
    fn default() -> Self {
        let deadline = Duration::from_millis(250);
        Self { prefix: "allora".into(), deadline, names: None, runtime: None }
    }
}

impl Builder {
    /// The store's namespace, and the beginning of its one key on each server: two prefixes are
    /// invisible to each other. `^[a-z_][a-z0-9_]{0,39}$`; `allora` unless given.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long one server may take to answer, 10 ms to 1 s; 250 ms unless given. At most a
    /// twentieth of the shortest lease. A server that hangs costs one call that much, and nothing
    /// from then on until it answers again.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// What the servers are called, in the order of their URLs: for when nodes reach the same
    /// servers at different addresses. Otherwise they are known by host, port and database. Every
    /// node, and who calls [`init`](RedisQuorum::init), must say the same.
    pub fn names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.names = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sleeps, spawns and takes random numbers by this; unless given, it is
    /// [detected](allora_core::runtime::detect).
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Connects to the servers, three or five, `redis://` or `rediss://`, and checks those that
    /// answer; a majority must. They may still have to be made a quorum, by
    /// [`init`](RedisQuorum::init).
    ///
    /// # Errors
    /// `Invalid` for another number of servers, one that is given twice, a bad URL or setting, a
    /// wrong password or database, a server older than 6.2, a replica, a node of a cluster, or a
    /// server that belongs to another quorum. `Unavailable` if fewer than a majority answer. No
    /// message has a password in it.
    ///
    /// # Cancel safety
    /// Nothing is changed on any server.
    pub async fn connect<U: AsRef<str>>(self, urls: &[U]) -> Result<RedisQuorum> {
        let n = urls.len();
        if !matches!(n, 3 | 5) {
            return Err(wrong(format!(
                "{n} servers; give 3 or 5: one more than an odd number tolerates nothing more"
            )));
        }
        self.check()?;
        let mut servers = Vec::with_capacity(n);
        for (i, url) in urls.iter().enumerate() {
            // Without its cause, which may repeat the URL and the password in it.
            let client = Client::open(url.as_ref()).map_err(|_| {
                wrong(format!("the URL of server {} is none of a Redis; redis://HOST:PORT", i + 1))
            })?;
            let info = client.get_connection_info();
            let address = format!("{}/{}", info.addr(), info.redis_settings().db());
            servers.push(Server::new(address, Line::new(client)));
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
            era: Mutex::new(None),
            unheard: Unheard::default(),
            vain: Vain::default(),
        });
        inspect(&inner).await?;
        Ok(RedisQuorum { inner })
    }

    fn check(&self) -> Result {
        let prefix = self.prefix.as_bytes();
        let first = prefix.first().is_some_and(|b| b.is_ascii_lowercase() || *b == b'_');
        let rest = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
        if !first || prefix.len() > 40 || !prefix.iter().all(rest) {
            let shown: String = self.prefix.chars().take(40).collect();
            return Err(wrong(format!(
                "the prefix {shown:?} is not 1 to 40 of a-z, 0-9 and _ that begin with no digit"
            )));
        }
        let range = Duration::from_millis(10)..=Duration::from_secs(1);
        if !range.contains(&self.deadline) {
            let asked = self.deadline;
            return Err(wrong(format!("a deadline of {asked:?}; give 10 ms to 1 s")));
        }
        Ok(())
    }
}

/// What each server is told that it is: its number, and all names.
fn places(names: &[String], n: usize) -> Result<Vec<String>> {
    if names.len() != n {
        let given = names.len();
        return Err(wrong(format!("{given} names for {n} servers; give one for each")));
    }
    for (i, name) in names.iter().enumerate() {
        if name.is_empty() || name.contains(['|', '\n']) {
            return Err(wrong(format!("{name:?} cannot name a server: empty, or with a | in it")));
        }
        if names[..i].contains(name) {
            return Err(wrong(format!("the server {name} is given twice")));
        }
    }
    Ok((1..=n).map(|i| format!("{i}|{}", names.join("|"))).collect())
}

/// Checks the servers that answer: all that do so soon after a majority has.
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
                    return Err(wrong(format!("{other} and {address} are the same server")));
                }
                seen.push((run, address));
            }
            Err(Fault::Failed(error)) if is_refusal(&error) => {
                let refused = format!("{address} refused the user, the password or the database");
                return Err(wrong(refused).source(error));
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
            // It is not to be waited for again before it answers.
            server.leave_alone(&*inner.runtime);
        }
    }
    if seen.len() < majority(n) {
        let few = format!("{} of {n} servers answered{silent}", seen.len());
        return Err(Error::new(Kind::Unavailable, few).op("connect"));
    }
    Ok(())
}

/// A server that can vote; answers with its run.
fn check(address: &str, info: &InfoDict) -> Result<String> {
    let told = |name: &str| info.get::<String>(name).unwrap_or_default();
    let version = told("redis_version");
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if (major, minor) < OLDEST {
        return Err(wrong(format!("{address} is Redis {version}; it must be 6.2 or newer")));
    }
    if told("redis_mode") != "standalone" {
        let mode = told("redis_mode");
        let wants = "a quorum is of standalone servers";
        return Err(wrong(format!("{address} runs as {mode}; {wants}")));
    }
    if told("role") != "master" {
        return Err(wrong(format!("{address} is a replica; give servers that replicate nothing")));
    }
    Ok(told("run_id"))
}

fn is_refusal(error: &redis::RedisError) -> bool {
    let code = error.code().unwrap_or_default();
    matches!(code, "WRONGPASS" | "NOAUTH" | "NOPERM")
        || error.kind() == redis::ErrorKind::AuthenticationFailed
        || error.to_string().contains("DB index is out of range")
        || error.to_string().contains("invalid DB index")
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
