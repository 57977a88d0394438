//! The same schedule on tokio, async-std and smol: `cargo run --example runtimes`.
//!
//! The scheduler detects tokio. The other runtimes are set with `SchedulerBuilder::runtime`.

use allora::{
    Memory, Result, Run, Scheduler, SchedulerBuilder, every,
    runtime::{AsyncStd, Smol},
};
use std::time::Duration;

fn main() -> Result {
    let two_seconds = Duration::from_secs(2);
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
    tokio
        .expect("a thread's worth of resources")
        .block_on(async { show(schedule("tokio"), tokio::time::sleep(two_seconds)).await })?;
    async_std::task::block_on(async {
        show(schedule("async-std").runtime(AsyncStd), async_std::task::sleep(two_seconds)).await
    })?;
    smol::block_on(async {
        let stop = async { _ = smol::Timer::after(two_seconds).await };
        show(schedule("smol").runtime(Smol), stop).await
    })
}

async fn show(builder: SchedulerBuilder, stop: impl Future<Output = ()>) -> Result {
    builder.build()?.run_until(stop).await;
    Ok(())
}

fn schedule(runtime: &'static str) -> SchedulerBuilder {
    let every_half_second = every(Duration::from_millis(500));
    Scheduler::builder(Memory::new()).job("tick", every_half_second, async move |run: Run| {
        println!("{runtime:>10}  {}", run.scheduled_at().format("%H:%M:%S%.3f"));
    })
}
