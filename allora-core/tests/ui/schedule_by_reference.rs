// A job owns its schedule.
use allora_core::{Run, every, job};
use std::time::Duration;

fn main() {
    let hourly = every(Duration::from_secs(3_600));
    let _ = job(&hourly, async |_: Run| {});
}
