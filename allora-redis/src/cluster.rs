//! The nodes of a cluster, each with its slots.
//!
//! The map of the slots is read again when a node fails, redirects or refuses: all nodes that are
//! known are asked at the same time, and the answer with the highest epoch counts. A node that hangs
//! delays only the calls to its own slots.

use crate::{
    driver::{now, sleep},
    epoch::Epoch,
    sentinels::{Address, MakeServer},
    server::{Failure, Line, Server, is_demoted, is_lost, lock, pipeline, reply_at},
    watcher::Watcher,
};
use futures::future::join_all;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind, Value};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// The time between two reads of the map while a node is failing.
const RETRY: Duration = Duration::from_millis(250);

/// The time between two reads of the map: redirections and failures bring another one forward.
const PERIOD: Duration = Duration::from_secs(60);

/// The wait before a command is sent again to a slot that is moving.
const MOVING: Duration = Duration::from_millis(25);

/// The most redirections of one request.
const MAX_REDIRECTIONS: u32 = 16;

pub(crate) struct Cluster {
    /// The nodes that were configured.
    seeds: Vec<Address>,
    server: MakeServer,
    timeout: Duration,
    map: Mutex<Map>,
    /// The reason why there is no map.
    failure: Mutex<Option<Failure>>,
    pub(crate) watcher: Watcher,
}

#[derive(Default)]
struct Map {
    epoch: Epoch,
    ranges: Vec<Range>,
    /// The slots that a node has redirected since.
    moved: HashMap<u16, Address>,
    servers: HashMap<Address, Arc<Server>>,
}

#[derive(Debug)]
struct Range {
    slots: std::ops::RangeInclusive<u16>,
    primary: Address,
    replicas: Vec<Address>,
}

impl Map {
    fn owner(&self, slot: u16) -> Option<&Address> {
        let range = || self.ranges.iter().find(|range| range.slots.contains(&slot));
        self.moved.get(&slot).or_else(|| range().map(|range| &range.primary))
    }
}

impl Cluster {
    pub(crate) fn new(seeds: Vec<Address>, server: MakeServer, timeout: Duration) -> Self {
        Self {
            seeds,
            server,
            timeout,
            map: Mutex::default(),
            failure: Mutex::default(),
            watcher: Watcher::default(),
        }
    }

    /// Sends these commands to the node of the slot.
    pub(crate) async fn send(
        &self,
        line: Line,
        slot: u16,
        commands: &[Cmd],
        end: Instant,
    ) -> Result<Vec<Value>, Failure> {
        let mut asked: Option<Arc<Server>> = None;
        let mut redirections = 0;
        loop {
            let is_asking = asked.is_some();
            let server = match asked.take() {
                Some(server) => server,
                None => self.owner(slot, end).await?,
            };
            // A node that takes over a slot accepts a command for it only after this one.
            let asking = |command: &Cmd| {
                let asking = is_asking.then(|| redis::cmd("ASKING"));
                asking.into_iter().chain([command.clone()])
            };
            let sent = pipeline(commands.iter().flat_map(asking));
            let replies = server.send(line, &sent, end).await.map(|replies| {
                let each = if is_asking { 2 } else { 1 };
                replies.into_iter().skip(each - 1).step_by(each).collect::<Vec<_>>()
            });
            let error = match replies {
                Err(failure) => {
                    if is_lost(&failure.cause) {
                        self.watcher.request();
                    }
                    return Err(failure);
                }
                Ok(replies) => {
                    let error = replies.iter().find_map(|reply| match reply {
                        Value::ServerError(error) => Some(RedisError::from(error.clone())),
                        _ => None,
                    });
                    match error.filter(is_redirection) {
                        Some(error) => error,
                        None => return Ok(replies),
                    }
                }
            };
            let failed = |cause| Failure { place: Some(server.place.clone()), cause };
            redirections += 1;
            if redirections > MAX_REDIRECTIONS && error.redirect_node().is_some() {
                return Err(failed(error));
            }
            match (error.kind(), target(&error, &server)) {
                (ErrorKind::Server(ServerErrorKind::Moved), Some(address)) => {
                    lock(&self.map).moved.insert(slot, address);
                    self.watcher.request();
                }
                (ErrorKind::Server(ServerErrorKind::Ask), Some(address)) => {
                    asked = Some(self.server(&address)?);
                }
                // The slot is in two places, or its node is being replaced.
                _ => {
                    self.watcher.request();
                    if now() + MOVING >= end {
                        return Err(failed(error));
                    }
                    sleep(MOVING).await;
                }
            }
        }
    }

    /// The node of a slot.
    pub(crate) async fn owner(&self, slot: u16, end: Instant) -> Result<Arc<Server>, Failure> {
        for is_last in [false, true] {
            let owner = lock(&self.map).owner(slot).cloned();
            if let Some(address) = owner {
                return self.server(&address);
            }
            if !is_last {
                self.watcher.check(end).await;
            }
        }
        let none = || RedisError::from((ErrorKind::Io, "no node has this slot")).into();
        Err(lock(&self.failure).clone().unwrap_or_else(none))
    }

    fn server(&self, address: &Address) -> Result<Arc<Server>, Failure> {
        let mut map = lock(&self.map);
        if let Some(server) = map.servers.get(address) {
            return Ok(server.clone());
        }
        let server = (self.server)(address)?;
        map.servers.insert(address.clone(), server.clone());
        Ok(server)
    }

    /// All primaries.
    pub(crate) async fn primaries(&self, end: Instant) -> Result<Vec<Arc<Server>>, Failure> {
        self.owner(0, end).await?;
        let mut primaries: Vec<Address> =
            lock(&self.map).ranges.iter().map(|range| range.primary.clone()).collect();
        primaries.sort_unstable();
        primaries.dedup();
        primaries.iter().map(|address| self.server(address)).collect()
    }

    /// All nodes, those that reply first.
    pub(crate) fn nodes(&self) -> Vec<Arc<Server>> {
        let mut nodes = self.known_nodes();
        nodes.sort_by_key(|(_, server)| server.is_failing());
        nodes.into_iter().map(|(_, server)| server).collect()
    }

    fn known_nodes(&self) -> Vec<(Address, Arc<Server>)> {
        let mut all: Vec<Address> = self.seeds.clone();
        for range in &lock(&self.map).ranges {
            all.extend([&range.primary].into_iter().chain(&range.replicas).cloned());
        }
        all.sort_unstable();
        all.dedup();
        let servers = all.into_iter().filter_map(|address| {
            let server = self.server(&address).ok()?;
            Some((address, server))
        });
        servers.collect()
    }

    /// Reads the map again and again.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            let begun = now();
            let wait = self.read_map().await;
            self.watcher.checked(begun, wait).await;
        }
    }

    /// Reads the map once. Returns the longest time to the next read.
    async fn read_map(&self) -> Duration {
        // One that hangs has a fraction of the time.
        let end = now() + self.timeout / 4;
        let nodes = self.known_nodes();
        let answers = nodes.iter().map(|(address, server)| ask(address, server, end));
        let (mut best, mut count) = (None::<(u64, Vec<Range>)>, 0);
        for answer in join_all(answers).await {
            match answer {
                Ok((epoch, ranges)) => {
                    count += 1;
                    if best.as_ref().is_none_or(|(other, _)| epoch > *other) {
                        best = Some((epoch, ranges));
                    }
                }
                Err(failure) => *lock(&self.failure) = Some(failure),
            }
        }
        let mut map = lock(&self.map);
        let Some((epoch, ranges)) = best else { return RETRY };
        // A node that is cut off does not know the last failover.
        if map.epoch.follows(epoch, count * 2 > nodes.len(), now()) {
            map.ranges = ranges;
            map.moved.clear();
            let Map { ranges, servers, .. } = &mut *map;
            let is_primary =
                |address: &Address| ranges.iter().any(|range| range.primary == *address);
            // Calls that wait for a replaced node are sent again, to the other one.
            servers.retain(|address, server| {
                let stays = is_primary(address) || !server.is_failing();
                if !stays {
                    server.retire();
                }
                stays
            });
        }
        let is_failing = |range: &Range| {
            map.servers.get(&range.primary).is_some_and(|server| server.is_failing())
        };
        if map.ranges.is_empty() || map.ranges.iter().any(is_failing) { RETRY } else { PERIOD }
    }
}

/// Asks one node for its map and its epoch.
async fn ask(
    address: &Address,
    server: &Arc<Server>,
    end: Instant,
) -> Result<(u64, Vec<Range>), Failure> {
    let command = |what: &str| {
        let mut command = redis::cmd("CLUSTER");
        command.arg(what);
        command
    };
    let both = pipeline([command("INFO"), command("SLOTS")]);
    let mut replies = server.send(Line::Plain, &both, end).await?;
    let answer = (|| {
        let info = String::from_redis_value(reply_at(&mut replies, 0)?)?;
        let mut lines = info.lines();
        let epoch = lines.find_map(|line| line.strip_prefix("cluster_current_epoch:"));
        let epoch = epoch.and_then(|epoch| epoch.trim().parse().ok()).unwrap_or(0);
        Ok((epoch, ranges(reply_at(&mut replies, 1)?, &address.0)?))
    })();
    answer.map_err(|cause| Failure { place: Some(server.place.clone()), cause })
}

/// The reply to `CLUSTER SLOTS` of the node with this host.
fn ranges(reply: Value, host: &str) -> RedisResult<Vec<Range>> {
    let wrong = || RedisError::from((ErrorKind::Parse, "the map of the slots cannot be read"));
    let Value::Array(all) = reply else { return Err(wrong()) };
    let read = all.into_iter().filter_map(|range| {
        let Value::Array(range) = range else { return Some(Err(wrong())) };
        let [Value::Int(first), Value::Int(last), nodes @ ..] = &*range else {
            return Some(Err(wrong()));
        };
        let (Ok(first), Ok(last)) = (u16::try_from(*first), u16::try_from(*last)) else {
            return Some(Err(wrong()));
        };
        let mut nodes = nodes.iter().filter_map(|node| node_address(node, host));
        let primary = nodes.next()?;
        Some(Ok(Range { slots: first..=last, primary, replicas: nodes.collect() }))
    });
    read.collect()
}

/// The address of a node in that reply; `None` if it is not known.
fn node_address(node: &Value, host: &str) -> Option<Address> {
    let Value::Array(node) = node else { return None };
    let [name, Value::Int(port), ..] = &**node else { return None };
    let port = u16::try_from(*port).ok()?;
    // Without a name, the node has that of the one that answers.
    match name {
        Value::Nil => Some((host.to_owned(), port)),
        Value::BulkString(name) => match std::str::from_utf8(name).ok()? {
            "?" => None,
            "" => Some((host.to_owned(), port)),
            name => Some((name.to_owned(), port)),
        },
        _ => None,
    }
}

/// True if the same command may succeed on another node, or a little later.
fn is_redirection(error: &RedisError) -> bool {
    let is_kind = |kind| {
        matches!(
            kind,
            ServerErrorKind::Moved
                | ServerErrorKind::Ask
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::BusyLoading
        )
    };
    matches!(error.kind(), ErrorKind::Server(kind) if is_kind(kind))
        || is_demoted(error)
        || is_half_moved(error)
}

/// True if a script does not find all of its keys, because some have moved to another node.
pub(crate) fn is_half_moved(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain)
        || error.detail().is_some_and(|detail| detail.contains("non local key"))
}

/// The node to which an error redirects.
fn target(error: &RedisError, server: &Server) -> Option<Address> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match host {
        "" => match server.client.get_connection_info().addr() {
            redis::ConnectionAddr::Tcp(host, _) | redis::ConnectionAddr::TcpTls { host, .. } => {
                host.clone()
            }
            _ => return None,
        },
        host => host.to_owned(),
    };
    Some((host, port))
}

/// The slot of a key: CRC-16/XMODEM of its hash tag, or of the key without one.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = || {
        let from = key.iter().position(|byte| *byte == b'{')? + 1;
        let length = key[from..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &key[from..from + length])
    };
    let mut crc = 0_u16;
    for byte in tag().unwrap_or(key) {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // `CLUSTER KEYSLOT` of Redis 7.0.15.
        for (key, slot) in
            [("123456789", 12_739), ("somekey", 11_058), ("foo{hash_tag}", 2_515), ("{}:x", 5_106)]
        {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(slot_of(b"{p:2}:due:a"), slot_of(b"p:2"));
    }

    #[test]
    fn a_map_is_read_with_names_that_are_missing() {
        let node = |name, port| Value::Array(vec![name, Value::Int(port)]);
        let name = |name: &str| Value::BulkString(name.into());
        let range = |first, last, nodes: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
        };
        let reply = Value::Array(vec![
            range(0, 9, vec![node(name("a"), 1), node(name("?"), 2)]),
            range(10, 19, vec![node(Value::Nil, 3), node(name(""), 4)]),
            range(20, 29, vec![node(name("?"), 5)]),
        ]);
        let read = ranges(reply, "me").unwrap();
        let read: Vec<(&str, u16, usize)> = read
            .iter()
            .map(|range| (&*range.primary.0, range.primary.1, range.replicas.len()))
            .collect();
        assert_eq!(read, [("a", 1, 0), ("me", 3, 1)]);
        assert!(ranges(Value::Nil, "me").is_err());
    }
}
