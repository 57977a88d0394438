//! Detection of the daemon's first start since the machine's, at which `@reboot` lines run.

use nix::unistd::geteuid;
use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::PathBuf,
};

/// Where what does not outlive the machine's next start belongs.
fn folder() -> Option<PathBuf> {
    if geteuid().is_root() {
        return Some("/run/allora".into());
    }
    env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("allora"))
}

/// True if no daemon has been started with these crontabs since the machine was. Where that cannot
/// be remembered, as in many containers, every start is the first.
pub(crate) fn is_first_start(crontabs: &[PathBuf]) -> bool {
    let (Some(folder), Ok(boot)) =
        (folder(), fs::read_to_string("/proc/sys/kernel/random/boot_id"))
    else {
        return true;
    };
    let mut hasher = DefaultHasher::new();
    for path in crontabs {
        fs::canonicalize(path).unwrap_or_else(|_| path.clone()).hash(&mut hasher);
    }
    let stamp = folder.join(format!("started-{:016x}-{}", hasher.finish(), boot.trim()));
    let made = fs::create_dir_all(&folder).and_then(|()| fs::File::create_new(stamp));
    !matches!(made, Err(error) if error.kind() == io::ErrorKind::AlreadyExists)
}
