//! Calls to the servers of a store.

use crate::{
    cluster::{Cluster, slot_of},
    driver::{Driver, now, until},
    script::{Call, Confirm},
    sentinels::Sentinels,
    server::{Failure, Line, Server, lock, pipeline, reply_at},
};
use allora_core::Result;
use futures::{
    StreamExt,
    channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded},
    future::select,
};
use redis::{
    Arg, Cmd, ErrorKind, FromRedisValue, Msg, RedisError, RedisResult, ServerErrorKind, Value,
};
use std::{
    pin::pin,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// The servers of an installation.
#[derive(Clone)]
pub(crate) enum Servers {
    /// One server.
    One(Arc<Server>),
    /// The server that the sentinels name as the primary.
    Sentinel(Arc<Sentinels>),
    /// The servers of a cluster, each with its slots.
    Cluster(Arc<Cluster>),
}

/// The reply to a request, and the number of replicas that have what it wrote, if that was asked.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) value: Value,
    pub(crate) replicas: Option<u32>,
}

/// All connections of a store.
pub(crate) struct Connection {
    driver: Driver,
    servers: Servers,
    /// The longest time to wait for a connection, and for a reply.
    pub(crate) timeout: Duration,
    subscribing: Arc<Mutex<Subscribing>>,
}

/// The messages of a channel; the first one is `None`, when the subscription begins.
pub(crate) type Messages = UnboundedReceiver<Option<Msg>>;

#[derive(Default)]
struct Subscribing {
    is_running: bool,
    /// The reason why the last attempt failed.
    failure: Option<Failure>,
    /// A subscription that was not taken yet.
    ready: Option<Messages>,
}

impl Connection {
    /// # Errors
    /// `Other` if the thread of the connections cannot be started.
    pub(crate) fn new(servers: Servers, timeout: Duration) -> Result<Self> {
        let driver = Driver::start()?;
        match &servers {
            Servers::One(_) => {}
            Servers::Sentinel(sentinels) => drop(driver.run(sentinels.clone().follow())),
            Servers::Cluster(cluster) => drop(driver.run(cluster.clone().follow())),
        }
        Ok(Self { driver, servers, timeout, subscribing: Arc::default() })
    }

    /// Calls a script; sends its text if the server does not know it.
    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<Response, Failure> {
        let within = call.within.unwrap_or(self.timeout);
        let send = |command| self.request(command, call.confirm, within);
        match send(call.first()).await {
            Err(failure) if is_unknown_script(&failure.cause) => send(call.with_text()).await,
            response => response,
        }
    }

    /// Sends a command; in a cluster, to the server of its first key.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, Failure> {
        Ok(self.request(command.clone(), None, self.timeout).await?.value)
    }

    /// As [`send`](Self::send), with the reply as a `T`.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Failure> {
        let value = self.send(command).await?;
        Ok(T::from_redis_value(value).map_err(RedisError::from)?)
    }

    async fn request(
        &self,
        command: Cmd,
        confirm: Option<Confirm>,
        within: Duration,
    ) -> Result<Response, Failure> {
        let servers = self.servers.clone();
        let request = self.driver.run(async move {
            let end = now() + within;
            servers.request(command, confirm, end).await
        });
        request.await.unwrap_or_else(|_| Err(ended().into()))
    }

    /// Sends a command to the server, in a cluster to every primary, and returns each one's reply.
    pub(crate) async fn ask_each<T: FromRedisValue>(
        &self,
        command: &Cmd,
    ) -> Result<Vec<T>, Failure> {
        let (servers, command, timeout) = (self.servers.clone(), command.clone(), self.timeout);
        let asking = self.driver.run(async move {
            let end = now() + timeout;
            let servers = match &servers {
                Servers::One(server) => vec![server.clone()],
                Servers::Sentinel(sentinels) => vec![sentinels.primary(end).await?],
                Servers::Cluster(cluster) => cluster.primaries(end).await?,
            };
            let commands = pipeline([command]);
            let mut each = Vec::with_capacity(servers.len());
            for server in servers {
                let mut replies = server.send(Line::Plain, &commands, end).await?;
                let place = Some(server.place.clone());
                each.push(reply_at(&mut replies, 0).map_err(|cause| Failure { place, cause })?);
            }
            Ok::<_, Failure>(each)
        });
        let each: Vec<Value> = asking.await.unwrap_or_else(|_| Err(ended().into()))?;
        let each = each.into_iter().map(|reply| Ok(T::from_redis_value(reply)?));
        Ok(each.collect::<RedisResult<_>>()?)
    }

    /// Publishes a message. Nothing waits for it: it is a hint.
    pub(crate) fn publish(&self, channel: String, message: String) {
        let (servers, timeout) = (self.servers.clone(), self.timeout);
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel).arg(message);
        drop(self.driver.run(async move {
            let end = now() + timeout;
            // A message to one node of a cluster arrives at the subscribers of every node.
            let sent = match &servers {
                Servers::Cluster(cluster) => match cluster.nodes().first() {
                    Some(node) => node.send(Line::Plain, &pipeline([publish]), end).await,
                    None => return,
                },
                servers => servers.send(Line::Plain, vec![publish], end).await,
            };
            drop(sent);
        }));
    }

    /// A subscription to one channel, which begins in the background: no call waits for it.
    ///
    /// # Errors
    /// The failure of the last attempt, until one has succeeded.
    pub(crate) fn subscribe(&self, channel: &str) -> Result<Messages, Failure> {
        let mut state = lock(&self.subscribing);
        if let Some(ready) = state.ready.take() {
            return Ok(ready);
        }
        let failure = state.failure.clone();
        if state.is_running && failure.is_some() {
            return failure.map_or_else(|| Err(ended().into()), Err);
        }
        state.is_running = true;
        let (sender, messages) = unbounded();
        let (servers, timeout) = (self.servers.clone(), self.timeout);
        let (channel, subscribing) = (channel.to_owned(), self.subscribing.clone());
        let Some(failure) = failure else {
            drop(self.driver.run(async move {
                let failed = listen(&servers, &channel, sender, timeout, || {}).await.err();
                let mut state = lock(&subscribing);
                (state.is_running, state.failure) = (false, failed);
            }));
            return Ok(messages);
        };
        // The messages wait for the next subscriber.
        drop(self.driver.run(async move {
            let keep = || {
                let mut state = lock(&subscribing);
                *state = Subscribing { ready: Some(messages), ..Subscribing::default() };
            };
            if let Err(failure) = listen(&servers, &channel, sender, timeout, keep).await {
                let mut state = lock(&subscribing);
                (state.is_running, state.failure) = (false, Some(failure));
            }
        }));
        Err(failure)
    }
}

impl Servers {
    /// Sends a command. To be confirmed, it goes with `WAIT` on one connection, so that the server
    /// that takes the write is the one that asks its replicas.
    async fn request(
        &self,
        command: Cmd,
        confirm: Option<Confirm>,
        end: Instant,
    ) -> Result<Response, Failure> {
        let Some(Confirm { replicas, within }) = confirm else {
            let mut replies = self.send(Line::Plain, vec![command], end).await?;
            return Ok(Response { value: reply_at(&mut replies, 0)?, replicas: None });
        };
        let mut wait = redis::cmd("WAIT");
        wait.arg(replicas).arg(u64::try_from(within.as_millis().max(1)).unwrap_or(u64::MAX));
        // Replicas confirm the writes of one connection. The first write makes them confirm also what
        // an earlier connection wrote.
        let mut mark = redis::cmd("HINCRBY");
        mark.arg(key_of(&command).unwrap_or_default()).arg("confirmed").arg(1);
        let mut replies = self.send(Line::Confirming, vec![mark, command, wait], end).await?;
        reply_at(&mut replies, 0)?;
        let value = reply_at(&mut replies, 1)?;
        // A server that became a replica in between refuses to wait.
        let count = reply_at(&mut replies, 2).and_then(|reply| Ok(u32::from_redis_value(reply)?));
        let count = count.unwrap_or(0);
        if count < replicas {
            match self {
                Self::One(_) => {}
                Self::Sentinel(sentinels) => sentinels.watcher.request(),
                Self::Cluster(cluster) => cluster.watcher.request(),
            }
        }
        Ok(Response { value, replicas: Some(count) })
    }

    async fn send(
        &self,
        line: Line,
        commands: Vec<Cmd>,
        end: Instant,
    ) -> Result<Vec<Value>, Failure> {
        match self {
            Self::One(server) => server.send(line, &pipeline(commands), end).await,
            Self::Sentinel(sentinels) => sentinels.send(line, &pipeline(commands), end).await,
            Self::Cluster(cluster) => {
                let slot = commands.first().and_then(key_of).map_or(0, |key| slot_of(&key));
                cluster.send(line, slot, &commands, end).await
            }
        }
    }
}

/// Subscribes, and passes messages on until the connection ends, the server is replaced or the
/// receiver is dropped. Calls `begun` when the subscription has begun.
async fn listen(
    servers: &Servers,
    channel: &str,
    messages: UnboundedSender<Option<Msg>>,
    timeout: Duration,
    begun: impl FnOnce(),
) -> Result<(), Failure> {
    let servers = match servers {
        Servers::One(server) => vec![server.clone()],
        Servers::Sentinel(sentinels) => vec![sentinels.primary(now() + timeout).await?],
        Servers::Cluster(cluster) => cluster.nodes(),
    };
    let none = || RedisError::from((ErrorKind::Io, "no node is known"));
    let mut failure = Failure::from(none());
    for server in servers {
        let subscribed = until(now() + timeout, async {
            let mut listening = server.client.get_async_pubsub().await?;
            listening.subscribe(channel).await?;
            Ok(listening)
        });
        match subscribed.await {
            Ok(listening) => {
                if messages.unbounded_send(None).is_err() {
                    return Ok(());
                }
                begun();
                let passing = pin!(async {
                    let mut received = listening.into_on_message();
                    while let Some(message) = received.next().await {
                        if messages.unbounded_send(Some(message)).is_err() {
                            return;
                        }
                    }
                });
                select(passing, pin!(server.retired())).await;
                return Ok(());
            }
            Err(cause) => failure = Failure { place: Some(server.place.clone()), cause },
        }
    }
    Err(failure)
}

/// The first key of a command.
fn key_of(command: &Cmd) -> Option<Vec<u8>> {
    let word = |i| match command.args_iter().nth(i) {
        Some(Arg::Simple(word)) => Some(word.to_vec()),
        _ => None,
    };
    match word(0)?.as_slice() {
        b"EVAL" | b"EVALSHA" => word(3),
        _ => word(1),
    }
}

/// The thread of the connections has ended: the store is being dropped.
fn ended() -> RedisError {
    RedisError::from((ErrorKind::Io, "the thread of the connections has ended"))
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
