// The text of a cron expression is not a schedule yet: it may be wrong.
use allora_core::{Run, Scheduler};

fn main() {
    let _ = Scheduler::builder(allora_memory::Memory::new())
        .job("backup", "0 2 * * *", async |_: Run| {});
}
