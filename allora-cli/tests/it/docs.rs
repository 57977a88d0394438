//! The pages' commands do what the pages say.

use crate::site::Site;
use std::{fs, path::Path, process::Command};

/// A command of a page, and what it prints.
#[derive(Debug, Default)]
struct Example {
    line: usize,
    command: String,
    prints: String,
}

/// The commands in the blocks marked `console`: after `$`, continued after `>`.
fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    for (index, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if !inside {
        } else if let Some(command) = line.strip_prefix("$ ") {
            let command = command.to_owned();
            examples.push(Example { line: index + 1, command, prints: String::new() });
        } else if let Some(example) = examples.last_mut() {
            let (to, text) = match line.strip_prefix("> ") {
                Some(more) => (&mut example.command, format!("\n{more}")),
                None => (&mut example.prints, format!("{line}\n")),
            };
            to.push_str(&text);
        }
    }
    examples
}

/// Runs a page's commands, one after the other in one folder.
fn check(page: &str) {
    let site = Site::new("");
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let examples = examples(&text);
    assert!(examples.len() >= 3, "{page} has hardly any commands");
    let bin = Path::new(env!("CARGO_BIN_EXE_allora")).parent().unwrap().display().to_string();
    for example in examples {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec 2>&1\n{}", example.command));
        shell.env("PATH", format!("{bin}:/usr/bin:/bin")).current_dir(site.path(""));
        shell.env_remove("ALLORA_URL").env("TZ", "UTC");
        let printed = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        assert_eq!(printed, example.prints, "{page}:{}: {}", example.line, example.command);
    }
}

#[test]
fn the_readme_is_true() {
    check("README.md");
}

#[test]
fn the_page_for_those_who_come_from_crontab_is_true() {
    check("docs/from-crontab.md");
}

#[test]
fn the_page_for_those_who_come_from_perfectsched_is_true() {
    check("docs/from-perfectsched.md");
}

#[test]
fn three_daemons_on_one_crontab_run_each_instant_once() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/three_daemons.sh");
    let mut shell = Command::new("sh");
    shell.arg(script).arg("8").env("ALLORA", env!("CARGO_BIN_EXE_allora"));
    let output = shell.env_remove("ALLORA_URL").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let number = |name: &str| -> usize {
        let line = said.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    assert!(number("ran:") >= 4 && number("twice:") == 0 && number("lost:") <= 1, "{said}");
    assert!(said.contains("anna was killed"));
}
