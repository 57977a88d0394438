//! The file of an SQLite database, which may be deleted or replaced while it is open.
//!
//! SQLite does not notice: a connection goes on with the former file, which has no name any more, and
//! new connections open the present one. So two fleets of nodes would run every job. Before and after
//! each call, the file of that name is compared with the one that the connections have opened.
#![expect(clippy::disallowed_methods, reason = "how long a file is missing is real time")]

use std::{
    ffi::OsString,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

/// The time for which a file may be missing. Then a new one is created.
const MISSING: Duration = Duration::from_secs(10);

/// The file of a database, with its write-ahead log.
pub(crate) struct DatabaseFile {
    path: PathBuf,
    wal: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Open,
    /// The log of the open file.
    wal: Option<Identity>,
    /// The last commit of any process when the present call began.
    last_commit: Option<SystemTime>,
    missing_since: Option<Instant>,
}

/// The file that the connections have opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Open {
    /// There are no connections yet, or it is no file.
    #[default]
    Unknown,
    File(Identity),
    /// It could not be used.
    Unusable,
}

/// The device and the number of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

#[cfg(unix)]
fn identity(file: &fs::Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    Some(Identity(file.dev(), file.ino()))
}

/// Elsewhere an open file can be neither deleted nor replaced.
#[cfg(not(unix))]
fn identity(_: &fs::Metadata) -> Option<Identity> {
    None
}

/// The file is another one than before, or gone.
#[derive(Debug)]
struct Moved {
    is_missing: bool,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_missing { "the file is gone" } else { "it is another file" })
    }
}

impl std::error::Error for Moved {}

impl DatabaseFile {
    pub(crate) fn new(path: &Path) -> Self {
        let wal = beside(path, "-wal");
        Self { path: path.to_owned(), wal, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if the file is another one than that of the connections.
    pub(crate) fn check(&self) -> sqlx::Result<()> {
        let present = self.present();
        let open = self.state().open;
        let is_same = match open {
            Open::Unknown => true,
            Open::File(open) => present == Some(open),
            Open::Unusable => false,
        };
        let moved = Moved { is_missing: present.is_none() };
        if is_same { Ok(()) } else { Err(sqlx::Error::Io(io::Error::other(moved))) }
    }

    /// A connection is open, and a call begins.
    pub(crate) fn opened(&self) {
        let wal = fs::metadata(&self.wal).ok();
        let mut state = self.state();
        // Each look at a file costs a call some microseconds.
        if state.open == Open::Unknown {
            state.open = self.present().map_or(Open::Unknown, Open::File);
        }
        state.missing_since = None;
        state.wal = wal.as_ref().and_then(identity);
        state.last_commit = wal.and_then(|wal| wal.modified().ok());
    }

    /// True if a process has committed since the present call began.
    pub(crate) fn has_other_commit(&self) -> bool {
        let now = fs::metadata(&self.wal).and_then(|file| file.modified()).ok();
        self.state().last_commit != now
    }

    pub(crate) fn is_moved(error: &sqlx::Error) -> bool {
        let sqlx::Error::Io(error) = error else { return false };
        error.get_ref().is_some_and(|cause| cause.is::<Moved>())
    }

    /// Goes on with the present file. `false` if there is none yet, or if it is the open one. `end`
    /// ends the connections.
    ///
    /// A log that belongs to the former file and still has its name is removed: SQLite would apply it
    /// to the present one.
    pub(crate) fn follow(&self, end: impl FnOnce()) -> bool {
        let (present, wal) = (self.present(), fs::metadata(&self.wal).ok());
        let mut state = self.state();
        match (state.open, present) {
            (Open::Unknown, _) => return false,
            (Open::File(open), Some(present)) if open == present => return false,
            (_, None) => {
                let since = *state.missing_since.get_or_insert_with(Instant::now);
                if since.elapsed() < MISSING {
                    return false;
                }
            }
            _ => {}
        }
        end();
        let former = state.wal.take();
        if former.is_some() && wal.as_ref().and_then(identity) == former {
            // What is not removed is found when the file is opened.
            let _ = fs::remove_file(&self.wal);
            let _ = fs::remove_file(beside(&self.path, "-shm"));
        }
        state.open = present.map_or(Open::Unknown, Open::File);
        true
    }

    /// The present file could not be used.
    pub(crate) fn distrust(&self) {
        self.state().open = Open::Unusable;
    }

    fn present(&self) -> Option<Identity> {
        identity(&fs::metadata(&self.path).ok()?)
    }
}

/// The file whose name has this ending more.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}
