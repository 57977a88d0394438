//! The way to the server: connections that are made when they are needed, and made anew when they
//! failed.

use crate::script::Call;
use futures::lock::Mutex as Turn;
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

/// Whom to talk to.
pub(crate) enum Target {
    /// One server.
    One(Box<Client>),
    /// Whoever the sentinels say is the primary.
    Sentinel(Box<Turn<SentinelClient>>),
    /// Whoever has the key's slot.
    Cluster {
        client: Box<ClusterClient>,
        /// Its nodes as they were given, for subscriptions.
        nodes: Vec<Client>,
    },
}

#[derive(Clone)]
enum Conn {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// How many replicas must have what a call wrote, before it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirm {
    pub(crate) replicas: u32,
    pub(crate) within: Duration,
}

/// One connection for all, to one server or a cluster.
pub(crate) struct Link {
    target: Target,
    /// Longest to wait for a connection, and for an answer.
    timeout: Duration,
    current: Mutex<Current>,
    /// Whoever has it makes the connection; the others wait for that.
    connecting: Turn<()>,
}

#[derive(Default)]
struct Current {
    number: u64,
    conn: Option<Conn>,
}

/// A call that is under way. Dropped before it is answered, it takes its connection with it: what
/// does not answer once may never do.
struct UnderWay<'a> {
    link: &'a Link,
    number: u64,
    is_answered: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.link.forget(self.number);
        }
    }
}

impl Link {
    pub(crate) fn new(target: Target, timeout: Duration) -> Self {
        Self { target, timeout, current: Mutex::default(), connecting: Turn::new(()) }
    }

    /// Calls a script; sends its text where the server does not know it.
    pub(crate) async fn call(&self, call: &Call<'_>) -> RedisResult<Value> {
        match self.send(call.by_name()).await {
            Err(error) if is_unknown_script(&error) => self.send(&call.with_text()).await,
            answer => answer,
        }
    }

    /// Sends a command. In a cluster it goes where its first key is.
    pub(crate) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        self.with(async |conn| {
            let answer = match conn {
                Conn::One(conn) => conn.req_packed_command(command).await?,
                Conn::Cluster(conn) => conn.req_packed_command(command).await?,
            };
            match answer {
                Value::ServerError(error) => Err(error.into()),
                answer => Ok(answer),
            }
        })
        .await
    }

    /// As [`send`](Self::send), and reads the answer.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        Ok(T::from_redis_value(self.send(command).await?)?)
    }

    /// Sends a command to the server, in a cluster to every primary, and reads what each says.
    pub(crate) async fn ask_each<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<Vec<T>> {
        let answer = self
            .with(async |conn| match conn {
                Conn::One(conn) => conn.req_packed_command(command).await,
                Conn::Cluster(conn) => {
                    let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                    conn.route_command(command.clone(), all).await
                }
            })
            .await?;
        let each = match (answer.extract_error()?, &self.target) {
            (Value::Map(each), Target::Cluster { .. }) => {
                each.into_iter().map(|(_, said)| said).collect()
            }
            (Value::Array(each), Target::Cluster { .. }) => each,
            (said, _) => vec![said],
        };
        each.into_iter().map(|said| Ok(T::from_redis_value(said)?)).collect()
    }

    /// Waits until so many replicas have everything that was written before, and answers with how
    /// many have.
    ///
    /// Replicas confirm what a *connection* has written: a write that comes first makes sure that
    /// this one has, also when what is to be confirmed was written by one that is gone.
    pub(crate) async fn confirm(&self, key: &str, confirm: Confirm) -> RedisResult<u32> {
        let mut both = Pipeline::new();
        both.cmd("HINCRBY").arg(key).arg("confirmed").arg(1);
        both.cmd("WAIT").arg(confirm.replicas).arg(confirm.within.as_millis().max(1) as u64);
        let answers = self
            .with(async |conn| match conn {
                Conn::One(conn) => conn.req_packed_commands(&both, 0, 2).await,
                Conn::Cluster(conn) => {
                    let route = Route::with_key(key, SlotAddr::Master);
                    let route = SingleNodeRoutingInfo::SpecificNode(route);
                    conn.route_pipeline(both.clone(), 0, 2, route).await
                }
            })
            .await?;
        match answers.into_iter().nth(1) {
            Some(answer) => Ok(u32::from_redis_value(answer.extract_error()?)?),
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

    /// Any node of a cluster hears what any other is told.
    async fn listeners(&self) -> RedisResult<Vec<Client>> {
        match &self.target {
            Target::One(client) => Ok(vec![(**client).clone()]),
            Target::Sentinel(sentinel) => Ok(vec![sentinel.lock().await.async_get_client().await?]),
            Target::Cluster { nodes, .. } => Ok(nodes.clone()),
        }
    }

    async fn with<T>(&self, send: impl AsyncFnOnce(&mut Conn) -> RedisResult<T>) -> RedisResult<T> {
        let (number, mut conn) = self.conn().await?;
        let mut under_way = UnderWay { link: self, number, is_answered: false };
        let answer = send(&mut conn).await;
        under_way.is_answered = !answer.as_ref().is_err_and(is_lost);
        answer
    }

    async fn conn(&self) -> RedisResult<(u64, Conn)> {
        if let Some(conn) = self.ready() {
            return Ok(conn);
        }
        let _turn = self.connecting.lock().await;
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

    fn forget(&self, number: u64) {
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

/// Whether another connection may do better: this one is gone, does not answer, or leads to a server
/// that is no primary any more.
fn is_lost(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(kind) => {
            matches!(kind, ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        }
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::ClusterConnectionNotFound => true,
        _ => error.is_connection_dropped() || error.is_timeout(),
    }
}
