// `?` needs to know which error it makes.
use allora_core::{Run, every, job};
use std::time::Duration;

fn main() {
    let _ = job(every(Duration::from_secs(60)), async |_: Run| {
        std::fs::read_to_string("stats.txt")?;
        Ok(())
    });
}
