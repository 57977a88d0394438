//! `cargo xtask fuzz`: the targets of the package `allora-fuzz` under libFuzzer, one after the other.

use crate::{
    Failure, Outcome,
    command::{Watched, cargo, root, run as run_step, target, watch},
    figures::grouped,
};
use serde_json::{Value, json};
use std::{
    fmt::Write,
    fs,
    io::Error,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
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
    seconds: u64,
}

impl Request {
    fn parse(args: &[String]) -> Outcome<Self> {
        let mut request = Self { targets: Vec::new(), seconds: 300 };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--minutes" | "--seconds" => {
                    let number: Option<u64> = args.next().and_then(|number| number.parse().ok());
                    let number = number.filter(|n| (1..=100_000).contains(n));
                    let wrong = || Failure::Usage(format!("{arg} needs a number from 1 to 100000"));
                    let unit = if arg == "--minutes" { 60 } else { 1 };
                    request.seconds = unit * number.ok_or_else(wrong)?;
                }
                option if option.starts_with('-') => {
                    let known = "fuzz knows --minutes N, --seconds N and names of targets";
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
        let result = fuzz(&binary, name, request.seconds)?;
        // For the page of `cargo xtask chaos report`.
        fs::write(folder().join(format!("{name}.json")), result.to_string())
            .map_err(|cause| failed(&cause))?;
        if result["crashes"] != 0 {
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

/// Runs one target, until the time is over or it fails, and returns the result.
#[expect(clippy::disallowed_methods, reason = "a chore in real time")]
fn fuzz(binary: &Path, name: &str, seconds: u64) -> Outcome<Value> {
    let inputs = folder().join(name);
    fs::create_dir_all(&inputs).map_err(|cause| failed(&cause))?;
    let mut command = Command::new(binary);
    command.env("ALLORA_FUZZ_TARGET", name).env("ALLORA_FUZZ_INPUTS", &inputs).arg(&inputs);
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/{name}-", folder().display()));
    // Ten times what the slowest good input takes.
    command.args(["-timeout=5", "-rss_limit_mb=2048", "-max_len=4096", "-print_final_stats=1"]);
    let (mut runs, begun) = (0_u64, Instant::now());
    let passed = watch(&format!("fuzz {name}"), command, Watched::Stderr, |line| {
        if let Some(number) = line.strip_prefix("stat::number_of_executed_units:") {
            runs = number.trim().parse().unwrap_or(0);
        }
    })?;
    if passed && runs == 0 {
        return Err(Failure::Check(format!("fuzz {name}: the engine has run nothing")));
    }
    let (seconds, crashes) = (begun.elapsed().as_secs(), u64::from(!passed));
    Ok(json!({ "target": name, "runs": runs, "seconds": seconds, "crashes": crashes }))
}

/// A section for `RELIABILITY.md`; empty without results.
pub(crate) fn section(results: &[Value]) -> String {
    if results.is_empty() {
        return String::new();
    }
    let sum = |name: &str| results.iter().filter_map(|result| result[name].as_u64()).sum::<u64>();
    let mut text = format!(
        "\n# Foreign text\n\n\
         *Run by `cargo xtask fuzz`: what reads text from outside, under libFuzzer, which keeps each input that reaches new\n\
         code and goes on from it.* No input may make a reader panic, and what was read is held to promises, such as that\n\
         it prints as text of the same value. [fuzz/README.md](fuzz/README.md) has them, and what was found earlier.\n\n\
         {} inputs in {} seconds, {} failures.\n\n| target | inputs | seconds | failures |\n|---|---|---|---|\n",
        grouped(sum("runs")),
        grouped(sum("seconds")),
        sum("crashes"),
    );
    let mut results: Vec<&Value> = results.iter().collect();
    results.sort_by_key(|result| result["target"].to_string());
    for result in results {
        let target = result["target"].as_str().unwrap_or_default();
        let runs = grouped(result["runs"].as_u64().unwrap_or(0));
        let seconds = &result["seconds"];
        let _ = writeln!(text, "| {target} | {runs} | {seconds} | {} |", result["crashes"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_names_targets_and_minutes() {
        let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        let request = Request::parse(&words("cron --minutes 2 url")).unwrap();
        assert_eq!(request.targets, ["cron", "url"]);
        assert_eq!(request.seconds, 120);
        for line in ["--minutes", "--seconds 0", "--fast"] {
            assert!(matches!(Request::parse(&words(line)), Err(Failure::Usage(_))), "{line}");
        }
        assert!(matches!(run(&words("corn")), Err(Failure::Usage(_))));
    }

    #[test]
    fn the_section_adds_up_the_targets() {
        let result = |target: &str, runs: u64| json!({ "target": target, "runs": runs, "seconds": 9, "crashes": 0 });
        let text = section(&[result("url", 7), result("cron", 5)]);
        assert!(text.contains("12 inputs in 18 seconds, 0 failures."), "{text}");
        assert!(text.contains("| cron | 5 | 9 | 0 |\n| url | 7 | 9 | 0 |"), "{text}");
        assert_eq!(section(&[]), "");
    }
}
