//! The runtime on async-std.

use super::real;
use async_std::task;
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

// A task whose handle is dropped continues.
real::runtime!(AsyncStd, |task| drop(task::spawn(task)), |at: Instant| {
    task::sleep(at.saturating_duration_since(real::now()))
});
