//! Names of lines, and lines that run on every node or at the start.

use crate::site::{Site, patiently};
use serde_json::Value;

fn json(site: &Site, args: &[&str]) -> Vec<Value> {
    let said = site.allora(&[args, &["--json", "--url", "sqlite:store.db"]].concat()).fine();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(site: &Site) -> Vec<String> {
    let jobs = json(site, &["list", "--all"]);
    let mut names: Vec<String> =
        jobs.iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_named_line_keeps_its_record_when_it_is_edited() {
    let site = Site::new("ALLORA_NAME=backup\n@every 1s echo one >> DIR/ran\n");
    let daemon = site.start();
    site.more_lines("ran", 1);
    site.allora(&["pause", "jobs:backup", "--url", "sqlite:store.db"]).fine();
    site.write("jobs", "ALLORA_NAME=backup\nALLORA_WINDOW=1h\n@every 2s echo two >> DIR/ran\n");
    daemon.signal("-HUP");
    daemon.says("changed=1");
    let shown = || json(&site, &["show", "jobs:backup"]).remove(0);
    patiently("the edit is stored", || shown()["schedule"] == "@every 2s");
    assert!(shown()["paused"].is_object(), "{}", shown());
    assert_eq!(names(&site), ["jobs:backup"]);
    site.allora(&["resume", "jobs:backup", "--url", "sqlite:store.db"]).fine();
    patiently("the new command runs", || site.read("ran").contains("two"));
    daemon.stop_well();
    let past = json(&site, &["history", "jobs:backup"]);
    assert!(past.len() >= 2, "{past:?}");
}

#[test]
fn lines_of_every_node_have_a_record_for_each_machine() {
    let site = Site::new(
        "ALLORA_NODES=every\nALLORA_NAME=rotate\n@every 1s echo $ALLORA_NODE >> DIR/ran\n",
    );
    let one = site.begin(&["--node-name", "one"]);
    let two = site.begin(&["--node-name", "two"]);
    let ran = |node: &str| site.read("ran").lines().filter(|line| line.starts_with(node)).count();
    patiently("both run it", || ran("one-") >= 1 && ran("two-") >= 1);
    assert_eq!(names(&site), ["jobs:rotate@one", "jobs:rotate@two"]);
    site.allora(&["pause", "jobs:rotate@one", "--url", "sqlite:store.db"]).fine();
    let idle = || json(&site, &["show", "jobs:rotate@one"])[0]["leases"] == Value::Array(vec![]);
    patiently("the active run has ended", idle);
    let (before, other) = (ran("one-"), ran("two-"));
    patiently("the other goes on", || ran("two-") >= other + 3);
    assert_eq!(ran("one-"), before);
    let past = json(&site, &["history", "jobs:rotate@two", "-n", "1"]);
    assert!(past[0]["node"].as_str().unwrap().starts_with("two-"), "{past:?}");
    one.stop_well();
    two.stop_well();
}

#[test]
fn a_reboot_line_is_in_the_history_with_its_machine() {
    let site = Site::new("ALLORA_NAME=warm\n@reboot echo up >> DIR/up\n").with(&[
        "--node-name",
        "host",
        "--heartbeat",
        "1s",
    ]);
    let daemon = site.start();
    site.more_lines("up", 1);
    let past = || json(&site, &["history", "jobs:warm@host"]);
    patiently("it is recorded", || past().iter().any(|past| past["outcome"] == "succeeded"));
    assert!(past()[0]["node"].as_str().unwrap().starts_with("host-"), "{:?}", past());
    daemon.stop_well();
    // The line has run since the machine was started, and its record is no orphan.
    let daemon = site.start();
    daemon.says("started");
    assert_eq!(json(&site, &["show", "jobs:warm@host"])[0]["is_orphaned"], false);
    daemon.stop_well();
    assert_eq!(site.lines("up"), 1);
}

#[test]
fn a_line_runs_where_all_of_its_labels_are_and_none_that_it_excludes() {
    let site = Site::new("ALLORA_LABEL=gpu,!spot\n@every 1s echo $ALLORA_NODE >> DIR/ran\n");
    let spot = ["--node-name", "spot", "--node-label", "gpu", "--node-label", "spot"];
    let (spot, plain) = (site.begin(&spot), site.begin(&["--node-name", "plain"]));
    let gpu = site.begin(&["--node-name", "firm", "--node-label", "gpu"]);
    site.more_lines("ran", 3);
    assert!(site.read("ran").lines().all(|node| node.starts_with("firm-")), "{}", site.read("ran"));
    for daemon in [spot, plain, gpu] {
        daemon.stop_well();
    }
}

#[test]
fn variables_of_a_file_reach_the_commands_below_those_of_the_crontab() {
    let crontab = "B=line\nALLORA_NAME=vars\n@every 1s echo \"$A, $B, $LOGNAME\" >> DIR/ran\n";
    let site = Site::new(crontab).with(&["--env-file", "common", "--env-file", "env"]);
    site.write("common", "A=common\n# all of them\nB=common\nLOGNAME=mallory\n");
    site.write("env", "A='of the file'\n");
    let daemon = site.start();
    site.more_lines("ran", 1);
    let ran = site.read("ran");
    assert!(ran.starts_with("of the file, line, ") && !ran.contains("mallory"), "{ran}");
    site.write("env", "A=\"new hush\"\n");
    daemon.signal("-HUP");
    patiently("it is read again", || site.read("ran").contains("new hush, line"));
    site.write("env", "A=x\nhush\n");
    daemon.signal("-HUP");
    daemon.says("env:2: there is no `=`");
    let before = site.lines("ran");
    site.more_lines("ran", 2);
    assert!(site.read("ran").lines().skip(before).all(|line| line.starts_with("new hush, line")));
    daemon.stop_well();
    assert!(!site.logs().contains("hush"), "{}", site.logs());
    let args = ["exec", "vars", "jobs", "--env-file", "common"];
    let bad = site.allora(&[&args[..], &["--env-file", "env"]].concat()).refused(2);
    assert!(bad.contains("env:2: there is no `=`") && !bad.contains("hush"), "{bad}");
    let before = site.lines("ran");
    site.allora(&args).fine();
    assert!(site.read("ran").lines().nth(before).unwrap().starts_with("common, line, "));
    let daemon = site.begin(&[]);
    patiently("it says so", || daemon.errors().contains("env:2: there is no `=`"));
    assert_eq!(daemon.end(), 2);
}

#[test]
fn secrets_that_are_named_are_masked_wherever_output_goes() {
    let site = Site::new(
        "TOKEN=hush-hush\nALLORA_ON_FAILURE=cat >> DIR/alert\nALLORA_NAME=leak\n\
         @every 1s printf 'say hush-'; sleep 0.3; echo \"hush, $KEY\"; exit 3\n",
    )
    .with(&["--env-file", "env", "--mask", "TOKEN", "--mask", "KEY", "--mask", "NONE"]);
    site.write("env", "KEY='line-one\nline-two'\n");
    let daemon = site.start();
    patiently("it is alerted", || site.read("alert").contains("say ***, ***"));
    daemon.says("say ***, ***");
    daemon.stop_well();
    let past = json(&site, &["history", "jobs:leak", "--outcome", "failed", "-n", "1"]).remove(0);
    assert_eq!(past["output"], "say ***, ***");
    for text in [past.to_string(), site.logs(), site.read("alert")] {
        assert!(!text.contains("hush") && !text.contains("line-"), "{text}");
    }
}
