// `build` is missing: it checks the settings.
use allora_core::{Run, Scheduler, every};
use std::time::Duration;

async fn start() {
    Scheduler::builder(allora_memory::Memory::new())
        .job("tidy", every(Duration::from_secs(60)), async |_: Run| {})
        .run()
        .await;
}

fn main() {}
