// A value in a result has no use, either; `Run::set_output` keeps a text.
use allora_core::{BoxError, Run, every, job};
use std::time::Duration;

fn main() {
    let _ = job(every(Duration::from_secs(60)), async |_: Run| -> Result<u32, BoxError> { Ok(42) });
}
