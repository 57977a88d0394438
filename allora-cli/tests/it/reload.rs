//! New versions of crontabs, while the daemon runs.

use crate::site::Site;

const OLD: &str = "@every 1s echo old >> DIR/old\n";
const NEW: &str = "@every 1s echo new >> DIR/new\n";

#[test]
fn a_new_version_is_read_when_asked_and_when_noticed() {
    for signal in ["-HUP", "-USR1", ""] {
        let site = Site::new(OLD);
        let daemon = site.start();
        site.more_lines("old", 1);
        site.write("jobs", NEW);
        if !signal.is_empty() {
            daemon.signal(signal);
        }
        site.more_lines("new", 2);
        let old = site.lines("old");
        site.more_lines("new", 2);
        assert_eq!(site.lines("old"), old, "{signal:?}");
        assert!(daemon.log().contains("jobs=1 added=1 removed=1 changed=0"), "{}", daemon.log());
        assert_eq!(daemon.stop(), 0);
    }
}

#[test]
fn active_runs_continue() {
    let site = Site::new("@every 1s echo begun >> DIR/begun; sleep 4; echo ended >> DIR/ended\n");
    let daemon = site.start();
    site.more_lines("begun", 1);
    site.write("jobs", NEW);
    daemon.signal("-HUP");
    daemon.says("removed=1");
    site.more_lines("new", 1);
    site.more_lines("ended", 1);
    assert_eq!(daemon.stop(), 0);
    assert_eq!(site.lines("begun"), site.lines("ended"));
}

#[test]
fn other_variables_take_effect_with_the_next_run() {
    let line = "@every 1s echo $WORD >> DIR/words\n";
    let site = Site::new(&format!("WORD=one\n{line}"));
    let daemon = site.start();
    site.more_lines("words", 1);
    site.write("jobs", &format!("WORD=two\n\n{line}"));
    daemon.signal("-HUP");
    daemon.says("changed=1");
    let before = site.lines("words");
    site.more_lines("words", 2);
    assert!(site.read("words").lines().skip(before + 1).all(|word| word == "two"));
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_bad_new_version_changes_nothing_and_the_log_says_why() {
    let site = Site::new(OLD);
    let daemon = site.start();
    site.more_lines("old", 1);
    site.write("jobs", &format!("{NEW}61 * * * * bad\n"));
    daemon.signal("-HUP");
    daemon.says("jobs:2:1: minute: \"61\" is not within 0 to 59");
    daemon.says("what runs is 1 line of the version before");
    site.more_lines("old", 2);
    assert_eq!(site.lines("new"), 0);
    // Mended, it is taken.
    site.write("jobs", NEW);
    site.more_lines("new", 1);
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_deleted_crontab_changes_nothing_and_is_reported_once() {
    let site = Site::new(OLD);
    let daemon = site.start();
    std::fs::remove_file(site.path("jobs")).unwrap();
    daemon.says("jobs: No such file or directory (os error 2); the jobs that were loaded before keep running");
    site.more_lines("old", 7);
    assert_eq!(daemon.log().matches("No such file").count(), 1);
    assert_eq!(daemon.stop(), 0);
}
