//! The daemon's log: standard error, or a file that can be moved away and reopened.
//!
//! Lines are written by a thread of its own, from a bounded buffer, so that a reader that hangs
//! stops nothing else. Lines that find the buffer full are dropped and counted.

use super::log_format::{Lines, LogFormat};
use crate::failure::{Failure, Outcome};
use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};
use tracing::{Level, error, info, warn};
use tracing_subscriber::fmt::MakeWriter;

/// The largest number of bytes that wait for the writer.
const BUFFER: usize = 1 << 20;

/// The time that a daemon waits at its end for a reader of its log.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Where log lines go. A clone is the same log.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: Option<PathBuf>,
    state: Mutex<State>,
    /// Notified when there is something to write, and when all of it is written.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whole lines.
    buffer: Vec<u8>,
    /// The number of lines that found the buffer full.
    dropped: u64,
    /// The file is to be opened again.
    reopen: bool,
    /// The writer writes what it has taken from the buffer.
    is_writing: bool,
}

impl Log {
    /// # Errors
    /// The file cannot be opened, or no thread can be started.
    pub(crate) fn open(path: Option<PathBuf>) -> Outcome<Self> {
        let target: Box<dyn Write + Send> = match &path {
            None => Box::new(io::stderr()),
            Some(path) => Box::new(append(path).map_err(|error| {
                Failure::failed(format!("cannot open the log {}: {error}", path.display()))
            })?),
        };
        let shared = Shared { path, state: Mutex::default(), changed: Condvar::new() };
        let log = Self { shared: Arc::new(shared) };
        let writer = log.clone();
        thread::Builder::new()
            .name("log".into())
            .spawn(move || writer.write_to(target))
            .map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
        Ok(log)
    }

    /// Sets this log for the process; `None` logs nothing.
    pub(crate) fn begin(&self, level: Option<Level>, format: LogFormat) {
        let Some(level) = level else { return };
        let has_colours = self.shared.path.is_none() && io::stderr().is_terminal();
        tracing_subscriber::fmt()
            .with_max_level(level)
            .event_format(Lines { format, has_colours })
            .with_writer(self.clone())
            .init();
    }

    /// Opens the file by its name again: it was moved away, and there is to be a new one. The
    /// result is logged.
    pub(crate) fn reopen(&self) {
        if self.shared.path.is_some() {
            self.state().reopen = true;
            self.shared.changed.notify_all();
        }
    }

    /// Waits until everything is written, but not long: the reader may hang. A failure is said
    /// within that time, too.
    pub(crate) fn end(&self, ended: Outcome) -> Outcome {
        let is_pending = |state: &mut State| state.is_writing || !state.buffer.is_empty();
        let pending = self.shared.changed.wait_timeout_while(self.state(), LAST_WAIT, is_pending);
        drop(pending);
        ended.map_err(|failure| failure.say_within(LAST_WAIT))
    }

    /// Writes lines as they come.
    fn write_to(&self, mut target: Box<dyn Write + Send>) {
        loop {
            let (lines, reopen) = {
                let is_idle = |state: &mut State| state.buffer.is_empty() && !state.reopen;
                let state = self.shared.changed.wait_while(self.state(), is_idle);
                let mut state = state.unwrap_or_else(PoisonError::into_inner);
                state.is_writing = true;
                (std::mem::take(&mut state.buffer), std::mem::take(&mut state.reopen))
            };
            // A log that cannot be written cannot be complained about.
            let _ = target.write_all(&lines);
            if let Some(path) = self.shared.path.as_ref().filter(|_| reopen) {
                match append(path) {
                    Ok(file) => {
                        target = Box::new(file);
                        info!(target: "allora", "log file reopened");
                    }
                    Err(error) => {
                        error!(target: "allora", %error, "the log file cannot be reopened; the old file stays in use");
                    }
                }
            }
            let dropped = {
                let mut state = self.state();
                state.is_writing = false;
                std::mem::take(&mut state.dropped)
            };
            if dropped > 0 {
                warn!(target: "allora", dropped, "log lines dropped: the log could not be written for a time");
            }
            self.shared.changed.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Write for Log {
    /// Accepts a whole line, or drops it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        {
            let mut state = self.state();
            if state.buffer.len() + line.len() > BUFFER {
                state.dropped += 1;
            } else {
                state.buffer.extend_from_slice(line);
            }
        }
        self.shared.changed.notify_all();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
