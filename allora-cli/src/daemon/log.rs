//! The daemon's log: standard error, or a file that can be moved away and reopened.

use crate::failure::{Failure, Outcome};
use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

/// Where log lines go. A clone is the same log.
#[derive(Clone, Debug)]
pub(crate) enum Log {
    Stderr,
    File { path: PathBuf, file: Arc<Mutex<File>> },
}

impl Log {
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn open(path: Option<PathBuf>) -> Outcome<Self> {
        let Some(path) = path else { return Ok(Self::Stderr) };
        let file = append(&path).map_err(|error| {
            Failure::failed(format!("cannot open the log {}: {error}", path.display()))
        })?;
        Ok(Self::File { path, file: Arc::new(Mutex::new(file)) })
    }

    /// Begins to log; `None` logs nothing.
    pub(crate) fn begin(&self, level: Option<Level>) {
        let Some(level) = level else { return };
        let colours = matches!(self, Self::Stderr) && io::stderr().is_terminal();
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(colours)
            .with_target(false)
            .with_writer(self.clone())
            .init();
    }

    /// Opens the file by its name again: it was moved away, and there is to be a new one.
    ///
    /// # Errors
    /// It cannot be opened; the old one stays in use.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        if let Self::File { path, file } = self {
            let new = append(path)?;
            *file.lock().unwrap_or_else(PoisonError::into_inner) = new;
        }
        Ok(())
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
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stderr => io::stderr().write(line),
            Self::File { file, .. } => {
                file.lock().unwrap_or_else(PoisonError::into_inner).write(line)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
