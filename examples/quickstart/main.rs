//! An hourly job, a cron job, and one that is seen at once: `cargo run --example quickstart`.
//!
//! Runs until Ctrl-C; `-- --seconds 10` ends it after ten seconds. `--store sqlite:FILE` keeps the
//! schedule in a file, where it survives restarts and may be shared by several processes:
//! `cargo run --example quickstart --features sqlite -- --store sqlite`.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

mod options;
mod store;

use allora::{BoxError, Run, Scheduler, cron, every};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let options = options::read(std::env::args().skip(1))?;
    let store = store::open(&options.store).await?;
    let scheduler = Scheduler::builder(store)
        .job("empty_cache", every(Duration::from_secs(3_600)), async |_: Run| {
            println!("emptying the cache");
        })
        .job("update_stats", cron("0 2,14 * * *")?, async |run: Run| {
            println!("statistics up to {}", run.scheduled_at());
        })
        .job("heartbeat", every(Duration::from_secs(2)), async |run: Run| {
            println!("{}  {}", run.scheduled_at().format("%H:%M:%S%.3f"), run.name());
        })
        .build()?;

    println!("empty_cache every hour, update_stats at 2 and 14 o'clock, heartbeat every 2 s");
    println!("Ctrl-C ends it");
    let stopped = scheduler.run_until(options.end()).await;
    println!("stopped; {} runs were cut short", stopped.cancelled);
    Ok(())
}
