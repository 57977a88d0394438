// A guard of the standard library's mutex is not sent to another thread.
use allora_core::{Run, every, job};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

fn main() {
    let shared = Arc::new(Mutex::new(0));
    let _ = job(every(Duration::from_secs(60)), async move |run: Run| {
        let mut count = shared.lock().unwrap();
        run.cancelled().await;
        *count += 1;
    });
}
