//! One rule for the exit codes of all commands. 2: what was given is wrong, and nothing was done. 1:
//! the answer is no, or it failed. 0: it is done.

use crate::site::Site;
use std::collections::BTreeSet;

/// Commands without a store.
const ALONE: [&str; 3] = ["completions", "man", "token"];

/// Each command with what is wrong, with what is refused or fails, and with what is done, in this
/// order.
const CASES: &[(&[&str], i32)] = &[
    (&["init", "--url", "nowhere"], 2),
    (&["init", "--url", "oracle://h/d"], 2),
    (&["init", "--url", "sqlite:/nowhere/store.db"], 1),
    (&["list", "--stat"], 2),
    (&["list"], 1),
    (&["doctor"], 1),
    (&["init"], 0),
    (&["list"], 0),
    (&["list", "-c", "none.toml"], 2),
    (&["list", "-c", "bad.toml"], 2),
    (&["run"], 2),
    (&["run", "nothing"], 2),
    (&["run", "bad"], 2),
    (&["run", "jobs", "--zone", "Mars/Olympus"], 2),
    (&["run", "jobs", "--grace", "soon"], 2),
    (&["run", "jobs", "--concurrency", "0"], 2),
    (&["run", "jobs", "./jobs"], 2),
    (&["run", "--check", "nothing"], 2),
    (&["run", "--check", "bad"], 1),
    (&["run", "jobs", "--log-file", "/nowhere/log"], 1),
    (&["run", "--check", "jobs"], 0),
    (&["next", "61 * * * *"], 2),
    (&["next", "* * * * *", "--zone", "Mars/Olympus"], 2),
    (&["next", "* * * * *", "--after", "tomorrow"], 2),
    (&["next", "--crontab", "bad"], 2),
    (&["next", "nothing"], 1),
    (&["next", "* * * * *"], 0),
    (&["add", "job", "t", "0 0 * * *"], 2),
    (&["add", "job", "t", "61 * * * *", "{}"], 2),
    (&["add", "job", "t", "0 0 * * *", "{not json"], 2),
    (&["add", "job", "t", "0 0 * * *", "[1]"], 2),
    (&["add", "job", "t", "0 0 * * *", "{}", "-t", "Mars/Olympus"], 2),
    (&["add", "job", "command", "0 0 * * *", "{}"], 2),
    (&["add", "", "t", "0 0 * * *", "{}"], 2),
    (&["add", "job", "t", "0 0 * * *", "{}"], 0),
    (&["add", "job", "t", "0 0 * * *", "{}"], 1),
    (&["modify", "job", "--cron", "61 * * * *"], 2),
    (&["modify", "job", "--data", "7"], 2),
    (&["modify", "nothing", "--cron", "@daily"], 1),
    (&["modify", "job", "--cron", "@daily"], 0),
    (&["show"], 2),
    (&["show", "job", "nothing"], 2),
    (&["show", "nothing"], 1),
    (&["show", "job"], 0),
    (&["calendar", "put", "days", "--dates", "2026-02-30"], 2),
    (&["calendar", "put", "days", "nothing"], 2),
    (&["calendar", "show", "nothing"], 1),
    (&["calendar", "put", "days", "--dates", "2026-02-28"], 0),
    (&["prove", "--minutes", "0"], 2),
    (&["prove", "--prefix", "mine"], 2),
    (&["prove", "--url", "sqlite:/nowhere/store.db"], 1),
    (&["pause"], 2),
    (&["pause", "--state", "orphaned"], 2),
    (&["pause", "nothing"], 1),
    (&["pause", "job"], 0),
    (&["resume"], 2),
    (&["resume", "nothing"], 1),
    (&["resume", "job"], 0),
    (&["cancel"], 2),
    (&["cancel", "nothing"], 1),
    (&["cancel", "job"], 0),
    (&["skip"], 2),
    (&["skip", "nothing"], 1),
    (&["skip", "job"], 0),
    (&["reset"], 2),
    (&["reset", "nothing"], 1),
    (&["reset", "job"], 0),
    (&["trigger"], 2),
    (&["trigger", "--kind", "t", "--wait"], 2),
    (&["trigger", "job", "--id", ""], 2),
    (&["trigger", "job", "--id", "x", "--retention", "31d"], 2),
    (&["trigger", "nothing"], 1),
    (&["trigger", "job"], 0),
    (&["backfill", "job", "--from", "2026-01-01", "--until", "x"], 2),
    (&["backfill", "job", "--from", "2026-01-01T00:00:00Z", "--until", "2999-01-01T00:00:00Z"], 2),
    (&["backfill", "nothing", "--from", "0", "--until", "1"], 1),
    (&["backfill", "job", "--from", "0", "--until", "1"], 0),
    (&["rerun"], 2),
    (&["rerun", "nothing"], 1),
    (&["rerun", "job"], 0),
    (&["mark", "job"], 2),
    (&["mark", "nothing", "0"], 1),
    (&["mark", "job", "0"], 1),
    (&["history", "--outcome", "well"], 2),
    (&["history", "nothing"], 1),
    (&["history"], 0),
    (&["logs"], 2),
    (&["logs", "nothing"], 1),
    (&["changes", "--since", "soon"], 2),
    (&["changes", "nothing"], 1),
    (&["changes"], 0),
    (&["undo", "job", "x"], 2),
    (&["undo", "job", "1"], 1),
    (&["stats"], 2),
    (&["stats", "job"], 1),
    (&["status", "--watch=soon"], 2),
    (&["status"], 0),
    (&["console", "--listen", "0.0.0.0:0"], 2),
    (&["console", "-c", "none.toml", "--listen", "127.0.0.1:0"], 2),
    (&["why"], 2),
    (&["why", "nothing"], 1),
    (&["why", "job"], 0),
    (&["exec", "jobs:good", "nothing"], 2),
    (&["exec", "jobs:other", "jobs"], 1),
    (&["exec", "jobs:good", "jobs"], 0),
    (&["nodes", "-n", "many"], 2),
    (&["nodes"], 0),
    (&["gc", "--older-than", "long"], 2),
    (&["gc"], 1),
    (&["sync", "nothing"], 2),
    (&["sync", "bad"], 2),
    (&["sync", "wrong.json"], 2),
    (&["sync", "empty.json"], 0),
    (&["export", "--kind"], 2),
    (&["export"], 0),
    (&["import", "nothing"], 2),
    (&["import", "bad"], 1),
    (&["import", "empty"], 0),
    (&["doctor", "--jsn"], 2),
    (&["delete"], 2),
    (&["delete", "nothing"], 1),
    (&["delete", "job"], 0),
    (&["token", "new", "ann", "--scope", "write"], 2),
    (&["token", "new", "a:b"], 2),
    (&["token", "new", "ann", "--max-jobs", "5"], 2),
    (&["token", "new", "ann", "--prefix", "a", "--shortest-period", "0"], 2),
    (&["token", "new", "ann"], 0),
    (&["completions", "ksh93"], 2),
    (&["completions", "bash"], 0),
    (&["man", "jobs/below"], 1),
    (&["man"], 0),
];

#[test]
fn every_command_ends_by_one_rule() {
    let site = Site::new("ALLORA_NAME=good\n0 0 1 1 * true\n");
    site.write("bad", "61 * * * * true\n");
    site.write("bad.toml", "[development]\nurl = 7\n");
    site.write("empty", "");
    site.write("empty.json", "[]");
    site.write(
        "wrong.json",
        r#"[{"name": "a", "kind": "t", "schedule": "61 * * * *", "data": {}}]"#,
    );
    let mut wrong = Vec::new();
    for (args, code) in CASES {
        let names_one = args.iter().any(|arg| matches!(*arg, "--url" | "-c"));
        let place: &[&str] = match names_one || ALONE.contains(&args[0]) {
            true => &[],
            false => &["--url", "sqlite:own.db"],
        };
        let said = site.allora(&[args, place].concat());
        if said.code != *code {
            wrong.push(format!("{args:?} ends with {}, not {code}: {}", said.code, said.err));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let help = site.allora(&["--help"]).fine();
    assert!(help.contains("EXIT CODES"), "{help}");
    let groups = help.split_once("\n`allora help").unwrap().0;
    let listed = groups.lines().filter_map(|line| line.strip_prefix("  "));
    let listed: BTreeSet<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    let covered: BTreeSet<&str> = CASES.iter().map(|(args, _)| args[0]).collect();
    assert_eq!(listed, covered, "a command without a row");
}
