//! Nodes and servers that are killed, frozen and cut off: what they wrote down is judged by the
//! history checker.

#![expect(clippy::disallowed_methods, reason = "these tests wait for other processes")]

mod cut;
mod deaf;
mod full;
mod kill;
mod node;
mod outage;
mod server;
mod settings;
mod tls;

use std::{
    thread,
    time::{Duration, Instant},
};

/// Asks twenty times a second for up to a minute.
fn patiently(what: &str, mut asked: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !asked() {
        assert!(Instant::now() < end, "in vain: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}
