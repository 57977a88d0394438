// What a closure captures by value must be cloned for every run.
use allora_core::{Run, every, job};
use std::{sync::Mutex, time::Duration};

fn main() {
    let total = Mutex::new(0);
    let _ = job(every(Duration::from_secs(60)), async move |_: Run| {
        *total.lock().unwrap() += 1;
    });
}
