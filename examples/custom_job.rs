//! A job type that chooses its own times: `cargo run --example custom_job`.
//!
//! It implements `Job`; where only the times are special, a closure or a `Schedule` is enough.

use allora::{BoxError, Job, Memory, Run, Scheduler, Time, async_trait};
use std::time::Duration;

/// Runs at growing intervals: 1, 2, 4, 8 … seconds after its first instant.
#[derive(Debug)]
struct Fading {
    first: Time,
}

#[async_trait]
impl Job for Fading {
    fn next_at(&self, after: Time) -> Option<Time> {
        let mut gap = Duration::from_secs(1);
        let mut at = self.first;
        while at <= after {
            at += gap;
            gap = gap.checked_mul(2)?;
        }
        Some(at)
    }

    async fn run(&self, run: Run) -> Result<(), BoxError> {
        println!("{}: attempt {} at {}", run.name(), run.attempt(), run.scheduled_at());
        Ok(())
    }

    fn definition(&self) -> Option<String> {
        Some(format!("fading from {}", self.first))
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // The first instant is the start of this program. On several machines it must be the same on all:
    // use a constant there.
    let now = std::time::UNIX_EPOCH.elapsed()?.as_secs();
    let first = Time::from_timestamp(i64::try_from(now)?, 0).ok_or("the clock is far off")?;

    let scheduler = Scheduler::builder(Memory::new()).add("poll", Fading { first }).build()?;
    let stop = tokio::time::sleep(Duration::from_secs(9));
    scheduler.run_until(stop).await;
    Ok(())
}
