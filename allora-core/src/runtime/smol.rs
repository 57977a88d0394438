//! The runtime on smol.

use super::real;
use smol::Timer;

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

real::runtime!(Smol, |task| smol::spawn(task).detach(), Timer::at);
