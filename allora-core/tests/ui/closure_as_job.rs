// A closure without a schedule is no job.
use allora_core::{Run, Scheduler};

fn main() {
    let _ = Scheduler::builder(allora_memory::Memory::new()).add("a", async |_: Run| {});
}
