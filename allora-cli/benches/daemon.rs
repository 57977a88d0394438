//! The delay of a crontab's commands after the full minute, and the cost of the daemon, beside
//! Debian's cron on the same machine.
//!
//! `cargo bench -p allora-cli --bench daemon` runs a crontab of twenty lines, each due every
//! minute, for five minutes under `allora run` with its own SQLite file, and then, for a root that
//! has `cron` and `unshare`, as long under that: in a namespace of its own, in which it finds this
//! crontab and no other. `-- LINES MINUTES` measures others.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start says so")]
#![allow(clippy::print_stdout, reason = "its table is what it is for")]
#![expect(clippy::disallowed_methods, reason = "it measures the clocks' passing")]

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The directories and files in which cron looks are others there, and so is its lock.
const CRON: &str = "mount -t tmpfs none /var/spool/cron && mkdir /var/spool/cron/crontabs \
     && mount -t tmpfs none /etc/cron.d && mount --bind /dev/null /etc/crontab \
     && mount -t tmpfs none /run && cat \"$0\" > /etc/cron.d/bench && exec cron -f";

const MINUTE: Duration = Duration::from_secs(60);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let number = |n: usize, usual: u64| args.get(n).map_or(usual, |arg| arg.parse().unwrap());
    let (lines, minutes) = (number(0, 20), number(1, 5));
    println!(
        "| daemon, {lines} lines | begun | late p50 ms | p99 ms | at most | CPU ms/min | KiB |"
    );
    println!("|---|---|---|---|---|---|---|");
    let folder = tempfile::tempdir().unwrap();
    let crontab = folder.path().join("crontab");

    write(&crontab, lines, &folder.path().join("allora"), "");
    let url = format!("sqlite:{}", folder.path().join("bench.db").display());
    let mut allora = Command::new(env!("CARGO_BIN_EXE_allora"));
    allora.args(["run", "--user", "--log-level", "error", "--url", &url]).arg(&crontab);
    measure("allora on SQLite", &mut allora, (lines, minutes), &folder.path().join("allora"));

    if !nix::unistd::geteuid().is_root() || !Path::new("/usr/sbin/cron").exists() {
        println!("cron is left out: it wants root, and to be installed");
        return;
    }
    write(&crontab, lines, &folder.path().join("cron"), "root ");
    let mut cron = Command::new("unshare");
    cron.args(["--mount", "sh", "-c", CRON]).arg(&crontab);
    measure("cron", &mut cron, (lines, minutes), &folder.path().join("cron"));
}

/// Each line notes when it was begun in a file of its own.
fn write(crontab: &Path, lines: u64, folder: &Path, user: &str) {
    fs::create_dir(folder).unwrap();
    let line = |i| format!("* * * * * {user}date +\\%s\\%N >>{}/{i}\n", folder.display());
    fs::write(crontab, (0..lines).map(line).collect::<String>()).unwrap();
}

fn measure(name: &str, daemon: &mut Command, (lines, minutes): (u64, u64), folder: &Path) {
    // From half a minute to half a minute, so that each has so many full ones.
    sleep(MINUTE + MINUTE / 2 - into_minute());
    let mut running = daemon.stdout(Stdio::null()).spawn().unwrap();
    sleep(Duration::from_secs(5));
    let before = cpu_millis(&running);
    sleep(MINUTE * u32::try_from(minutes).unwrap());
    let used = (cpu_millis(&running) - before) as f64 / minutes as f64;
    let kib = resident(&running);
    stop(&mut running);

    let mut late: Vec<f64> = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        for line in fs::read_to_string(file.unwrap().path()).unwrap().lines() {
            let nanos: u64 = line.parse().unwrap();
            late.push((nanos % 60_000_000_000) as f64 / 1e6);
        }
    }
    late.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| late.get((late.len() as f64 * part) as usize).or(late.last());
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|part| at(part).copied().unwrap_or(f64::NAN));
    println!(
        "| {name} | {} of {} | {p50:.0} | {p99:.0} | {most:.0} | {used:.0} | {kib} |",
        late.len(),
        lines * minutes,
    );
}

/// The time since the last full minute.
fn into_minute() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Duration::from_nanos((since.as_nanos() % MINUTE.as_nanos()) as u64)
}

/// Processor time of the process itself, without its children.
fn cpu_millis(of: &Child) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", of.id())).unwrap();
    let (_, after) = stat.rsplit_once(')').unwrap();
    let ticks = after.split_whitespace().skip(11).take(2).map(|word| word.parse::<u64>().unwrap());
    // A hundred ticks a second, wherever Linux runs.
    ticks.sum::<u64>() * 10
}

fn resident(of: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", of.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn stop(running: &mut Child) {
    Command::new("kill").arg(running.id().to_string()).status().unwrap();
    running.wait().unwrap();
}
