//! A reader of the log that reads nothing stops nothing else.

use crate::site::{Site, patiently, send};
use std::{
    fs::{File, OpenOptions},
    io::Read,
    process::{Child, Stdio},
};

/// Each run fills more than a pipe.
const LOUD: &str = "@every 1s echo tick >> DIR/ticks; head -c 200000 /dev/zero | tr '\\0' x\n";

/// The daemon continues to run jobs, and TERM ends it.
#[track_caller]
fn assert_lives(site: &Site, daemon: &mut Child) {
    site.more_lines("ticks", 6);
    send("-TERM", daemon.id());
    patiently("the daemon ends", || daemon.try_wait().unwrap().is_some());
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn a_blocked_standard_error_stops_neither_runs_nor_term() {
    let site = Site::new(LOUD);
    let mut command = site.command(&[]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut daemon = Killed(command.spawn().unwrap());
    let _unread = daemon.0.stderr.take();
    assert_lives(&site, &mut daemon.0);
}

/// A failure is said at the end, after the log.
#[test]
fn a_blocked_standard_error_does_not_stop_the_last_word() {
    let site = Site::new(
        "@every 1s echo tick >> DIR/ticks; head -c 200000 /dev/zero | tr '\\0' x; \
         trap '' TERM; sleep 1000\n",
    )
    .with(&["--grace", "1s", "--kill-after", "1s"]);
    let mut command = site.command(&[]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut daemon = Killed(command.spawn().unwrap());
    let _unread = daemon.0.stderr.take();
    site.more_lines("ticks", 3);
    send("-TERM", daemon.0.id());
    patiently("the daemon ends", || daemon.0.try_wait().unwrap().is_some());
    assert_eq!(daemon.0.wait().unwrap().code(), Some(1));
}

#[test]
fn a_blocked_log_file_stops_neither_runs_nor_term_and_what_was_dropped_is_counted() {
    let site = Site::new(LOUD);
    let pipe = site.path("log.pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Open for both, so that neither side waits for the other to open it.
    let mut reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let mut command = site.command(&["--log-file", pipe.to_str().unwrap()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut daemon = Killed(command.spawn().unwrap());
    site.more_lines("ticks", 12);
    // The reader returns.
    let said = read_until(&mut reader, "lines dropped");
    assert!(said.contains("has reached its store"), "the beginning was kept");
    // It is gone again.
    site.more_lines("ticks", 12);
    assert_lives(&site, &mut daemon.0);
}

/// Reads until a line has this in it.
fn read_until(reader: &mut File, text: &str) -> String {
    let (mut said, mut buffer) = (String::new(), [0; 65_536]);
    while !said.contains(text) {
        let read = reader.read(&mut buffer).unwrap();
        said.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    said
}

/// A daemon that is killed when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // One that has ended already is as dead.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
