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

/// Processor time of a process and of all that it has started, those that have ended included.
pub fn cpu_of_tree(root: u32) -> Duration {
    let mut ticks = 0;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = read_to_string(entry.path().join("stat")) else { continue };
        let Some((head, rest)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |i: usize| fields[i].parse::<u64>().unwrap_or(0);
        let is_root = head.split(' ').next() == Some(root.to_string().as_str());
        if is_root {
            ticks += number(13) + number(14);
        }
        if is_root || number(1) == u64::from(root) {
            ticks += number(11) + number(12);
        }
    }
    Duration::from_millis(ticks * 10)
}

/// Resident memory of this process, in bytes.
pub fn memory() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
}
