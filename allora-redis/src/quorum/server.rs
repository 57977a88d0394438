//! One server of the quorum: a connection, a deadline for each call, and rest after a failure.

use super::scripts::{Said, said};
use allora_core::Runtime;
use futures::future::{Either, select};
use redis::{AsyncConnectionConfig, Client, RedisError, Script, Value, aio::MultiplexedConnection};
use std::{
    fmt,
    pin::pin,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a server that failed is left alone: doubled with each failure up to the second.
const REST: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

pub(crate) struct Server {
    /// Where it is, without user and password.
    pub(crate) address: String,
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
    health: Mutex<Option<Failing>>,
    /// Whether this process is about to admit it.
    pub(crate) is_being_admitted: AtomicBool,
}

/// It has failed since it last answered.
#[derive(Clone, Copy)]
struct Failing {
    rest: Duration,
    until: Instant,
}

/// Why a call came to nothing. It may have been carried out all the same.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It did not answer within the deadline.
    Silent,
    Failed(RedisError),
    /// It answered something else than the script does.
    Garbled,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Silent => f.write_str("it did not answer in time"),
            Fault::Failed(cause) => write!(f, "{cause}"),
            Fault::Garbled => f.write_str("it answered what no allora script answers"),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl Server {
    pub(crate) fn new(client: Client) -> Self {
        let info = client.get_connection_info();
        let address = format!("{}/{}", info.addr(), info.redis_settings().db());
        Self {
            address,
            client,
            connection: Mutex::new(None),
            health: Mutex::new(None),
            is_being_admitted: AtomicBool::new(false),
        }
    }

    /// Whether it answered when it was last asked.
    pub(crate) fn is_well(&self) -> bool {
        lock(&self.health).is_none()
    }

    /// Whether it has rested enough to be tried; at most one caller is told so at a time.
    pub(crate) fn is_to_be_tried(&self, now: Instant) -> bool {
        match &mut *lock(&self.health) {
            Some(failing) if failing.until <= now => {
                failing.until = now + REST.1;
                true
            }
            _ => false,
        }
    }

    /// Calls a script on the one key.
    pub(crate) async fn call(
        &self,
        runtime: &dyn Runtime,
        deadline: Duration,
        script: &Script,
        key: &str,
        args: &[Vec<u8>],
    ) -> Result<Said, Fault> {
        let mut invocation = script.key(key);
        for arg in args {
            invocation.arg(&arg[..]);
        }
        let answer: Value = self
            .within(runtime, deadline, async |mut connection| {
                invocation.invoke_async(&mut connection).await
            })
            .await?;
        said(answer).ok_or(Fault::Garbled)
    }

    /// What it says of itself.
    pub(crate) async fn info(
        &self,
        runtime: &dyn Runtime,
        deadline: Duration,
    ) -> Result<redis::InfoDict, Fault> {
        self.within(runtime, deadline, async |mut connection| {
            redis::cmd("INFO").query_async(&mut connection).await
        })
        .await
    }

    async fn within<T>(
        &self,
        runtime: &dyn Runtime,
        deadline: Duration,
        ask: impl AsyncFnOnce(MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, Fault> {
        let end = runtime.sleep_until(runtime.now() + deadline);
        let answer = pin!(async { ask(self.connection(deadline).await?).await });
        let answer = match select(answer, end).await {
            Either::Left((answer, _)) => answer.map_err(Fault::Failed),
            Either::Right(_) => Err(Fault::Silent),
        };
        match &answer {
            Ok(_) => *lock(&self.health) = None,
            Err(fault) => self.failed(runtime, fault),
        }
        answer
    }

    fn failed(&self, runtime: &dyn Runtime, fault: &Fault) {
        let said_no = matches!(fault, Fault::Failed(error) if !error.is_unrecoverable_error()
            && !error.is_io_error() && !error.is_timeout());
        if !said_no {
            // What is in it may be carried out later; that does no harm.
            *lock(&self.connection) = None;
        }
        self.leave_alone(runtime);
    }

    /// Does not ask it for a while.
    pub(crate) fn leave_alone(&self, runtime: &dyn Runtime) {
        let mut health = lock(&self.health);
        let rest = health.map_or(REST.0, |failing| (failing.rest * 2).min(REST.1));
        *health = Some(Failing { rest, until: runtime.now() + rest });
    }

    async fn connection(&self, deadline: Duration) -> Result<MultiplexedConnection, RedisError> {
        if let Some(connection) = lock(&self.connection).clone() {
            return Ok(connection);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(deadline))
            .set_response_timeout(None);
        let opened = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        *lock(&self.connection) = Some(opened.clone());
        Ok(opened)
    }

    /// Lets one caller at a time admit it.
    pub(crate) fn claim_admission(&self) -> bool {
        !self.is_being_admitted.swap(true, Ordering::AcqRel)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
