//! The end of a daemon, and the other effects of signals.

use crate::site::{Site, lives, patiently};

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
