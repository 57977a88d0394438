// A period has a unit.
use allora_core::{Run, every, job};

fn main() {
    let _ = job(every(60), async |_: Run| {});
}
