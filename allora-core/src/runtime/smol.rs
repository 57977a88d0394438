//! The runtime on smol.

use super::{Runtime, real};
use crate::time::Time;
use futures::future::BoxFuture;
use smol::Timer;
use std::time::Instant;

/// The runtime on [smol](https://docs.rs/smol): its global executor and its timers.
///
/// Both start threads of their own when they are first used; `SMOL_THREADS` sets how many run
/// tasks (one unless set). Works from any thread and beside any other executor.
///
/// # Examples
/// ```
/// use allora::runtime::{Runtime, Smol};
///
/// smol::block_on(Smol.sleep_until(Smol.now()));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Smol;

impl Runtime for Smol {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        smol::spawn(task).detach();
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while let Some(leg) = real::leg(real::now(), at) {
                Timer::at(leg).await;
            }
        })
    }

    fn now(&self) -> Instant {
        real::now()
    }

    fn wall(&self) -> Time {
        real::wall()
    }

    fn random(&self) -> u64 {
        real::random()
    }
}
