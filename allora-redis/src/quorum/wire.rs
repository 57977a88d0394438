//! The way to one server: a connection that is opened when it is needed, and again after a failure.

use futures::future::BoxFuture;
use redis::{
    AsyncConnectionConfig, Client, InfoDict, RedisError, RedisResult, Script, Value,
    aio::MultiplexedConnection,
};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// What a server is asked through; nobody waits longer than until a deadline for it.
pub(crate) trait Wire: Send + Sync {
    /// Calls a script on the one key.
    fn call<'a>(
        &'a self,
        deadline: Duration,
        script: &'a Script,
        key: &'a str,
        args: &'a [Vec<u8>],
    ) -> BoxFuture<'a, RedisResult<Value>>;

    /// What the server says of itself.
    fn info(&self, deadline: Duration) -> BoxFuture<'_, RedisResult<InfoDict>>;

    /// The next call does not rely on what this one used.
    fn failed(&self, how: Option<&RedisError>);
}

/// A connection to a Redis server.
pub(crate) struct Line {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Line {
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

impl Wire for Line {
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
        let said_no = how.is_some_and(|error| {
            !error.is_unrecoverable_error() && !error.is_io_error() && !error.is_timeout()
        });
        if !said_no {
            // What is in it may be carried out later; that does no harm.
            *self.lock() = None;
        }
    }
}
