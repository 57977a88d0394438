//! The span that a profiler records: the work itself, without its preparation.

use std::{fs, io::Write, path::PathBuf};

/// The pipe at which `perf record --control` waits for commands.
const CONTROL: &str = "ALLORA_BENCH_PERF_CONTROL";

/// Starts the recording, if a profiler waits.
///
/// # Panics
/// If the pipe is named and cannot be written to.
pub fn begin() {
    say("enable");
}

/// Ends the recording.
///
/// # Panics
/// If the pipe is named and cannot be written to.
pub fn end() {
    say("disable");
}

fn say(command: &str) {
    let Some(pipe) = std::env::var_os(CONTROL).map(PathBuf::from) else { return };
    let mut pipe = fs::OpenOptions::new().write(true).open(pipe).expect("the pipe of the profiler");
    pipe.write_all(format!("{command}\n").as_bytes()).expect("the profiler reads");
}
