// The address of a store is not the store.
use allora_core::Scheduler;

fn main() {
    let _ = Scheduler::builder("postgres://db.example/jobs");
}
