//! The resources that this process has used so far.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

use std::{fs::read_to_string, time::Duration};

/// Processor time of this process, in the kernel's ticks of hundredths of a second.
pub fn cpu() -> Duration {
    let stat = read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Resident memory of this process, in bytes.
pub fn memory() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
}
