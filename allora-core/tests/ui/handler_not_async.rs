// The handler of a kind is async.
use allora_core::{Run, Scheduler};

fn main() {
    let _ = Scheduler::builder(allora_memory::Memory::new()).kind("mail", |_: Run| {});
}
