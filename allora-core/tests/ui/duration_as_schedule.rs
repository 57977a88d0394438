// A duration is not a schedule.
use allora_core::{Run, job};
use std::time::Duration;

fn main() {
    let _ = job(Duration::from_secs(60), async |_: Run| {});
}
