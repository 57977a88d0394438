//! Questions of operators: what runs, why something does not, and what became of it.

use crate::site::{Daemon, Site, patiently};
use serde_json::Value;
use std::process::Stdio;

const URL: [&str; 2] = ["--url", "sqlite:store.db"];

fn allora(site: &Site, args: &[&str]) -> crate::allora::Observed {
    site.allora(&[args, &URL].concat())
}

fn json(site: &Site, args: &[&str]) -> Vec<Value> {
    let said = allora(site, &[args, &["--json"]].concat()).fine();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn history(site: &Site, name: &str) -> Vec<Value> {
    let said = allora(site, &["history", name, "--json"]);
    said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A daemon with a line that succeeds, one that fails, and one that never comes.
fn start() -> (Site, Daemon) {
    let site = Site::new(
        "ALLORA_NAME=good\n@every 1s echo fine; sleep 0.1\n\
         ALLORA_NAME=bad\n@every 1s echo oops; exit 3\n\
         ALLORA_NAME=rare\n0 0 1 1 * echo rarely; echo $WHO; exit ${CODE:-0}\n",
    )
    .with(&["--heartbeat", "1s", "--node-label", "gpu"]);
    let daemon = site.start();
    for name in ["jobs:good", "jobs:bad"] {
        patiently("it has run", || {
            history(&site, name).iter().filter(|past| past["ended_at"].is_string()).count() >= 3
        });
    }
    (site, daemon)
}

#[test]
fn the_status_has_the_daemons_and_what_the_jobs_do() {
    let (site, daemon) = start();
    allora(&site, &["pause", "jobs:good"]).fine();
    let page = json(&site, &["status"]).remove(0);
    assert_eq!(
        (&page["version"], &page["jobs"], &page["paused"]),
        (&1.into(), &3.into(), &1.into())
    );
    assert_eq!(
        (&page["nodes"][0]["labels"][0], &page["nodes"][0]["jobs"]),
        (&"gpu".into(), &3.into())
    );
    assert_eq!((&page["orphaned"], &page["overdue"]), (&0.into(), &0.into()));
    assert_eq!((&page["last_lost"], &page["unreadable"]), (&Value::Null, &0.into()));
    assert_eq!((&page["failing"], &page["at_least"]), (&1.into(), &Value::Array(Vec::new())));
    let failing = allora(&site, &["list", "--all", "--state", "failing"]).fine();
    assert!(failing.contains("jobs:bad") && !failing.contains("jobs:good"), "{failing}");
    let text = allora(&site, &["status"]).fine();
    assert!(text.starts_with("1 live daemon, 3 jobs\n"), "{text}");
    assert!(
        text.contains("\npaused     1, such as jobs:good\n") && text.contains("labels gpu"),
        "{text}"
    );
    assert!(text.contains("\nread at    20"), "{text}");

    let mut watch = crate::allora::command(&["status", "--watch=300ms", "--json"]);
    watch.args(URL).current_dir(site.path(""));
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watch.stdout.take().unwrap()));
    let mut last = String::new();
    for _ in 0..3 {
        let page: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let at = page["at"].as_str().unwrap().to_owned();
        assert!(page["nodes"].is_array() && last < at, "{last}: {page}");
        last = at;
    }
    watch.kill().unwrap();
    watch.wait().unwrap();

    daemon.stop_well();
    patiently("nothing is live", || {
        allora(&site, &["status"]).fine().starts_with("0 live daemons, 3 jobs\n")
    });
}

#[test]
fn why_says_what_keeps_a_job_and_what_became_of_a_time() {
    let (site, daemon) = start();
    let why = |args: &[&str]| allora(&site, &[&["why"], args].concat()).fine();
    let rare = why(&["jobs:rare"]);
    assert!(rare.starts_with("its next occurrence is scheduled at 20"), "{rare}");
    allora(&site, &["pause", "jobs:rare", "-m", "for repairs"]).fine();
    let paused = why(&["jobs:rare"]);
    assert!(paused.contains(": for repairs; `allora resume jobs:rare`"), "{paused}");
    let past = history(&site, "jobs:bad");
    let at = past.last().unwrap()["occurrence"]["scheduled_at"].as_str().unwrap();
    let bad = why(&["jobs:bad", "--at", at]);
    assert!(bad.starts_with(at) && bad.contains("failed: exit status: 3"), "{bad}");
    let off = why(&["jobs:rare", "--at", "2026-03-07T12:00:00Z"]);
    assert!(
        off.contains(
            "not a scheduled time of its schedule; the next one after it is 2027-01-01T00:00:00Z"
        ),
        "{off}"
    );
    let before = why(&["jobs:rare", "--at", "2020-01-01T00:00:00Z"]);
    assert!(before.starts_with("the job was created at 20"), "{before}");
    let of_day = why(&["jobs:rare", "--at", "12:30"]);
    assert!(of_day.contains("T12:30:00Z is not a scheduled time"), "{of_day}");
    let object = json(&site, &["why", "jobs:rare"]).remove(0);
    assert_eq!(
        (&object["code"], &object["evidence"]["note"]),
        (&"paused".into(), &"for repairs".into())
    );
    assert!(object["remedy"].as_str().unwrap().contains("allora resume"), "{object}");
    let coming = why(&["jobs:rare", "--at", "2099-01-01T00:00:00Z"]);
    assert!(coming.contains("has not come yet"), "{coming}");
    assert!(allora(&site, &["why", "nothing"]).refused(1).contains("\"nothing\""));
    daemon.stop_well();
    // One that is stopped while it writes its record is dead after three heartbeats.
    patiently("nothing is live", || {
        why(&["jobs:rare"]).starts_with("no node is live on this store")
    });
}

#[test]
fn the_history_is_filtered_and_its_times_are_summed_up() {
    let (site, daemon) = start();
    daemon.stop_well();
    let failed = json(&site, &["history", "--outcome", "failed,lost"]);
    assert!(failed.len() >= 3 && failed.iter().all(|past| past["outcome"] == "failed"));
    assert!(failed.iter().all(|past| past["exit_status"] == 3), "{failed:?}");
    assert_eq!(json(&site, &["history", "--outcome", "failed", "-n", "2"])[..], failed[..2]);
    let all = json(&site, &["history", "--job", "jobs:bad"]);
    let third = all[all.len() - 3]["started_at"].as_str().unwrap();
    assert_eq!(json(&site, &["history", "jobs:bad", "--since", third])[..], all[..all.len() - 2]);
    assert_eq!(json(&site, &["history", "jobs:bad", "--since", "1h"]), all);
    assert!(allora(&site, &["history", "--outcome", "well"]).refused(2).contains("\"well\""));
    assert!(allora(&site, &["history", "nothing"]).refused(1).contains("\"nothing\""));

    let stats = json(&site, &["stats", "jobs:good"]).remove(0);
    assert_eq!((&stats["failed"], &stats["failure_rate"]), (&0.into(), &0.0.into()));
    assert!(stats["took_ms"]["p50"].as_u64().unwrap() >= 100, "{stats}");
    assert!(stats["took_ms"]["p95"].as_u64() >= stats["took_ms"]["p50"].as_u64(), "{stats}");
    assert_eq!(json(&site, &["stats", "jobs:bad"])[0]["failure_rate"], 1.0);
    let none = allora(&site, &["stats", "jobs:rare"]).refused(1);
    assert!(none.contains("no run of \"jobs:rare\" has ended yet"), "{none}");

    let logs = allora(&site, &["logs", "jobs:bad", "-n", "2"]).fine();
    assert_eq!(logs.matches("\n    oops\n").count(), 2, "{logs}");
    assert_eq!(logs.matches(": exit status: 3\n").count(), 2, "{logs}");
}

#[test]
fn the_logs_of_a_job_go_on_with_the_runs_that_end() {
    let (site, daemon) = start();
    let mut logs = crate::allora::command(&["logs", "-f", "jobs:bad", "-n", "1"]);
    logs.args(URL).current_dir(site.path(""));
    let mut logs = logs.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(logs.stdout.take().unwrap()));
    let ended = lines.map(Result::unwrap).filter(|line| !line.contains(" running on "));
    let lines: Vec<String> = ended.take(6).collect();
    logs.kill().unwrap();
    logs.wait().unwrap();
    let times: Vec<&str> =
        lines.iter().step_by(2).map(|line| line.split(' ').next().unwrap()).collect();
    assert!(times.windows(2).all(|two| two[0] < two[1]), "each once, in order: {lines:?}");
    assert!(lines.iter().skip(1).step_by(2).all(|line| line == "    oops"), "{lines:?}");
    daemon.stop_well();
}

#[test]
fn a_run_that_is_going_on_is_followed_to_its_end() {
    let site = Site::new(
        "ALLORA_NAME=rare\n0 0 1 1 * touch DIR/begun; until test -e DIR/go; do sleep 0.1; done; echo done; exit 4\n",
    );
    let daemon = site.start();
    patiently("it is registered", || allora(&site, &["show", "jobs:rare"]).code == 0);
    allora(&site, &["trigger", "jobs:rare"]).fine();
    patiently("it runs", || site.path("begun").exists());
    let mut logs = crate::allora::command(&["logs", "-f", "--once", "rare"]);
    logs.args(URL).current_dir(site.path(""));
    let mut logs = logs.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(logs.stdout.take().unwrap()));
    let mut lines = lines.map(Result::unwrap);
    let begun = lines.next().unwrap();
    assert!(begun.contains(" running on ") && begun.ends_with("attempt 1"), "{begun}");
    site.write("go", "");
    let ended: Vec<String> = lines.collect();
    assert!(
        ended[0].contains(" failed in ") && ended[0].ends_with(": exit status: 4"),
        "{ended:?}"
    );
    assert_eq!(ended[1..], ["    done"]);
    assert!(logs.wait().unwrap().success());
    assert_eq!(allora(&site, &["logs", "-f", "--once", "rare"]).fine().lines().count(), 2);
    daemon.stop_well();
}

#[test]
fn a_trigger_is_waited_for_and_gives_its_exit_status() {
    let site = Site::new("ALLORA_NAME=rare\n0 0 1 1 * echo said; test -e DIR/well || exit 7\n")
        .with(&["--heartbeat", "1s"]);
    let daemon = site.start();
    patiently("it is registered", || allora(&site, &["show", "jobs:rare"]).code == 0);
    let trigger = |id: &str| allora(&site, &["trigger", "jobs:rare", "--wait", "--id", id]);
    let failed = trigger("one");
    assert_eq!((failed.code, failed.out.as_str()), (7, "one\nsaid\n"), "{failed:?}");
    assert!(failed.err.contains("failed: exit status: 7"), "{failed:?}");
    site.write("well", "");
    let again = trigger("one");
    assert_eq!((again.code, again.out.as_str()), (7, "one\nsaid\n"), "the end of that run");
    assert!(again.err.contains("with the id \"one\" before"), "{again:?}");
    assert!(again.err.contains("use another --id"), "{again:?}");
    assert_eq!(trigger("two").fine(), "two\nsaid\n", "another id is another run");
    let at_once = [&["trigger", "jobs:rare", "--wait", "--id", "two"][..], &["--retention", "0"]];
    let again = allora(&site, &at_once.concat());
    assert_eq!((again.code, again.out.as_str()), (0, "two\nsaid\n"), "it is remembered");
    allora(&site, &["pause", "jobs:rare"]).fine();
    daemon.stop_well();
    let late =
        allora(&site, &["trigger", "jobs:rare", "--id", "x", "--wait", "--wait-timeout", "1s"]);
    assert_eq!(late.code, 4, "{late:?}");
    assert!(late.err.contains("has not ended within 1s"), "{late:?}");
}

#[test]
fn the_command_of_a_line_is_run_here_with_its_environment() {
    let site = Site::new(
        "WHO=me\nALLORA_NAME=rare\n0 0 1 1 * cat; echo $WHO $ALLORA_JOB; exit 5%the input\n\
         ALLORA_NAME=killed\n@daily kill -9 $$\n",
    );
    let ran = site.allora(&["exec", "jobs:rare", "jobs"]);
    assert_eq!((ran.code, ran.out.as_str()), (5, "the input\nme jobs:rare\n"), "{ran:?}");
    assert_eq!(site.allora(&["exec", "jobs:killed", "jobs"]).code, 137);
    let none = site.allora(&["exec", "jobs:other", "jobs"]).refused(1);
    assert!(none.contains("\"jobs:other\"; they have jobs:rare, jobs:killed"), "{none}");
    allora(&site, &["init"]).fine();
    allora(&site, &["add", "job", "command", "@daily", r#"{"command": ["echo", "stored"]}"#])
        .fine();
    assert_eq!(allora(&site, &["exec", "job"]).fine(), "stored\n");
}

#[test]
fn show_names_the_command_the_user_the_file_the_timeout_and_the_alerts_of_a_line() {
    let site = Site::new(
        "MAILTO=ops@example.org\nALLORA_ON_FAILURE=notify-team\nALLORA_TIMEOUT=90s\n\
         ALLORA_NAME=rare\n0 0 1 1 * echo rarely\n",
    );
    site.write("system", "ALLORA_NAME=plain\n0 0 1 1 * nobody echo plainly\n");
    let daemon = site.start();
    patiently("it is registered", || allora(&site, &["show", "jobs:rare"]).code == 0);
    daemon.stop_well();
    let stored = allora(&site, &["show", "rare"]).fine();
    assert!(
        stored.contains("\ncommand       in its crontab alone; `allora show jobs:rare FILE`"),
        "{stored}"
    );
    let shown = allora(&site, &["show", "rare", "jobs"]).fine();
    for line in [
        "file          jobs:5",
        "command       echo rarely",
        "user          that of the daemon",
        "timeout       1m30s",
        "alerts        on failure: notify-team; mail to: ops@example.org",
    ] {
        assert!(shown.lines().any(|one| one == line), "{line}: {shown}");
    }
    let line = &json(&site, &["show", "jobs:rare", "jobs"])[0]["line"];
    assert_eq!(
        (&line["command"], &line["line"], &line["timeout_ms"], &line["user"]),
        (&"echo rarely".into(), &5.into(), &90_000.into(), &Value::Null)
    );
    assert_eq!(json(&site, &["show", "jobs:rare"])[0]["line"], Value::Null);
    let none = allora(&site, &["show", "jobs:rare", "system", "--system"]).refused(1);
    assert!(none.contains("no line of the name \"jobs:rare\"; they have system:plain"), "{none}");
}

#[test]
fn the_history_has_the_exit_status_or_the_signal_of_each_command() {
    let site = Site::new(
        "ALLORA_NAME=killed\n@every 1s kill -9 $$\n\
         ALLORA_TIMEOUT=1s\nALLORA_NAME=slow\n@every 1s sleep 1000\n\
         ALLORA_NAME=late\n@every 1s trap 'exit 5' TERM; sleep 1000 & wait\n",
    )
    .with(&["--kill-after", "1s"]);
    let daemon = site.start();
    for (name, status, signal, error) in [
        ("jobs:killed", Value::Null, 9.into(), "signal: 9 (SIGKILL)"),
        ("jobs:slow", Value::Null, 15.into(), "timed out after 1s, and was ended: signal: 15"),
        ("jobs:late", 5.into(), Value::Null, "timed out after 1s, and was ended: exit status: 5"),
    ] {
        let ended = || history(&site, name).into_iter().find(|past| past["outcome"] == "failed");
        patiently("it has failed", || ended().is_some());
        let past = ended().unwrap();
        assert_eq!((&past["exit_status"], &past["signal"]), (&status, &signal), "{past}");
        assert!(past["error"].as_str().unwrap().starts_with(error), "{past}");
        assert!(allora(&site, &["logs", name]).fine().contains(error), "{name}");
    }
    daemon.stop();
}
