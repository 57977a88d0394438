//! The resources that this process has used so far.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

use std::{collections::HashMap, fs::read_to_string, iter::successors, time::Duration};

/// Processor time of this process, in the kernel's ticks of hundredths of a second.
pub fn cpu() -> Duration {
    let stat = read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Processor time of a process and of all that descend from it, those that have ended included.
pub fn cpu_of_tree(root: u32) -> Duration {
    let mut parents = HashMap::new();
    let mut ticks = HashMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = read_to_string(entry.path().join("stat")) else { continue };
        let Some((head, rest)) = stat.rsplit_once(')') else { continue };
        let Some(Ok(pid)) = head.split(' ').next().map(str::parse::<u32>) else { continue };
        let fields: Vec<u64> =
            rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
        parents.insert(pid, fields[1] as u32);
        // Its own, and those of its children that have ended.
        ticks.insert(pid, fields[11..15].iter().sum::<u64>());
    }
    assert!(parents.contains_key(&root), "the server's process {root} has ended");
    let descends = |pid: &u32| {
        let mut ancestors = successors(Some(*pid), |pid| parents.get(pid).copied());
        ancestors.any(|pid| pid == root)
    };
    let sum: u64 = ticks.iter().filter(|(pid, _)| descends(pid)).map(|(_, ticks)| ticks).sum();
    Duration::from_millis(sum * 10)
}

/// Resident memory of this process, in bytes.
pub fn memory() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
}
