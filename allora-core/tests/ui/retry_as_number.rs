// A retry policy has a wait, too.
use allora_core::{Run, every, job};
use std::time::Duration;

fn main() {
    let minute = Duration::from_secs(60);
    let _ = job(every(minute), async |_: Run| {}).at_least_once(minute).retry(3);
}
