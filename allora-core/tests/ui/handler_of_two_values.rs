// The handler of a kind receives a run, and at most one value.
use allora_core::{Run, Scheduler};

fn main() {
    let _ = Scheduler::builder(allora_memory::Memory::new())
        .kind("mail", async |_: Run, _: String, _: String| {});
}
