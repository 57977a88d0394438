// The closure receives its run.
use allora_core::{every, job};
use std::time::Duration;

fn main() {
    let _ = job(every(Duration::from_secs(60)), async || {});
}
