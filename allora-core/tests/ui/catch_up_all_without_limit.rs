// `All` has a limit: a year of missed runs at once is seldom intended.
use allora_core::{CatchUp, Run, every, job};
use std::time::Duration;

fn main() {
    let _ = job(every(Duration::from_secs(60)), async |_: Run| {}).catch_up(CatchUp::All);
}
