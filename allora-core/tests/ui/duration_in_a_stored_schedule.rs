// The schedule of a stored schedule is a text, or `every(period)`.
use allora_core::StoredSchedule;
use std::time::Duration;

fn main() {
    let _ = StoredSchedule::new("acme/poll", "poll", Duration::from_secs(60));
}
