// The last expression is a value that nobody wants.
use allora_core::{Run, every, job};
use std::time::Duration;

fn main() {
    let _ = job(every(Duration::from_secs(60)), async |_: Run| 42);
}
