//! The file of all starts: each is one write at the end of the file, which survives a killed process.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

use super::count::Start;
use std::{
    fs::{File, OpenOptions, read_to_string},
    io::Write,
    path::Path,
    time::SystemTime,
};

/// The file, for one of the processes that append to it.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    pub(super) fn open(path: &Path) -> Self {
        Self(OpenOptions::new().create(true).append(true).open(path).unwrap())
    }

    /// Notes that the occurrence of a schedule at this second, since 1970, starts now.
    ///
    /// # Panics
    /// If the file cannot be written to.
    pub fn add(&self, schedule: usize, second: i64) {
        let at = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
        (&self.0).write_all(format!("{schedule} {second} {at}\n").as_bytes()).unwrap();
    }
}

/// All starts so far.
pub(super) fn read(path: &Path) -> Vec<Start> {
    let start = |line: &str| {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let [schedule, second, at_us] = numbers[..] else { panic!("`{line}` is not a start") };
        Start { schedule, second, at_us }
    };
    read_to_string(path).unwrap().lines().map(start).collect()
}
