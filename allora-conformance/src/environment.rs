//! The environment of tests: the stores that are wanted, and where their servers and programs are.

use futures::channel::oneshot;
use std::{
    env,
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// True if tests of this store are to run: `ALLORA_TEST_STORES` names it, or is not set.
pub fn is_wanted(store: &str) -> bool {
    let only = env::var("ALLORA_TEST_STORES");
    only.map_or(true, |only| only.split(',').any(|wanted| wanted == store))
}

/// The address of a store's servers, from an environment variable; `None` if the store is not
/// wanted, or, with a line that says so, if the variable is not set.
///
/// # Panics
/// If the variable is not set where `CI` is.
pub fn address(store: &str, variable: &str) -> Option<String> {
    if !is_wanted(store) {
        return None;
    }
    let address = env::var(variable).ok();
    if address.is_none() {
        skip(&format!("{variable} is not set"));
    }
    address
}

/// The folder of a program: one of `folders`, or of the search path; `None` if the store is not
/// wanted, or, with a line that says so, if the program is not installed.
///
/// # Panics
/// If the program is not installed where `CI` is set.
pub fn program(store: &str, program: &str, folders: Vec<PathBuf>) -> Option<PathBuf> {
    if !is_wanted(store) {
        return None;
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = folders.into_iter().chain(env::split_paths(&path));
    let found = folders.find(|folder| folder.join(program).is_file());
    if found.is_none() {
        skip(&format!("{program} is not installed"));
    }
    found
}

/// Writes that a test does not run.
///
/// # Panics
/// Where the variable `CI` is set.
#[expect(clippy::print_stderr, reason = "a skip must be seen")]
pub fn skip(reason: &str) {
    assert!(env::var_os("CI").is_none(), "{reason}");
    eprintln!("skipped: {reason}");
}

/// Makes the folder a disk of its own with room for this number of bytes. False, with a line that
/// says so, where this process may not mount one.
#[expect(clippy::print_stderr, reason = "a skip must be seen")]
pub fn mount_small_disk(folder: &Path, bytes: u32) -> bool {
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &format!("mode=0700,size={bytes}"), "tmpfs"]).arg(folder);
    let is_mounted = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !is_mounted {
        eprintln!("skipped: only root can mount a small disk");
    }
    is_mounted
}

/// Ends what [`mount_small_disk`] has made. A disk that stays is in memory, and goes with the
/// machine.
pub fn unmount(folder: &Path) {
    let _ = Command::new("umount").arg("-l").arg(folder).status();
}

/// Ports of this machine on which no process listens. They belong to this process until it ends,
/// also while its servers are stopped: no other test receives one of them.
///
/// # Panics
/// If there are none.
pub fn free_ports<const N: usize>() -> [u16; N] {
    // Below the ports that systems give to outgoing connections.
    const FROM: u32 = 10_000;
    const COUNT: u32 = 20_000;
    // The locks of the ports that belong to this process.
    static LOCKS: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let folder = env::temp_dir().join("allora-test-ports");
    fs::create_dir_all(&folder).expect("a folder for temporary files");
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    // Processes begin at different places.
    let first = std::process::id().wrapping_mul(64) % COUNT;
    let mut ports = (0..COUNT).filter_map(|i| u16::try_from(FROM + (first + i) % COUNT).ok());
    let mut free = || {
        ports.find(|port| {
            let Ok(file) = File::create(folder.join(port.to_string())) else { return false };
            let is_free =
                file.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", *port)).is_ok();
            if is_free {
                locks.push(file);
            }
            is_free
        })
    };
    [(); N].map(|()| free().expect("a free port"))
}

/// The longest wait for other processes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two questions of [`patiently`].
const PERIOD: Duration = Duration::from_millis(50);

/// Asks twenty times a second, for up to a minute.
///
/// # Panics
/// If the answer is still no.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "other processes do the work")]
pub fn patiently(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(PERIOD);
    }
}

/// [`patiently`] with questions that are futures, on any runtime.
///
/// # Panics
/// If the answer is still no.
///
/// # Cancel safety
/// No further question is asked.
#[expect(clippy::disallowed_methods, reason = "other processes do the work")]
pub async fn patiently_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < end, "in vain: {what}");
        let (over, is_over) = oneshot::channel();
        // A thread is a timer that every runtime has.
        std::thread::spawn(move || {
            std::thread::sleep(PERIOD);
            let _ = over.send(());
        });
        let _ = is_over.await;
    }
}
