// An `Rc` lives across an await: the future cannot move between threads.
use allora_core::{Run, every, job};
use std::{rc::Rc, time::Duration};

fn main() {
    let _ = job(every(Duration::from_secs(60)), async |run: Run| {
        let shared = Rc::new(1);
        run.cancelled().await;
        println!("{shared}");
    });
}
