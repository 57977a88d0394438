//! One server of the quorum: a deadline for each call, and a pause after a failure.

use super::{
    scripts::{Response, parse_response},
    wire::Wire,
};
use allora_core::Runtime;
use futures::future::{BoxFuture, Either, select};
use redis::{RedisError, RedisResult, Script};
use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The pause after a failure: the first value, doubled with each failure up to the second.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

pub(crate) struct Server {
    /// Its address, without user and password.
    pub(crate) address: String,
    wire: Box<dyn Wire>,
    health: Mutex<Option<Failing>>,
    /// True while this process lets it rejoin, or raises its incarnation.
    pub(crate) is_in_repair: AtomicBool,
}

/// The state of a server that has failed since it last answered.
#[derive(Clone, Copy)]
struct Failing {
    rest: Duration,
    until: Instant,
}

/// The reason of a call's failure. The server may have carried the call out all the same.
#[derive(Debug)]
pub(crate) enum Fault {
    /// No answer within the deadline.
    Timeout,
    Failed(RedisError),
    /// It has none of its own data while it replicates another server.
    Replica,
    /// An answer that no script of the protocol gives.
    Unexpected,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Timeout => f.write_str("it did not answer in time"),
            Fault::Failed(cause) => write!(f, "{cause}"),
            Fault::Replica => f.write_str(
                "it is a replica, and has nothing of its own; make it a primary again with \
                 REPLICAOF NO ONE",
            ),
            Fault::Unexpected => f.write_str("it answered what no allora script answers"),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl Server {
    pub(crate) fn new(address: String, wire: impl Wire + 'static) -> Self {
        Self {
            address,
            wire: Box::new(wire),
            health: Mutex::new(None),
            is_in_repair: AtomicBool::new(false),
        }
    }

    /// True if it answered the last call.
    pub(crate) fn is_healthy(&self) -> bool {
        lock(&self.health).is_none()
    }

    /// True if its pause is over; for one caller at a time.
    pub(crate) fn is_retry_due(&self, now: Instant) -> bool {
        match &mut *lock(&self.health) {
            Some(failing) if failing.until <= now => {
                failing.until = now + BACK_OFF.1;
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
    ) -> Result<Response, Fault> {
        let answer = self.wire.call(deadline, script, key, args);
        parse_response(self.within(runtime, deadline, answer).await?).ok_or(Fault::Unexpected)
    }

    /// The server's `INFO`.
    pub(crate) async fn info(
        &self,
        runtime: &dyn Runtime,
        deadline: Duration,
    ) -> Result<redis::InfoDict, Fault> {
        self.within(runtime, deadline, self.wire.info(deadline)).await
    }

    async fn within<T>(
        &self,
        runtime: &dyn Runtime,
        deadline: Duration,
        answer: BoxFuture<'_, RedisResult<T>>,
    ) -> Result<T, Fault> {
        let end = runtime.sleep_until(runtime.now() + deadline);
        let answer = match select(answer, end).await {
            Either::Left((answer, _)) => answer.map_err(Fault::Failed),
            Either::Right(_) => Err(Fault::Timeout),
        };
        match &answer {
            Ok(_) => *lock(&self.health) = None,
            Err(fault) => {
                self.wire.failed(match fault {
                    Fault::Failed(error) => Some(error),
                    Fault::Timeout | Fault::Replica | Fault::Unexpected => None,
                });
                self.back_off(runtime);
            }
        }
        answer
    }

    /// Begins a pause, in which it is not asked.
    pub(crate) fn back_off(&self, runtime: &dyn Runtime) {
        let mut health = lock(&self.health);
        let rest = health.map_or(BACK_OFF.0, |failing| (failing.rest * 2).min(BACK_OFF.1));
        *health = Some(Failing { rest, until: runtime.now() + rest });
    }

    /// Lets one caller at a time repair it.
    pub(crate) fn claim_repair(&self) -> bool {
        !self.is_in_repair.swap(true, Ordering::AcqRel)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
