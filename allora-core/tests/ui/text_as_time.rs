// A text may be no time: parse it.
use allora_core::{Run, at, job};

fn main() {
    let _ = job(at("2027-01-01T00:00:00Z"), async |_: Run| {});
}
