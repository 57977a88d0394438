//! The changes that a command has made: a text for people, or with `--json` an object for each job.

use crate::failure::Outcome;
use clap::Args;
use serde_json::{Value, json};
use std::{
    fmt::Display,
    io::{self, Write},
};

/// The form in which the changes of a command are printed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Changes {
    /// Prints JSON, one object for each job.
    #[arg(long)]
    json: bool,
}

impl Changes {
    /// Prints the objects of the changes, or else the text.
    pub(crate) fn print(
        self,
        objects: impl IntoIterator<Item = Value>,
        text: impl Display,
    ) -> Outcome {
        let mut out = io::BufWriter::new(io::stdout().lock());
        match self.json {
            true => objects.into_iter().try_for_each(|object| writeln!(out, "{object}"))?,
            false => write!(out, "{text}")?,
        }
        Ok(out.flush()?)
    }
}

/// A change that was made to a job, as programs read it: by a word such as `paused`.
pub(crate) fn made(name: &str, change: &str) -> Value {
    json!({ "name": name, "change": change, "is_dry_run": false, "error": null })
}

/// A change that was made, or with `--dry-run` would be made.
pub(crate) fn tried(name: &str, change: &str, is_dry_run: bool) -> Value {
    let mut object = made(name, change);
    object["is_dry_run"] = is_dry_run.into();
    object
}
