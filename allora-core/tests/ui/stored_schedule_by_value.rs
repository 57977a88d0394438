// The client borrows the schedule.
use allora_core::{Result, Schedules, StoredSchedule};

async fn add(schedules: &Schedules) -> Result {
    schedules.add(StoredSchedule::new("acme/poll", "poll", "@hourly")).await?;
    Ok(())
}

fn main() {}
