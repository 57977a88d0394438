//! The ground under a server: a disk that becomes full, and a clock that is set.

use super::{failed, install, said, says_yes};
use crate::{Failure, Outcome};
use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

/// A file system in memory, of which the size is set. Dropped, it is unmounted.
pub(crate) struct Disk(PathBuf);

/// Its size while it is not full. It takes memory only for what is in it.
const SIZE: &str = "size=2g";

impl Disk {
    /// On this folder, which stays empty below. `None` if this user may not mount.
    pub(crate) fn mount(folder: &Path) -> Outcome<Option<Self>> {
        if !Self::is_possible() {
            return Ok(None);
        }
        let owner = fs::metadata(folder).map_err(|cause| failed(folder, &cause))?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", SIZE, "allora"]).arg(folder);
        if !says_yes(mount) {
            return Ok(None);
        }
        chown(folder, Some(owner.uid()), Some(owner.gid()))
            .map_err(|cause| failed(folder, &cause))?;
        Ok(Some(Self(folder.to_owned())))
    }

    /// This user may mount.
    pub(crate) fn is_possible() -> bool {
        install::is_root()
    }

    /// Leaves no room. When this returns, nothing can be written.
    pub(crate) fn fill(&self) -> Outcome {
        // A server may write between the two steps, and on a busy machine they take their time.
        for _ in 0..500 {
            let mut used = Command::new("df");
            used.args(["-k", "--output=used"]).arg(&self.0);
            let used = said(used).lines().last().unwrap_or_default().trim().to_owned();
            if self.resize(&format!("size={used}k")) && self.is_full() {
                return Ok(());
            }
        }
        Err(Failure::Check(format!("{} does not become full", self.0.display())))
    }

    /// Gives the room back.
    pub(crate) fn free(&self) -> Outcome {
        match self.resize(SIZE) && !self.is_full() {
            true => Ok(()),
            false => Err(Failure::Check(format!("{} stays full", self.0.display()))),
        }
    }

    fn resize(&self, size: &str) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,{size}")]).arg(&self.0);
        says_yes(mount)
    }

    fn is_full(&self) -> bool {
        let file = self.0.join("probe");
        let written = fs::write(&file, [0; 8_192]);
        // It is no part of the server's data.
        let _ = fs::remove_file(&file);
        written.is_err_and(|cause| cause.kind() == std::io::ErrorKind::StorageFull)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a process that still ends may have a file open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

/// A clock that is set while its programs run, by libfaketime. Their monotonic clock is the machine's.
#[derive(Clone)]
pub(crate) struct FakeClock {
    library: PathBuf,
    file: PathBuf,
}

impl FakeClock {
    /// A right one, in this file.
    pub(crate) fn new(file: PathBuf) -> Outcome<Self> {
        let clock = Self { library: install::faketime()?, file };
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets it to so many seconds after the machine's.
    pub(crate) fn set(&self, seconds: u64) -> Outcome {
        // In one step: a program reads it at any time.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("+{seconds}\n"))
            .and_then(|()| fs::rename(&new, &self.file))
            .map_err(|cause| failed(&self.file, &cause))
    }

    /// The command, with this clock.
    pub(super) fn of(&self, program: &Command) -> Command {
        let mut command = Command::new("env");
        command.arg(format!("LD_PRELOAD={}", self.library.display()));
        command.arg(format!("FAKETIME_TIMESTAMP_FILE={}", self.file.display()));
        command.args(["FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"]);
        command.arg(program.get_program()).args(program.get_args());
        command
    }

    pub(super) fn remove(&self) {
        // A file that stays harms nobody.
        let _ = fs::remove_file(&self.file);
    }
}
