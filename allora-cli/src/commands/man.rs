//! `allora man`: the pages for `man`.

use crate::failure::{Failure, Outcome};
use clap::{Args, Command};
use std::{fs, io, path::PathBuf};

/// Prints the man page of `allora`, or writes the pages of all commands into a folder.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES\n  allora man | man -l -\n  allora man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// The folder, which is made if it is not there.
    folder: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self, command: Command) -> Outcome {
        let Some(folder) = self.folder else {
            let mut command = command.disable_help_subcommand(true);
            command.build();
            return Ok(clap_mangen::Man::new(command).render(&mut io::stdout())?);
        };
        let written =
            fs::create_dir_all(&folder).and_then(|()| clap_mangen::generate_to(command, &folder));
        written.map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))
    }
}
