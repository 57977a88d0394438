//! The input of commands: a file, or standard input.

use crate::failure::{Failure, Outcome};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

/// The name of the input in messages.
pub(super) fn shown_as(path: &Path) -> String {
    if is_stdin(path) { "standard input".into() } else { path.display().to_string() }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Opens it; - is standard input.
///
/// # Errors
/// It cannot be opened.
pub(super) fn open(path: &Path) -> Outcome<Box<dyn BufRead>> {
    if is_stdin(path) {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    match File::open(path) {
        Ok(file) => Ok(Box::new(BufReader::new(file))),
        Err(error) => Err(unread(path, &error)),
    }
}

/// All of it.
///
/// # Errors
/// It cannot be read, or is no text.
pub(super) fn text(path: &Path) -> Outcome<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text).map_err(|error| unread(path, &error))?;
    Ok(text)
}

/// The failure to read it.
pub(super) fn unread(path: &Path, error: &io::Error) -> Failure {
    Failure::wrong(format!("{}: {error}", shown_as(path)))
}
