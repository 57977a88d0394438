// A run may outlive the function that registers the job.
use allora_core::{Run, every, job};
use std::time::Duration;

fn main() {
    let name = String::from("report");
    let _ = job(every(Duration::from_secs(60)), async |_: Run| {
        println!("{name}");
    });
}
