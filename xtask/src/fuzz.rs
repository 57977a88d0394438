//! `cargo xtask fuzz`: the targets of the package `allora-fuzz` under libFuzzer, one after the other.

use crate::{
    Failure, Outcome,
    command::{Watched, cargo, root, run as run_step, target, watch},
};
use std::{
    fs,
    io::Error,
    path::{Path, PathBuf},
    process::Command,
};

/// The flags that `cargo fuzz` sets: the coverage that the engine reads, and the checks of a debug build. None of it needs
/// a nightly compiler.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks";

/// The targets to run, and for how long.
#[derive(Debug, PartialEq)]
struct Request {
    /// Empty: all.
    targets: Vec<String>,
    /// For each target.
    minutes: u64,
    write: bool,
}

impl Request {
    fn parse(args: &[String]) -> Outcome<Self> {
        let mut request = Self { targets: Vec::new(), minutes: 5, write: false };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--write" => request.write = true,
                "--minutes" => {
                    let minutes = args.next().and_then(|minutes| minutes.parse().ok());
                    let wrong = || Failure::Usage("--minutes needs a number from 1".into());
                    request.minutes = minutes.filter(|n| *n > 0).ok_or_else(wrong)?;
                }
                option if option.starts_with('-') => {
                    let known = "fuzz knows --minutes N, --write and names of targets";
                    return Err(Failure::Usage(known.into()));
                }
                name => request.targets.push(name.into()),
            }
        }
        Ok(request)
    }
}

/// Builds the targets once, and runs each for its time on the inputs that earlier runs have kept.
///
/// # Errors
/// If a target has failed. Its input is kept, and the command that repeats it is printed.
pub(crate) fn run(args: &[String]) -> Outcome {
    let request = Request::parse(args)?;
    let known = targets().map_err(|cause| failed(&cause))?;
    if let Some(name) = request.targets.iter().find(|name| !known.contains(*name)) {
        let known = known.join(", ");
        return Err(Failure::Usage(format!("no target is called `{name}`; there are {known}")));
    }
    let binary = build()?;
    let mut found = Vec::new();
    for name in known.iter().filter(|n| request.targets.is_empty() || request.targets.contains(n)) {
        let (executions, passed) = fuzz(&binary, name, request.minutes)?;
        if request.write {
            write(name, executions, request.minutes).map_err(|cause| failed(&cause))?;
        }
        if !passed {
            found.push(name.as_str());
        }
    }
    match found.is_empty() {
        true => Ok(()),
        false => Err(Failure::Check(format!(
            "these targets failed: {}; `cargo run -p allora-fuzz -- TARGET {}/TARGET-*` repeats it",
            found.join(", "),
            folder().display()
        ))),
    }
}

fn failed(cause: &Error) -> Failure {
    Failure::Check(format!("fuzz: {cause}"))
}

/// Inputs that the engine keeps.
fn folder() -> PathBuf {
    target().join("fuzz")
}

/// The names of the targets: each has a file of seeds.
fn targets() -> Result<Vec<String>, Error> {
    let files = fs::read_dir(root().join("fuzz/seeds"))?.collect::<Result<Vec<_>, _>>()?;
    let name = |file: fs::DirEntry| Some(file.path().file_stem()?.to_str()?.to_owned());
    let mut names: Vec<String> = files.into_iter().filter_map(name).collect();
    names.sort();
    Ok(names)
}

fn build() -> Outcome<PathBuf> {
    let version = Command::new("rustc").arg("-vV").output().map_err(|cause| failed(&cause))?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    // With a target, build scripts are built without the flags: they have no engine to link.
    let mut command = cargo(&["build", "--release", "-p", "allora-fuzz", "--target", host]);
    command.env("RUSTFLAGS", FLAGS);
    run_step("the fuzzers", command)?;
    Ok(target().join(host).join("release/allora-fuzz"))
}

/// Runs one target. Returns the number of its executions, and `true` if it found nothing.
fn fuzz(binary: &Path, name: &str, minutes: u64) -> Outcome<(u64, bool)> {
    let inputs = folder().join(name);
    fs::create_dir_all(&inputs).map_err(|cause| failed(&cause))?;
    let mut command = Command::new(binary);
    command.env("ALLORA_FUZZ_TARGET", name).env("ALLORA_FUZZ_INPUTS", &inputs).arg(&inputs);
    command.arg(format!("-max_total_time={}", minutes * 60));
    command.arg(format!("-artifact_prefix={}/{name}-", folder().display()));
    // Ten times what the slowest good input takes.
    command.args(["-timeout=5", "-rss_limit_mb=2048", "-max_len=4096", "-print_final_stats=1"]);
    let mut executions = 0;
    let passed = watch(&format!("fuzz {name}"), command, Watched::Stderr, |line| {
        if let Some(number) = line.strip_prefix("stat::number_of_executed_units:") {
            executions = number.trim().parse().unwrap_or(0);
        }
    })?;
    Ok((executions, passed))
}

/// Sets the figures of a target in the table of `fuzz/README.md`, and keeps what was found.
fn write(name: &str, executions: u64, minutes: u64) -> Result<(), Error> {
    let file = root().join("fuzz/README.md");
    let page = fs::read_to_string(&file)?;
    let lines = page.lines().map(|line| with_figures(line, name, executions, minutes) + "\n");
    fs::write(&file, lines.collect::<String>())
}

fn with_figures(line: &str, name: &str, executions: u64, minutes: u64) -> String {
    let cells: Vec<&str> = line.split('|').collect();
    match cells[..] {
        ["", own, what, _, _, found, ""] if own.trim().trim_matches('`') == name => {
            let executions = match executions {
                ..10_000 => executions.to_string(),
                10_000..10_000_000 => format!("{} thousand", executions / 1_000),
                _ => format!("{} million", executions / 1_000_000),
            };
            format!("|{own}|{what}| {executions} | {minutes} min |{found}|")
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_names_targets_and_minutes() {
        let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        let request = Request::parse(&words("cron --minutes 2 url --write")).unwrap();
        assert_eq!(request.targets, ["cron", "url"]);
        assert_eq!((request.minutes, request.write), (2, true));
        for line in ["--minutes", "--minutes 0", "--fast"] {
            assert!(matches!(Request::parse(&words(line)), Err(Failure::Usage(_))), "{line}");
        }
        assert!(matches!(run(&words("corn")), Err(Failure::Usage(_))));
    }

    #[test]
    fn figures_are_set_and_findings_stay() {
        let line = "| `cron` | expressions | 5 | 1 min | nothing |";
        let set = with_figures(line, "cron", 12_345_678, 5);
        assert_eq!(set, "| `cron` | expressions | 12 million | 5 min | nothing |");
        assert_eq!(with_figures(line, "cro", 1, 1), line);
    }
}
