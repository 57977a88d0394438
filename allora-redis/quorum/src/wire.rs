//! The connection to one server: it is opened when it is needed, and again after a failure.

use futures::future::BoxFuture;
use redis::{
    AsyncConnectionConfig, Client, InfoDict, RedisError, RedisResult, Script, Value,
    aio::MultiplexedConnection,
};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A way to ask a server. No caller waits longer than its deadline.
pub(crate) trait Wire: Send + Sync {
    /// Calls a script on the one key.
    fn call<'a>(
        &'a self,
        deadline: Duration,
        script: &'a Script,
        key: &'a str,
        args: &'a [Vec<u8>],
    ) -> BoxFuture<'a, RedisResult<Value>>;

    /// The server's `INFO`.
    fn info(&self, deadline: Duration) -> BoxFuture<'_, RedisResult<InfoDict>>;

    /// Drops a connection that may be broken: the next call opens another.
    fn failed(&self, how: Option<&RedisError>);
}

/// A connection to a Redis server.
pub(crate) struct ServerConnection {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl ServerConnection {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, connection: Mutex::new(None) }
    }

    /// The connection, and `true` if it was open before.
    async fn connection(&self, deadline: Duration) -> RedisResult<(MultiplexedConnection, bool)> {
        if let Some(connection) = self.lock().clone() {
            return Ok((connection, true));
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(deadline))
            .set_response_timeout(None);
        let opened = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        *self.lock() = Some(opened.clone());
        Ok((opened, false))
    }

    /// `true` if an open connection was closed: servers do that with those that are idle. The message
    /// is sent again on a new one. The server may carry it out twice, which does no harm.
    fn is_closed<T>(&self, was_open: bool, answer: &RedisResult<T>) -> bool {
        let is_closed =
            was_open && answer.as_ref().is_err_and(|error| error.is_connection_dropped());
        if is_closed {
            *self.lock() = None;
        }
        is_closed
    }

    fn lock(&self) -> MutexGuard<'_, Option<MultiplexedConnection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wire for ServerConnection {
    fn call<'a>(
        &'a self,
        deadline: Duration,
        script: &'a Script,
        key: &'a str,
        args: &'a [Vec<u8>],
    ) -> BoxFuture<'a, RedisResult<Value>> {
        Box::pin(async move {
            let mut invocation = script.key(key);
            for arg in args {
                invocation.arg(&arg[..]);
            }
            loop {
                let (mut connection, was_open) = self.connection(deadline).await?;
                let answer = invocation.invoke_async(&mut connection).await;
                if !self.is_closed(was_open, &answer) {
                    return answer;
                }
            }
        })
    }

    fn info(&self, deadline: Duration) -> BoxFuture<'_, RedisResult<InfoDict>> {
        Box::pin(async move {
            loop {
                let (mut connection, was_open) = self.connection(deadline).await?;
                let answer = redis::cmd("INFO").query_async(&mut connection).await;
                if !self.is_closed(was_open, &answer) {
                    return answer;
                }
            }
        })
    }

    fn failed(&self, how: Option<&RedisError>) {
        let is_refusal = how.is_some_and(|error| {
            !error.is_unrecoverable_error() && !error.is_io_error() && !error.is_timeout()
        });
        if !is_refusal {
            // The server may carry out later what is under way; that does no harm.
            *self.lock() = None;
        }
    }
}
