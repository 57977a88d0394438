// A closure that is not async returns no future.
use allora_core::{Run, Scheduler, every};
use std::time::Duration;

fn main() {
    let _ = Scheduler::builder(allora_memory::Memory::new()).job(
        "a",
        every(Duration::from_secs(60)),
        |run: Run| println!("{}", run.name()),
    );
}
