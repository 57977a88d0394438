// A connection is not a store.
use allora_core::Scheduler;

struct Pool;

fn main() {
    let _ = Scheduler::builder(Pool);
}
