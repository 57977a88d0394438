//! The line of a job in the crontabs that the command line names.

use crate::{
    crontab_files::{self, Defaults, Form, Line, find},
    failure::{Failure, Outcome},
};
use clap::Args;
use std::path::PathBuf;

/// The crontabs that have a job's line.
#[derive(Debug, Args)]
pub(super) struct Crontabs {
    /// The crontabs that have the job's line: its command is not in the store.
    pub(super) crontabs: Vec<PathBuf>,
    /// Crontabs have a user before the command, as /etc/crontab [default: by the file's folder].
    #[arg(long)]
    system: bool,
    /// Lines have six time fields, seconds first.
    #[arg(long)]
    seconds: bool,
}

impl Crontabs {
    /// The crontab line of a job. `name` may lack the file's prefix if only one line has that name.
    /// `None` if no crontab is given.
    ///
    /// # Errors
    /// A crontab that cannot be read; no line of the name, or several.
    pub(super) fn line(&self, name: &str) -> Outcome<Option<Line>> {
        if self.crontabs.is_empty() {
            return Ok(None);
        }
        let form = self.system.then_some(Form::System);
        let defaults = Defaults { seconds: self.seconds, ..Defaults::default() };
        let mut lines = Vec::new();
        for source in find(&self.crontabs, form)? {
            let text = source.text().map_err(|wrong| Failure::wrong(wrong.to_string()))?;
            lines.extend(crontab_files::read(&source, &text, &defaults).lines);
        }
        // The record of a line of every node has the machine's name, too.
        let of_machine = |line: &Line| {
            let rest = name.strip_prefix(&line.name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
        };
        if let Some(line) = lines.iter().find(|line| of_machine(line)) {
            return Ok(Some(line.clone()));
        }
        let is_own = |line: &&Line| line.name.split_once(':').is_some_and(|(_, own)| own == name);
        let own: Vec<&Line> = lines.iter().filter(is_own).collect();
        if let [line] = own[..] {
            return Ok(Some(line.clone()));
        }
        let some: Vec<&str> = lines.iter().take(5).map(|line| line.name.as_str()).collect();
        let known = match some.is_empty() {
            true => "they have no line".to_owned(),
            false => format!("they have {}", some.join(", ")),
        };
        Err(Failure::failed(format!("the crontabs have no line of the name {name:?}; {known}")))
    }
}
