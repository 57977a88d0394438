// A cron expression is a schedule, and no job.
use allora_core::{Scheduler, cron};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _ = Scheduler::builder(allora_memory::Memory::new()).add("a", cron("0 2 * * *")?);
    Ok(())
}
