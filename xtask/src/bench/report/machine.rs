//! Facts about the machine, without which no figure means anything.

use crate::{Failure, Outcome, versions};
use serde_json::{Map, Value, json};
use std::{fs, process::Command, thread, time::Duration};

/// The servers, and how the tables call them.
const SERVERS: [(&str, &str); 4] =
    [("postgres", "PostgreSQL"), ("mysql", "MariaDB"), ("redis", "Redis"), ("etcd", "etcd")];

/// Cores, processor, memory, system and compiler.
pub(super) fn facts() -> Value {
    let line = |path: &str, name: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_once([':', '=']));
        value.map_or_else(
            || "unknown".into(),
            |(_, value)| value.trim().trim_matches('"').to_owned(),
        )
    };
    let kib = line("/proc/meminfo", "MemTotal");
    let kib: f64 = kib.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or_default();
    let compiler = Command::new("rustc").arg("--version").output();
    let compiler = compiler.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    json!({
        "cores": thread::available_parallelism().map_or(0, usize::from),
        "processor": line("/proc/cpuinfo", "model name"),
        "memory_gib": (kib / f64::from(1 << 20)).round() as u64,
        "system": line("/etc/os-release", "PRETTY_NAME"),
        "compiler": compiler.unwrap_or_else(|_| "unknown".into()),
    })
}

/// The versions of the servers of these stores, by name.
pub(super) fn servers(stores: &[String]) -> Value {
    let mut versions = Map::new();
    for (store, name) in SERVERS {
        if stores.iter().any(|wanted| wanted == store)
            && let Some(version) = versions::installed(store)
        {
            versions.insert(name.to_owned(), version.into());
        }
    }
    Value::Object(versions)
}

/// The part of the processor time that other programs use, while nothing of the report runs.
///
/// # Errors
/// If the system does not show its processor time.
#[expect(clippy::disallowed_methods, reason = "a chore looks at the machine for a while")]
pub(super) fn load_by_others() -> Outcome<f64> {
    let (busy_before, all_before) = ticks()?;
    thread::sleep(Duration::from_secs(1));
    let (busy, all) = ticks()?;
    Ok((busy - busy_before) / (all - all_before).max(1.0))
}

/// The ticks of all processors in which they worked, and all ticks.
fn ticks() -> Outcome<(f64, f64)> {
    let text = fs::read_to_string("/proc/stat")
        .map_err(|cause| Failure::Check(format!("/proc/stat: {cause}; a report needs Linux")))?;
    let first = text.lines().next().unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are a part of the first two.
    let ticks: Vec<f64> =
        first.split_whitespace().skip(1).take(8).filter_map(|tick| tick.parse().ok()).collect();
    let [_, _, _, idle, waiting, ..] = ticks[..] else {
        return Err(Failure::Check(format!("/proc/stat begins with `{first}`")));
    };
    let all: f64 = ticks.iter().sum();
    Ok((all - idle - waiting, all))
}
