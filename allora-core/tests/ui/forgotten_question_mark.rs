// `cron` returns a `Result`.
use allora_core::{Run, cron, job};

fn main() {
    let _ = job(cron("0 2 * * *"), async |_: Run| {});
}
