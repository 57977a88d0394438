//! Alerts to people, and the log of runs.

use crate::{
    site::{Site, patiently},
    stored,
};
use serde_json::Value;
use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt};

/// The objects in a file, one on each line.
fn objects(site: &Site, name: &str) -> Vec<Value> {
    let text = site.read(name);
    let whole = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    whole.collect()
}

#[test]
fn a_failed_run_is_passed_to_a_command_as_json() {
    let site = Site::new(
        "ALLORA_ON_FAILURE=cat >> DIR/alerts\nALLORA_NAME=bad\n@every 1s echo oops; exit 3\n\
         ALLORA_NAME=good\n@every 1s echo fine\n",
    );
    let daemon = site.start();
    patiently("it is alerted", || objects(&site, "alerts").len() >= 2);
    daemon.stop_well();
    let alerts = objects(&site, "alerts");
    for alert in &alerts {
        assert_eq!((&alert["version"], &alert["event"]), (&1.into(), &"failed".into()));
        assert_eq!((&alert["job"], &alert["exit_status"]), (&"jobs:bad".into(), &3.into()));
        assert_eq!((&alert["output"], &alert["attempt"]), (&"oops".into(), &1.into()));
        assert!(alert["took_ms"].is_u64() && alert["scheduled_at"].is_string(), "{alert}");
    }
}

#[test]
fn failures_of_stored_schedules_and_of_lines_that_name_nobody_go_to_the_daemons_command() {
    let site = Site::new(
        "ALLORA_NAME=bad\n@every 1s exit 4\n\
         ALLORA_ON_FAILURE=cat >> DIR/own\nALLORA_NAME=own\n@every 1s exit 5\n",
    );
    let data = r#"{"command": ["sh", "-c", "echo oops; exit 3"]}"#;
    let add = ["add", "stored", "command", "@every 1s", data, "--at-most-once"];
    for args in [&["init"][..], &add] {
        site.allora(&[args, &["--url", "sqlite:store.db"]].concat()).fine();
    }
    let all = format!("cat >> {}", site.path("all").display());
    let site = site.with(&["--stored", "--on-failure", &all]);
    let daemon = site.start();
    let names = |file: &str| -> BTreeSet<String> {
        objects(&site, file).iter().map(|alert| alert["job"].as_str().unwrap().into()).collect()
    };
    let expected = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    patiently("all are alerted", || names("all").len() == 2 && names("own").len() == 1);
    assert_eq!(names("all"), expected(&["jobs:bad", "stored"]));
    assert_eq!(names("own"), expected(&["jobs:own"]));
    let alerts = objects(&site, "all");
    let of_stored = alerts.iter().find(|alert| alert["job"] == "stored").unwrap();
    assert_eq!((&of_stored["exit_status"], &of_stored["output"]), (&3.into(), &"oops".into()));
    daemon.stop_well();
}

#[test]
fn a_dead_letter_is_alerted_once_and_not_its_attempts_before() {
    let (url, came) = stored::server(0);
    let site = Site::new(&format!(
        "ALLORA_DELIVERY=at-least-once\nALLORA_ATTEMPTS=2\nALLORA_RETRY_WAIT=100ms\n\
         ALLORA_MAX_RUNS=1\nALLORA_ON_FAILURE={url}\n@every 1s exit 7\n"
    ));
    let daemon = site.start();
    daemon.says(" outcome=dead");
    patiently("it is alerted", || !came.lock().unwrap().is_empty());
    daemon.stop_well();
    let came = came.lock().unwrap().clone();
    assert_eq!(came.len(), 1, "{came:?}");
    let alert: Value = serde_json::from_str(&came[0].body).unwrap();
    assert_eq!((&alert["event"], &alert["attempt"]), (&"dead".into(), &2.into()));
}

#[test]
fn output_is_mailed_and_a_dead_mans_switch_is_pinged() {
    let (url, came) = stored::server(0);
    let site = Site::new(&format!(
        "MAILTO=ops@example.org\nMAILFROM=cron@example.org\nALLORA_PING={url}\n\
         ALLORA_NAME=loud\n@every 1s echo a line; exit 3\n\
         MAILTO=\nALLORA_NAME=quiet\n@every 1s echo unread\n"
    ));
    let sendmail = site.path("sendmail");
    let script = format!("#!/bin/sh\ncat >> {}\n", site.path("mail").display());
    fs::write(&sendmail, script).unwrap();
    fs::set_permissions(&sendmail, fs::Permissions::from_mode(0o755)).unwrap();
    let site = site.with(&["--sendmail", "./sendmail"]);
    let daemon = site.start();
    patiently("it is mailed", || site.read("mail").contains("a line"));
    let pinged = |path: &str| came.lock().unwrap().iter().any(|one| one.line.starts_with(path));
    patiently("both are pinged", || pinged("GET /hook ") && pinged("GET /hook/fail "));
    daemon.stop_well();
    let mail = site.read("mail");
    for part in [
        "From: cron@example.org\n",
        "To: ops@example.org\n",
        "Subject: jobs:loud: failed, exit status 3\n",
        "\n\na line\n",
    ] {
        assert!(mail.contains(part), "{part:?}: {mail}");
    }
    assert!(!mail.contains("unread"), "{mail}");
}

#[test]
fn a_line_with_a_rule_alerts_after_so_many_failures_and_when_it_pauses_itself() {
    let site = Site::new(
        "ALLORA_ON_FAILURE=cat >> DIR/alerts\nALLORA_NAME=bad\nALLORA_BREAKER=3\nALLORA_ALERT=2\n\
         @every 1s echo oops; exit 3\n",
    );
    let daemon = site.start();
    daemon.says("the job has paused itself");
    patiently("it is alerted", || objects(&site, "alerts").len() >= 2);
    daemon.stop_well();
    let alerts = objects(&site, "alerts");
    let events: Vec<_> = alerts.iter().map(|one| (&one["event"], &one["failures"])).collect();
    let expected = [(&"failing".into(), &2.into()), (&"paused".into(), &3.into())];
    assert_eq!(events, expected);
    assert_eq!((&alerts[1]["output"], &alerts[1]["exit_status"]), (&"oops".into(), &3.into()));
}

#[test]
fn the_owner_of_a_stored_schedule_is_told_by_each_of_its_receivers() {
    let (url, came) = stored::server(0);
    let site = Site::new("");
    let data = r#"{"command": ["sh", "-c", "echo oops; exit 3"]}"#;
    let add =
        ["add", "acme/bad", "command", "@every 1s", data, "--at-most-once", "--owner", "sales"];
    let rules = ["--alert", "2", "--breaker", "4 1h"];
    for args in [&["init"][..], &[&add[..], &rules].concat()] {
        site.allora(&[args, &["--url", "sqlite:store.db"]].concat()).fine();
    }
    let sendmail = site.path("sendmail");
    fs::write(&sendmail, format!("#!/bin/sh\ncat >> {}\n", site.path("mail").display())).unwrap();
    fs::set_permissions(&sendmail, fs::Permissions::from_mode(0o755)).unwrap();
    let call = format!("sales=cat >> {}", site.path("sales").display());
    let ping = format!("sales=ping:{url}/{{job}}");
    let other = format!("hr=cat >> {}", site.path("hr").display());
    let to = |receiver| ["--receiver", receiver];
    let receivers = [&call, &ping, &other, "sales=mailto:sales@example.org"].map(to).concat();
    let args = [&["--stored", "--sendmail", "./sendmail"][..], &receivers].concat();
    let site = site.with(&args);
    let daemon = site.start();
    patiently("it is told", || objects(&site, "sales").len() >= 2);
    patiently("it is mailed", || site.read("mail").contains("acme/bad: paused, 4 failed in a row"));
    daemon.stop_well();
    let events: Vec<_> = objects(&site, "sales").iter().map(|one| one["event"].clone()).collect();
    assert_eq!(events, ["failing", "paused"]);
    assert!(objects(&site, "hr").is_empty());
    let came = came.lock().unwrap();
    assert!(came.iter().all(|one| one.line.starts_with("GET /hook/acme%2Fbad/fail ")), "{came:?}");
    assert!(came.len() >= 4, "each failure is a ping");
}

#[test]
fn an_alert_that_cannot_be_sent_is_logged() {
    let site = Site::new("ALLORA_ON_FAILURE=exit 9\n@every 1s false\n");
    let daemon = site.start();
    daemon.says("alert not sent");
    assert!(daemon.log().contains("/bin/sh: exit status: 9"), "{}", daemon.log());
    daemon.stop_well();
}

#[test]
fn a_daemon_that_stops_sends_the_alerts_of_its_last_runs() {
    let site = Site::new(
        "ALLORA_ON_FAILURE=sleep 1; cat >> DIR/alerts\nALLORA_NAME=bad\n\
         @every 1s echo $$ >> DIR/begun; sleep 2; exit 3\n",
    );
    let daemon = site.start();
    site.more_lines("begun", 1);
    daemon.stop_well();
    assert_eq!(objects(&site, "alerts").len(), site.lines("begun"));
}

#[test]
fn lost_and_expired_runs_are_logged_and_alerted_by_the_node_that_finds_them() {
    let site = Site::new(
        "ALLORA_ON_FAILURE=cat >> DIR/alerts\nALLORA_NAME=long\n\
         @every 1s echo $$ >> DIR/began; test -e DIR/second || sleep 1000\n\
         ALLORA_DELIVERY=at-least-once\nALLORA_LEASE=3s\nALLORA_NAME=again\n\
         @every 1s echo $$ >> DIR/again; test -e DIR/second || sleep 1000\n",
    )
    .with(&["--lost-after", "3s"]);
    let first = site.begin(&["--node-name", "first"]);
    patiently("both have begun", || site.lines("began") >= 1 && site.lines("again") >= 1);
    let second = site.begin(&["--node-name", "second"]);
    second.says("has reached its store");
    site.write("second", "");
    first.kill();
    for pid in (site.read("began") + &site.read("again")).lines() {
        // One that belonged to the second daemon may have ended.
        let _ = std::process::Command::new("kill").args(["-KILL", pid]).status();
    }
    second.says("run lost: its lease has ended");
    second.says("run expired: its lease has ended, and the occurrence is run again");
    let log = second.log();
    let line = log.lines().find(|line| line.contains("run lost")).unwrap();
    for part in [" WARN ", "job=jobs:long", "ran_on=first-", "scheduled_at=20", "age_ms="] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let lost = || objects(&site, "alerts").into_iter().find(|alert| alert["event"] == "lost");
    patiently("it is alerted", || lost().is_some());
    assert!(lost().unwrap()["node"].as_str().unwrap().starts_with("first-"));
    let expired = || objects(&site, "alerts").into_iter().any(|alert| alert["event"] == "expired");
    patiently("the expired run is alerted, too", expired);
    second.stop_well();
}

#[test]
fn a_run_has_two_lines_of_one_id_with_its_times_and_its_exit_status() {
    let site =
        Site::new("ALLORA_NAME=job\n@every 1s echo 'a\u{301}'; printf '\\033[31mred\\n'; exit 3\n")
            .with(&["--log-format", "json"]);
    let daemon = site.start();
    let ended = || -> Option<Value> {
        objects(&site, "log.1")
            .into_iter()
            .find(|line| line["message"] == "ended" && !line["run"].is_null())
    };
    patiently("a run has ended", || ended().is_some());
    daemon.stop_well();
    let ended = ended().unwrap();
    let all = objects(&site, "log.1");
    let lines: Vec<&Value> = all.iter().filter(|line| line["run"] == ended["run"]).collect();
    let words: Vec<&str> = lines.iter().filter_map(|line| line["message"].as_str()).collect();
    assert_eq!(words, ["started", "a\u{301}", "\u{1b}[31mred", "ended"]);
    assert!(lines[0]["late_ms"].is_u64() && ended["took_ms"].is_u64(), "{lines:?}");
    assert_eq!((&ended["exit_status"], &ended["outcome"]), (&3.into(), &"failed".into()));
    assert_eq!((&ended["level"], &ended["job"]), (&"warn".into(), &"jobs:job".into()));
    assert!(ended["time"].as_str().unwrap().ends_with('Z'), "{ended}");
    assert!(!site.read("log.1").contains('\u{1b}'));
}

#[test]
fn the_journal_gets_priorities_and_no_times() {
    let site = Site::new("ALLORA_NAME=job\n@every 1s printf '\\033[31mred\\n'; exit 3\n")
        .with(&["--log-format", "journal"]);
    let daemon = site.start();
    daemon.says("<4>ended job=jobs:job run=jobs:job#");
    let log = daemon.log();
    assert!(log.contains("<6>\\u{1b}[31mred job=jobs:job "), "{log}");
    assert!(log.lines().all(|line| line.starts_with('<')) && !log.contains('\u{1b}'), "{log}");
    daemon.stop_well();
}
