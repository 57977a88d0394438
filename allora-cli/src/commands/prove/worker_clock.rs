//! The clock of a worker, which is set while it runs: by libfaketime, where the command is given that library.

use crate::{
    clock,
    failure::{Failure, Outcome},
};
use allora_conformance::faults::wall;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

/// The variable that names the file with the clock's offset.
const FILE: &str = "FAKETIME_TIMESTAMP_FILE";

/// The offset from which on a worker says that its clock is wrong, in milliseconds.
const WRONG: u64 = 1_000;

/// The file that sets the clock of a worker.
#[derive(Debug)]
pub(super) struct WorkerClock {
    library: PathBuf,
    file: PathBuf,
}

impl WorkerClock {
    /// A right clock.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn new(library: &Path, file: PathBuf) -> Outcome<Self> {
        let clock = Self { library: library.to_owned(), file };
        clock.set("+0")?;
        Ok(clock)
    }

    /// The command has this clock.
    pub(super) fn give(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env(FILE, &self.file);
        // Timers go on, as on a machine whose clock is set.
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    /// Sets it to so many seconds beside the machine's, with a sign.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn set(&self, offset: &str) -> Outcome {
        let new = self.file.with_extension("new");
        let written = fs::write(&new, offset).and_then(|()| fs::rename(&new, &self.file));
        written.map_err(|error| Failure::failed(format!("cannot write {}: {error}", new.display())))
    }

    /// The worker has seen that its clock is wrong, since this was asked last.
    pub(super) fn was_seen_wrong(&self) -> bool {
        fs::remove_file(seen(&self.file)).is_ok()
    }

    /// In a worker: notes that the clock is wrong.
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread beside the runtime, whose clock is wrong"
    )]
    pub(super) fn watch() {
        // The log must not have the wrong clock.
        wall();
        let Some(file) = env::var_os(FILE) else { return };
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_millis(100));
                if clock::now().timestamp_millis().abs_diff(wall()) > WRONG {
                    // The trial fails if nobody finds it.
                    let _ = fs::write(seen(Path::new(&file)), "");
                }
            }
        });
    }
}

fn seen(file: &Path) -> PathBuf {
    file.with_extension("seen")
}
