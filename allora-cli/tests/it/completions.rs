//! Completions in the shells themselves.

use crate::site::{Site, skipped};
use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

/// A place with a store that has these schedules.
fn site(names: &[&str]) -> Site {
    let site = Site::new("");
    let said = |args: &[&str]| site.allora(&[args, &["--url", "sqlite:store.db"]].concat()).fine();
    said(&["init"]);
    for name in names {
        said(&["add", name, "t", "@every 1h", "{}"]);
    }
    site
}

/// The search path of programs, with the command first.
fn path() -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_allora")).parent().unwrap();
    format!("{}:/usr/bin:/bin", bin.display())
}

#[test]
fn bash_completes_the_names_of_jobs() {
    let site = site(&["jobs:backup", "jobs:report", "other"]);
    let completions = site.allora(&["completions", "bash"]).fine();
    site.write("completions", &completions);
    let complete = |line: &str, words: &str| -> Vec<String> {
        let script = format!(
            ". ./completions; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; COMPREPLY=(); \
             _allora_with_names allora \"${{COMP_WORDS[COMP_CWORD]}}\" show; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &script]).current_dir(site.path("")).env("PATH", path());
        bash.env("ALLORA_URL", "sqlite:store.db");
        let output = bash.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    // A colon is a word of its own.
    assert_eq!(complete("allora show jobs:b", "allora show jobs : b"), ["backup"]);
    assert_eq!(complete("allora show jobs:", "allora show jobs :"), ["backup", "report"]);
    let all = complete("allora show o", "allora show o");
    assert!(
        all.contains(&"other".to_owned()) && !all.contains(&"jobs:backup".to_owned()),
        "{all:?}"
    );
    let add = complete("allora add o", "allora add o");
    assert!(!add.contains(&"other".to_owned()), "a new job has a new name: {add:?}");
}

#[test]
fn shells_get_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let said = crate::allora::allora(&["completions", shell]).fine();
        assert!(said.contains("backfill") && !said.contains("__as-user -"), "{shell}");
    }
}

/// Types lines into an interactive zsh without a configuration, in a terminal of its own.
const TYPIST: &str = r#"
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner 'PS1=; fpath=($PWD/completions $fpath); autoload -Uz compinit; compinit -D -u'
zpty -n -w inner $'allora show jobs:b\t --json > whole\n'
zpty -n -w inner $'allora show "with bl\t > quoted\n'
zpty -n -w inner $'echo allora add oth\t > new\n'
zpty -n -w inner $'allora pau\t oth\t\n'
zpty -w inner exit
while zpty -r inner line; do :; done
"#;

#[test]
fn zsh_completes_the_names_of_jobs() {
    if Command::new("zsh").arg("--version").output().is_err() {
        return skipped("there is no zsh");
    }
    let site = site(&["jobs:backup", "jobs:report", "other", "with blanks"]);
    std::fs::create_dir(site.path("completions")).unwrap();
    site.write("completions/_allora", &site.allora(&["completions", "zsh"]).fine());
    let mut zsh = Command::new("zsh");
    zsh.args(["-f", "-c", TYPIST]).current_dir(site.path("")).stdin(Stdio::null());
    zsh.env("PATH", path()).env("ALLORA_URL", "sqlite:store.db").env("TERM", "xterm");
    let output = zsh.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(site.read("whole").contains(r#""name":"jobs:backup""#), "{}", site.read("whole"));
    assert!(site.read("quoted").contains("with blanks"), "{}", site.read("quoted"));
    assert_eq!(site.read("new"), "allora add oth\n", "a new job has a new name");
    let shown = site.allora(&["show", "other", "--json", "--url", "sqlite:store.db"]).fine();
    assert!(shown.contains(r#""note":"""#), "it is paused: {shown}");
}
