// `add` takes a whole job; `job(schedule, code)` makes one.
use allora_core::{Scheduler, every};
use std::time::Duration;

fn main() {
    let _ = Scheduler::builder(allora_memory::Memory::new())
        .add("tidy", every(Duration::from_secs(60)));
}
