//! The end of a daemon, and the other effects of signals.

use crate::{
    site::{Site, lives, patiently},
    stored,
};
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt};

const SLOW: &str = "@every 1s echo $$ >> DIR/begun; sleep 3; echo $$ >> DIR/ended\n";

#[test]
fn a_stopped_daemon_claims_nothing_more_and_lets_its_commands_end() {
    for signal in ["-TERM", "-INT", "-QUIT"] {
        let site = Site::new(SLOW);
        let daemon = site.start();
        site.more_lines("begun", 1);
        daemon.signal(signal);
        assert_eq!(daemon.end(), 0);
        assert_eq!(site.read("begun"), site.read("ended"), "{signal}");
    }
}

#[test]
fn a_daemon_that_waits_for_its_runs_is_in_the_status() {
    let site = Site::new(
        "ALLORA_MAX_RUNS=1\n@every 1s echo x >> DIR/begun; while [ ! -e DIR/go ]; do sleep 0.05; done\n",
    );
    let daemon = site.start();
    site.more_lines("begun", 1);
    daemon.signal("-TERM");
    let status = || site.allora(&["status", "--url", "sqlite:store.db"]).fine();
    patiently("it stops", || status().starts_with("0 live daemons, 1 stopping, 1 job\n"));
    let text = status();
    assert!(text.contains("1/"), "{text}");
    assert!(text.contains(", stopping: it starts nothing more, and waits for its runs"), "{text}");
    let nodes = site.allora(&["nodes", "--url", "sqlite:store.db"]).fine();
    assert!(nodes.contains(" stopping "), "{nodes}");
    site.write("go", "");
    assert_eq!(daemon.end(), 0);
    assert!(status().starts_with("0 live daemons, 1 job\n"), "{}", status());
}

#[test]
fn the_second_signal_ends_commands_at_once() {
    let site = Site::new("@every 1s echo $$ >> DIR/begun; trap '' TERM; sleep 1000; sleep 1000\n");
    let daemon = site.start();
    site.more_lines("begun", 1);
    daemon.signal("-TERM");
    daemon.says("stopping");
    daemon.signal("-TERM");
    assert_eq!(daemon.end(), 1, "commands were killed");
    for pid in site.read("begun").lines() {
        patiently("it is gone", || !lives(pid));
    }
}

#[test]
fn when_the_grace_is_over_commands_are_asked_to_end_and_then_made_to() {
    let site = Site::new(
        "@every 1s echo $$ >> DIR/begun; trap 'echo asked >> DIR/asked; exit 0' TERM; sleep 1000 & wait\n",
    )
    .with(&["--grace", "10s"]);
    let daemon = site.start();
    site.more_lines("begun", 1);
    // They end well when they are asked to, so that nothing is killed.
    assert_eq!(daemon.stop(), 0);
    assert_eq!(site.lines("asked"), site.lines("begun"));
}

#[test]
fn a_run_that_a_stop_cuts_off_is_reported_wherever_a_failure_is() {
    // The first ends when it is asked to, the second is killed.
    for trap in ["", "trap '' TERM; "] {
        let (url, came) = stored::server(0);
        let site = Site::new(&format!(
            "ALLORA_ON_FAILURE=cat >> DIR/alerts\nALLORA_PING={url}\nMAILTO=ops@example.org\n\
             ALLORA_NAME=long\nALLORA_MAX_RUNS=1\n\
             @every 1s {trap}echo half; echo x >> DIR/begun; sleep 1000\n"
        ));
        let script = format!("#!/bin/sh\ncat >> {}\n", site.path("mail").display());
        fs::write(site.path("sendmail"), script).unwrap();
        fs::set_permissions(site.path("sendmail"), fs::Permissions::from_mode(0o755)).unwrap();
        let site = site.with(&["--grace", "2s", "--sendmail", "./sendmail"]);
        let daemon = site.start();
        site.more_lines("begun", 1);
        daemon.says("half");
        assert_eq!(daemon.stop(), 1);
        let line = |args: &[&str]| -> Value {
            let said = site.allora(&[args, &["--json", "--url", "sqlite:store.db"]].concat());
            serde_json::from_str(said.out.lines().next().unwrap()).unwrap()
        };
        let past = line(&["history", "jobs:long"]);
        assert_eq!(
            (&past["outcome"], &past["reason"], &past["output"]),
            (&"cancelled".into(), &"shutdown".into(), &"half".into()),
            "{past}"
        );
        let alert: Value = serde_json::from_str(site.read("alerts").trim()).unwrap();
        assert_eq!(
            (&alert["event"], &alert["reason"], &alert["output"]),
            (&"cancelled".into(), &"shutdown".into(), &"half".into()),
            "{alert}"
        );
        assert!(came.lock().unwrap().iter().any(|one| one.line.starts_with("GET /hook/fail ")));
        assert!(site.read("mail").contains("\n\nhalf\n"), "{}", site.read("mail"));
        let log = site.logs();
        let ended = log.lines().find(|line| line.contains("cut off by the stop")).unwrap();
        assert!(ended.contains(" WARN ") && ended.contains("reason=shutdown"), "{ended}");
        assert_eq!(line(&["status"])["last_cut_off"]["name"], "jobs:long");
        let at = past["occurrence"]["scheduled_at"].as_str().unwrap();
        let why = ["why", "jobs:long", "--at", at, "--url", "sqlite:store.db"];
        let why = site.allora(&why).fine();
        assert!(why.contains("its node was stopped before it ended"), "{why}");
    }
}

#[test]
fn a_run_that_a_stop_cuts_off_and_that_runs_again_is_a_warning() {
    let site = Site::new(
        "ALLORA_DELIVERY=at-least-once\nALLORA_ON_FAILURE=cat >> DIR/alerts\nALLORA_NAME=long\n\
         @every 1s echo half; echo x >> DIR/begun; sleep 1000\n",
    )
    .with(&["--grace", "2s"]);
    let daemon = site.start();
    site.more_lines("begun", 1);
    daemon.says("half");
    let log = site.path("log.1");
    daemon.stop();
    let log = fs::read_to_string(log).unwrap();
    let ended = log.lines().find(|line| line.contains("it is run again")).unwrap();
    assert!(ended.contains(" WARN ") && ended.contains("outcome=released"), "{ended}");
    let said = site.allora(&["history", "jobs:long", "--json", "--url", "sqlite:store.db"]);
    let past: Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
    assert_eq!((&past["outcome"], &past["output"]), (&"released".into(), &"half".into()), "{past}");
    assert_eq!(site.read("alerts"), "", "nothing is to be done");
}

#[test]
fn usr2_reopens_the_log() {
    let site = Site::new("@every 1s echo tick\n");
    let daemon = site.start();
    daemon.says("tick");
    std::fs::rename(site.path("log.1"), site.path("log.old")).unwrap();
    daemon.signal("-USR2");
    daemon.says("log file reopened");
    daemon.says("tick");
    assert!(!site.read("log.old").contains("reopened"));
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn without_a_log_nothing_is_written() {
    let site =
        Site::new("@every 1s echo tick; echo tick >> DIR/ticks\n").with(&["--log-level", "off"]);
    let daemon = site.begin(&[]);
    site.more_lines("ticks", 1);
    assert_eq!(daemon.log(), "");
    assert_eq!(daemon.stop(), 0);
}
