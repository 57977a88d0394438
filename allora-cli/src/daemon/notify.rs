//! Notifications to systemd: one datagram, as `sd_notify(3)` describes it.

use std::{
    env, io,
    os::unix::net::{SocketAddr, UnixDatagram},
};

/// The daemon is still starting, and wants another minute: systemd ends what starts for too long.
pub(super) const STARTING: &str = "EXTEND_TIMEOUT_USEC=60000000";

/// Sends a state, as `READY=1`, if systemd waits for it.
pub(crate) fn notify(state: &str) {
    // A supervisor that does not listen must not stop the work.
    let _ = send(state);
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
