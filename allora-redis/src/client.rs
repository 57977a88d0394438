//! The connection to the server: opened on first use, and opened again after it failed.

use crate::script::Call;
use futures::lock::Mutex as AsyncMutex;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError,
    RedisResult, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection, PubSub},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{
        MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr,
    },
    sentinel::SentinelClient,
};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The servers of an installation.
pub(crate) enum Target {
    /// One server.
    One(Box<Client>),
    /// The server that the sentinels name as the primary.
    Sentinel(Box<AsyncMutex<SentinelClient>>),
    /// The servers of a cluster, each with its slots.
    Cluster {
        client: Box<ClusterClient>,
        /// The nodes that were configured, for subscriptions.
        nodes: Vec<Client>,
    },
}

#[derive(Clone)]
enum Conn {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// The number of replicas that must have a write before its reply, and the time to wait for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirm {
    pub(crate) replicas: u32,
    pub(crate) within: Duration,
}

/// One connection for all calls, to one server or a cluster.
pub(crate) struct Connection {
    target: Target,
    /// The longest time to wait for a connection, and for a reply.
    timeout: Duration,
    current: Mutex<Current>,
    /// Held while one call connects; the others wait for the same connection.
    connecting: AsyncMutex<()>,
}

#[derive(Default)]
struct Current {
    number: u64,
    conn: Option<Conn>,
}

/// A call without a reply yet. Dropped in that state, it closes its connection: a connection that
/// did not reply once may never reply again.
struct Pending<'a> {
    connection: &'a Connection,
    number: u64,
    has_reply: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.has_reply {
            self.connection.disconnect(self.number);
        }
    }
}

impl Connection {
    pub(crate) fn new(target: Target, timeout: Duration) -> Self {
        Self { target, timeout, current: Mutex::default(), connecting: AsyncMutex::new(()) }
    }

    /// Calls a script; sends its text if the server does not know it.
    pub(crate) async fn call(&self, call: &Call<'_>) -> RedisResult<Value> {
        match self.send(call.by_hash()).await {
            Err(error) if is_unknown_script(&error) => self.send(&call.with_text()).await,
            reply => reply,
        }
    }

    /// Sends a command; in a cluster, to the server of its first key.
    pub(crate) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        self.with(async |conn| {
            let reply = match conn {
                Conn::One(conn) => conn.req_packed_command(command).await?,
                Conn::Cluster(conn) => conn.req_packed_command(command).await?,
            };
            match reply {
                Value::ServerError(error) => Err(error.into()),
                reply => Ok(reply),
            }
        })
        .await
    }

    /// As [`send`](Self::send), with the reply as a `T`.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        Ok(T::from_redis_value(self.send(command).await?)?)
    }

    /// Sends a command to the server, in a cluster to every primary, and returns each one's reply.
    pub(crate) async fn ask_each<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<Vec<T>> {
        let reply = self
            .with(async |conn| match conn {
                Conn::One(conn) => conn.req_packed_command(command).await,
                Conn::Cluster(conn) => {
                    let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                    conn.route_command(command.clone(), all).await
                }
            })
            .await?;
        let each = match (reply.extract_error()?, &self.target) {
            (Value::Map(each), Target::Cluster { .. }) => {
                each.into_iter().map(|(_, reply)| reply).collect()
            }
            (Value::Array(each), Target::Cluster { .. }) => each,
            (reply, _) => vec![reply],
        };
        each.into_iter().map(|reply| Ok(T::from_redis_value(reply)?)).collect()
    }

    /// Waits until this many replicas have everything that was written before, and returns how many
    /// have.
    ///
    /// Replicas confirm the writes of one *connection*. A write before the `WAIT` makes them confirm
    /// also what an earlier connection wrote.
    pub(crate) async fn confirm(&self, key: &str, confirm: Confirm) -> RedisResult<u32> {
        let mut both = Pipeline::new();
        both.cmd("HINCRBY").arg(key).arg("confirmed").arg(1);
        both.cmd("WAIT").arg(confirm.replicas).arg(confirm.within.as_millis().max(1) as u64);
        let replies = self
            .with(async |conn| match conn {
                Conn::One(conn) => conn.req_packed_commands(&both, 0, 2).await,
                Conn::Cluster(conn) => {
                    let route = Route::with_key(key, SlotAddr::Master);
                    let route = SingleNodeRoutingInfo::SpecificNode(route);
                    conn.route_pipeline(both.clone(), 0, 2, route).await
                }
            })
            .await?;
        match replies.into_iter().nth(1) {
            Some(reply) => Ok(u32::from_redis_value(reply.extract_error()?)?),
            None => Ok(0),
        }
    }

    /// A subscription to one channel.
    pub(crate) async fn subscribe(&self, channel: &str) -> RedisResult<PubSub> {
        let mut failed = None;
        for client in self.listeners().await? {
            let listening = async {
                let mut listening = client.get_async_pubsub().await?;
                listening.subscribe(channel).await?;
                Ok(listening)
            };
            match listening.await {
                Ok(listening) => return Ok(listening),
                Err(error) => failed = Some(error),
            }
        }
        let none = || RedisError::from((ErrorKind::ClusterConnectionNotFound, "no node answers"));
        Err(failed.unwrap_or_else(none))
    }

    /// A message to one node of a cluster arrives at the subscribers of every node.
    async fn listeners(&self) -> RedisResult<Vec<Client>> {
        match &self.target {
            Target::One(client) => Ok(vec![(**client).clone()]),
            Target::Sentinel(sentinel) => Ok(vec![sentinel.lock().await.async_get_client().await?]),
            Target::Cluster { nodes, .. } => Ok(nodes.clone()),
        }
    }

    async fn with<T>(&self, send: impl AsyncFnOnce(&mut Conn) -> RedisResult<T>) -> RedisResult<T> {
        let (number, mut conn) = self.conn().await?;
        let mut pending = Pending { connection: self, number, has_reply: false };
        let reply = send(&mut conn).await;
        pending.has_reply = !reply.as_ref().is_err_and(is_lost);
        reply
    }

    async fn conn(&self) -> RedisResult<(u64, Conn)> {
        if let Some(conn) = self.ready() {
            return Ok(conn);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(conn) = self.ready() {
            return Ok(conn);
        }
        let conn = self.connect().await?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.number += 1;
        current.conn = Some(conn.clone());
        Ok((current.number, conn))
    }

    fn ready(&self) -> Option<(u64, Conn)> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.conn.clone().map(|conn| (current.number, conn))
    }

    fn disconnect(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.number == number {
            current.conn = None;
        }
    }

    async fn connect(&self) -> RedisResult<Conn> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        Ok(match &self.target {
            Target::One(client) => {
                Conn::One(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Target::Sentinel(sentinel) => {
                let mut sentinel = sentinel.lock().await;
                Conn::One(sentinel.get_async_connection_with_config(&config).await?)
            }
            Target::Cluster { client, .. } => Conn::Cluster(client.get_async_connection().await?),
        })
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// True if another connection may succeed: this one is closed, does not reply, or leads to a server
/// that is no longer primary.
fn is_lost(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(kind) => {
            matches!(kind, ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        }
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::ClusterConnectionNotFound => true,
        _ => error.is_connection_dropped() || error.is_timeout(),
    }
}
