//! An hourly job, a cron job, and one that is seen at once: `cargo run --example quickstart`.
//!
//! Runs until Ctrl-C; `-- --seconds 10` ends it after ten seconds.

use allora::{BoxError, Memory, Run, Scheduler, cron, every};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let scheduler = Scheduler::builder(Memory::new())
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
    let stopped = scheduler.run_until(end(seconds()?)).await;
    println!("stopped; {} runs were cut short", stopped.cancelled);
    Ok(())
}

/// Ready at Ctrl-C, or when the time is over.
async fn end(after: Option<Duration>) {
    let interrupt = tokio::signal::ctrl_c();
    match after {
        Some(after) => _ = tokio::time::timeout(after, interrupt).await,
        None => _ = interrupt.await,
    }
}

fn seconds() -> Result<Option<Duration>, BoxError> {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next()) {
        (None, _) => Ok(None),
        (Some("--seconds"), Some(n)) => Ok(Some(Duration::from_secs(n.parse()?))),
        _ => Err("usage: quickstart [--seconds N]".into()),
    }
}
