//! Where the processor time goes: `perf record` over measurements, with the samples summed up by the
//! parts of allora and of the server.

use super::{
    figures::{Figures, Numbers},
    markdown::{self, number, or_dash, percent, table},
    plan::{BATCH, BURSTS, Program, Size},
    programs::Programs,
    request::Request,
    tables::name,
};
use crate::{
    Failure, Outcome,
    command::target,
    services::{self, Running},
};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// The parts of the processor time, with the headings of their columns.
const PARTS: [(&str, &str); 9] = [
    ("server", "server"),
    ("server_kernel", "server, kernel"),
    ("core", "scheduler"),
    ("store", "store crate"),
    ("driver", "driver"),
    ("runtime", "runtime"),
    ("memory", "allocation, copies"),
    ("kernel", "client, kernel"),
    ("rest", "rest of the client"),
];

/// The profiles of one measurement, whose sum is shown.
const ROUNDS: u32 = 3;
/// Samples of each core per second.
const RATE: &str = "4999";

/// A measurement that is profiled.
struct Subject {
    title: String,
    store: &'static str,
    program: Program,
    words: Vec<String>,
    /// The program says when its work begins and ends.
    has_span: bool,
}

/// The measurements behind the targets.
fn subjects(size: Size) -> Vec<Subject> {
    let workers = |store: &'static str, nodes: u64, count: u64| Subject {
        title: format!(
            "{}: {} due at once, {}",
            name(store),
            number(count as f64),
            markdown::nodes(nodes)
        ),
        store,
        program: Program::Measure,
        words: words(&[&"workers", &store, &nodes, &count, &BATCH]),
        has_span: true,
    };
    let late = |store: &'static str| Subject {
        title: format!("{}: lateness of jobs in code, 3 nodes", name(store)),
        store,
        program: Program::Measure,
        words: words(&[&"late", &store, &3, &4]),
        has_span: true,
    };
    let timers = Subject {
        title: "memory: 10,000 jobs at one instant".to_owned(),
        store: "memory",
        program: Program::Scheduling,
        words: words(&[&"allora", &"at-once", &10_000, &4]),
        has_span: false,
    };
    vec![
        workers("postgres", 1, size.sustained),
        workers("postgres", 4, size.sustained),
        workers("postgres", 4, BURSTS[1]),
        workers("redis", 1, size.sustained),
        workers("redis", 4, size.sustained),
        workers("redis", 4, BURSTS[1]),
        workers("mysql", 4, BURSTS[1]),
        workers("sqlite", 4, BURSTS[1]),
        workers("etcd", 1, BURSTS[1]),
        workers("etcd", 4, BURSTS[1]),
        late("postgres"),
        late("redis"),
        late("etcd"),
        timers,
    ]
}

fn words(words: &[&dyn std::fmt::Display]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

impl Subject {
    fn key(&self) -> String {
        format!("profile {}", self.words.join(" "))
    }
}

/// Profiles the measurements on the request's stores.
///
/// # Errors
/// If `perf` cannot record, or a server or a measurement fails.
pub(super) fn run(request: &Request, programs: &Programs, figures: &mut Figures) -> Outcome {
    let stores: Vec<&str> = request.stores.iter().map(String::as_str).collect();
    let servers = services::start_private(&stores)?;
    let folder = target().join("profile");
    fs::create_dir_all(&folder).map_err(|cause| failed("a folder", &cause.to_string()))?;
    let is_measured = |subject: &Subject| stores.contains(&subject.store);
    for subject in subjects(request.size).into_iter().filter(is_measured) {
        let mut samples = Samples::default();
        for round in 0..ROUNDS {
            eprintln!("profile {} of {ROUNDS}: {}", round + 1, subject.title);
            samples.add(&record(&subject, programs, &servers, &folder)?);
        }
        figures.add_numbers(&subject.key(), samples.numbers());
    }
    Ok(())
}

/// Records one measurement. Returns its samples: a line for each function, with its number.
fn record(
    subject: &Subject,
    programs: &Programs,
    servers: &Running,
    folder: &Path,
) -> Outcome<String> {
    let (data, control) = (folder.join("perf.data"), folder.join("control"));
    let mut perf = Command::new("perf");
    perf.args(["record", "--quiet", "--all-cpus", "--event", "cpu-clock", "--freq", RATE]);
    perf.arg("--output").arg(&data);
    if subject.has_span {
        pipe(&control)?;
        perf.args(["--delay", "-1", "--control"]).arg(format!("fifo:{}", control.display()));
        perf.env("ALLORA_BENCH_PERF_CONTROL", &control);
    }
    perf.arg("--").arg(programs.of(subject.program)).args(&subject.words);
    perf.envs(servers.environment.iter().cloned());
    said(perf, &subject.title)?;
    let mut report = Command::new("perf");
    report.args(["report", "--stdio", "--quiet", "--no-children", "--show-nr-samples"]);
    report.args(["--sort", "comm,dso,sym", "--field-separator", "|", "--input"]).arg(&data);
    said(report, &subject.title)
}

fn pipe(path: &Path) -> Outcome {
    let mut mkfifo = Command::new("mkfifo");
    let _ = fs::remove_file(path);
    mkfifo.arg(path);
    said(mkfifo, "the pipe to `perf`").map(drop)
}

/// The output of a command that must succeed.
fn said(mut command: Command, what: &str) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|cause| failed(what, &format!("{cause}; {ADVICE}")))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let why = String::from_utf8_lossy(&output.stderr);
            Err(failed(what, &format!("{}; {ADVICE}", why.trim())))
        }
    }
}

const ADVICE: &str =
    "`--profile` needs `perf` (Debian: linux-perf) and the right to record all processes";

fn failed(what: &str, why: &str) -> Failure {
    Failure::Check(format!("the profile of {what}: {why}"))
}

/// Samples by their part.
#[derive(Debug, Default)]
struct Samples {
    of: Numbers,
}

impl Samples {
    /// Adds the lines of a report: the share, the number of samples, the process, its file, the
    /// function.
    fn add(&mut self, report: &str) {
        for line in report.lines() {
            let fields: Vec<&str> = line.splitn(5, '|').map(str::trim).collect();
            let [_, samples, process, file, function] = fields[..] else { continue };
            let Ok(samples) = samples.parse::<f64>() else { continue };
            *self.of.entry(part(process, file, function).to_owned()).or_default() += samples;
        }
    }

    /// The shares of the time that the processors worked for the measurement, and of all time that they
    /// were idle or worked for others.
    fn numbers(&self) -> Numbers {
        let of = |part: &str| self.of.get(part).copied().unwrap_or_default();
        let all: f64 = self.of.values().sum();
        let worked: f64 = PARTS.iter().map(|(part, _)| of(part)).sum();
        let mut numbers: Numbers = PARTS
            .iter()
            .map(|(part, _)| ((*part).to_owned(), of(part) / worked.max(1.0)))
            .collect();
        numbers.insert("idle".to_owned(), of("idle") / all.max(1.0));
        numbers.insert("others".to_owned(), of("others") / all.max(1.0));
        numbers
    }
}

/// The processes of servers, as the kernel cuts their names.
const SERVERS: [&str; 4] = ["postgres", "redis-server", "mariadbd", "etcd"];
/// The threads of the measuring programs.
const CLIENTS: [&str; 4] = ["tokio-", "measure", "scheduling", "sqlx-"];

/// The part of a sample.
fn part(process: &str, file: &str, function: &str) -> &'static str {
    let is_kernel = file.starts_with("[kernel");
    if process == "swapper" {
        return "idle";
    }
    if SERVERS.iter().any(|server| process.starts_with(server)) {
        return if is_kernel { "server_kernel" } else { "server" };
    }
    if !CLIENTS.iter().any(|client| process.starts_with(client)) {
        return "others";
    }
    if is_kernel {
        return "kernel";
    }
    let function = function.trim_start_matches("[.]").trim();
    if file.starts_with("libc.") || function.starts_with("__rust_") {
        return if is_memory(function) { "memory" } else { "rest" };
    }
    part_of_crate(function)
}

fn is_memory(function: &str) -> bool {
    ["malloc", "free", "alloc", "mem", "unlink_chunk", "__rust_"]
        .iter()
        .any(|word| function.contains(word))
}

/// The crates of each part, by the beginnings of their names.
const CRATES: [(&str, &[&str]); 4] = [
    ("core", &["allora_core", "allora_schedule", "chrono"]),
    ("store", &["allora_"]),
    (
        "driver",
        &[
            "sqlx",
            "redis",
            "etcd_client",
            "tonic",
            "h2",
            "hyper",
            "prost",
            "tower",
            "bytes",
            "http",
        ],
    ),
    ("runtime", &["tokio", "mio", "futures", "parking_lot", "async_"]),
];

/// The part of a function of the program: that of the first crate that its name has. A name without a
/// crate is of a library in C: SQLite.
fn part_of_crate(function: &str) -> &'static str {
    if !function.contains("::") {
        return "driver";
    }
    let names = function.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    for name in names.filter(|name| name.contains("::")) {
        let known =
            CRATES.iter().find(|(_, crates)| crates.iter().any(|one| name.starts_with(one)));
        if let Some((part, _)) = known {
            return part;
        }
    }
    "rest"
}

/// The table: a row for each profile, or that there are none.
pub(super) fn shares(size: Size, figures: &Figures) -> String {
    let mut header = vec!["measurement"];
    header.extend(PARTS.iter().map(|(_, heading)| *heading));
    header.push("processors idle");
    let rows = subjects(size).into_iter().filter_map(|subject| {
        let key = subject.key();
        let share = |part: &str| figures.median(&key, part);
        share("core")?;
        let mut row = vec![subject.title];
        row.extend(PARTS.iter().map(|(part, _)| or_dash(share(part), percent)));
        row.push(or_dash(share("idle"), percent));
        Some(row)
    });
    let rows: Vec<_> = rows.collect();
    match rows.is_empty() {
        true => "This report was made without `--profile`.".to_owned(),
        false => table(&header, rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_belongs_to_one_part() {
        for (process, file, function, expected) in [
            ("swapper", "[kernel.kallsyms]", "[k] native_safe_halt", "idle"),
            ("postgres", "postgres", "[.] ExecScan", "server"),
            ("postgres", "[kernel.kallsyms]", "[k] copy_user", "server_kernel"),
            ("tokio-rt-worker", "[kernel.kallsyms]", "[k] tcp_sendmsg", "kernel"),
            ("tokio-rt-worker", "libc.so.6", "[.] _int_malloc", "memory"),
            ("tokio-rt-worker", "libc.so.6", "[.] __memmove_avx", "memory"),
            ("tokio-rt-worker", "libc.so.6", "[.] pthread_mutex_lock", "rest"),
            ("measure-1a2b", "measure-1a2b", "[.] allora_core::record::apply::apply", "core"),
            ("measure-1a2b", "measure-1a2b", "[.] <allora_sql::Sql as X>::f", "store"),
            ("sqlx-sqlite-wor", "measure-1a2b", "[.] sqlite3VdbeExec", "driver"),
            (
                "tokio-rt-worker",
                "measure-1a2b",
                "[.] core::ptr::drop_in_place<sqlx_core::X>",
                "driver",
            ),
            ("tokio-rt-worker", "measure-1a2b", "[.] tokio::runtime::park", "runtime"),
            ("tokio-rt-worker", "measure-1a2b", "[.] hashbrown::map::insert", "rest"),
            ("rustc", "librustc.so", "[.] rustc::f", "others"),
        ] {
            assert_eq!(part(process, file, function), expected, "{function}");
        }
    }

    #[test]
    fn shares_are_of_the_work_for_the_measurement() {
        let mut samples = Samples::default();
        samples.add(
            "30.00%|30|postgres|postgres|[.] ExecScan\n10.00%|10|tokio-rt-worker|m|[.] allora_core::f\n\
             20.00%|20|rustc|rustc|[.] x::y\n40.00%|40|swapper|[kernel]|[k] halt\n\n# a remark\n",
        );
        let numbers = samples.numbers();
        let shares = ["server", "core", "kernel", "idle", "others"].map(|part| numbers[part]);
        assert_eq!(shares, [0.75, 0.25, 0.0, 0.4, 0.2]);
    }
}
