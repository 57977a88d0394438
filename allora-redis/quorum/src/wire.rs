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

    async fn connection(&self, deadline: Duration) -> RedisResult<MultiplexedConnection> {
        if let Some(connection) = self.lock().clone() {
            return Ok(connection);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(deadline))
            .set_response_timeout(None);
        let opened = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        *self.lock() = Some(opened.clone());
        Ok(opened)
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
            invocation.invoke_async(&mut self.connection(deadline).await?).await
        })
    }

    fn info(&self, deadline: Duration) -> BoxFuture<'_, RedisResult<InfoDict>> {
        Box::pin(async move {
            redis::cmd("INFO").query_async(&mut self.connection(deadline).await?).await
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
