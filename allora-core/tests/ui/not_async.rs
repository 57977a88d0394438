// A closure that is not async returns no future.
use allora_core::{Run, every, job};
use std::time::Duration;

fn main() {
    let _ = job(every(Duration::from_secs(60)), |run: Run| {
        println!("{}", run.name());
    });
}
