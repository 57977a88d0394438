// The settings of a job belong to the job, not to the builder.
use allora_core::{Retry, Run, Scheduler, every};
use std::time::Duration;

fn main() {
    let minute = Duration::from_secs(60);
    let _ = Scheduler::builder(allora_memory::Memory::new())
        .job("a", every(minute), async |_: Run| {})
        .retry(Retry::default())
        .job("b", every(minute), async |_: Run| {})
        .on_every_node();
}
