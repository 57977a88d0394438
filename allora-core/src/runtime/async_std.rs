//! The runtime on async-std.

use super::{Runtime, real};
use crate::time::Time;
use async_std::task;
use futures::future::BoxFuture;
use std::time::Instant;

/// The runtime on [async-std](https://docs.rs/async-std): its global executor and its timers.
///
/// async-std is no longer maintained (RUSTSEC-2025-0052). Use it only in programs that already have it.
/// `Smol`, behind the feature `smol`, is made of the same parts and is what async-std's authors
/// point to.
///
/// Both start threads of their own when they are first used; `ASYNC_STD_THREAD_COUNT` sets how
/// many run tasks (one for each core unless set). Works from any thread and beside any other
/// executor.
///
/// # Examples
/// ```
/// use allora::runtime::{AsyncStd, Runtime};
///
/// async_std::task::block_on(AsyncStd.sleep_until(AsyncStd.now()));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct AsyncStd;

impl Runtime for AsyncStd {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        // A task whose handle is dropped continues.
        drop(task::spawn(task));
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let now = real::now();
                let Some(leg) = real::leg(now, at) else { break };
                task::sleep(leg - now).await;
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
