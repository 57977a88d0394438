//! One server of the quorum: a deadline for each call, and rest after a failure.

use super::{
    scripts::{Said, said},
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

/// How long a server that failed is left alone: doubled with each failure up to the second.
const REST: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

pub(crate) struct Server {
    /// Where it is, without user and password.
    pub(crate) address: String,
    wire: Box<dyn Wire>,
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
    pub(crate) fn new(address: String, wire: impl Wire + 'static) -> Self {
        Self {
            address,
            wire: Box::new(wire),
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
        let answer = self.wire.call(deadline, script, key, args);
        said(self.within(runtime, deadline, answer).await?).ok_or(Fault::Garbled)
    }

    /// What it says of itself.
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
            Either::Right(_) => Err(Fault::Silent),
        };
        match &answer {
            Ok(_) => *lock(&self.health) = None,
            Err(fault) => {
                self.wire.failed(match fault {
                    Fault::Failed(error) => Some(error),
                    Fault::Silent | Fault::Garbled => None,
                });
                self.leave_alone(runtime);
            }
        }
        answer
    }

    /// Does not ask it for a while.
    pub(crate) fn leave_alone(&self, runtime: &dyn Runtime) {
        let mut health = lock(&self.health);
        let rest = health.map_or(REST.0, |failing| (failing.rest * 2).min(REST.1));
        *health = Some(Failing { rest, until: runtime.now() + rest });
    }

    /// Lets one caller at a time admit it.
    pub(crate) fn claim_admission(&self) -> bool {
        !self.is_being_admitted.swap(true, Ordering::AcqRel)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
