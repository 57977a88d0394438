//! Notifications to systemd: one datagram, as `sd_notify(3)` describes it.

use std::{
    env, io,
    os::unix::net::{SocketAddr, UnixDatagram},
    time::Duration,
};

/// The daemon is still starting, and wants another minute: systemd ends what starts for too long.
pub(super) const STARTING: &str = "EXTEND_TIMEOUT_USEC=60000000";

/// Sends a state, as `READY=1`, if systemd waits for it.
pub(crate) fn notify(state: &str) {
    // A supervisor that does not listen must not stop the work.
    let _ = send(state);
}

/// The time within which systemd wants a sign of life, if it does.
pub(super) fn watchdog() -> Option<Duration> {
    let of_another =
        env::var("WATCHDOG_PID").is_ok_and(|pid| pid != std::process::id().to_string());
    let micros = env::var("WATCHDOG_USEC").ok()?.parse().ok().filter(|_| !of_another)?;
    Some(Duration::from_micros(micros))
}

/// The daemon stops, and wants so much time for that, even if the unit gives it less.
pub(super) fn stopping(within: Duration) -> String {
    format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}", within.as_micros())
}

/// The crontabs are being read. `READY=1` follows.
pub(super) fn reloading() -> String {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(Duration::from);
    let micros = now.map(|now| now.as_micros()).unwrap_or_default();
    format!("RELOADING=1\nMONOTONIC_USEC={micros}")
}

fn send(state: &str) -> io::Result<()> {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match name.as_encoded_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)?,
        #[cfg(not(target_os = "linux"))]
        Some(_) => return Ok(()),
        None => SocketAddr::from_pathname(&name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
