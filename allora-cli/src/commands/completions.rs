//! `allora completions`: for shells.

use crate::failure::Outcome;
use clap::{Args, Command};
use clap_complete::Shell;
use std::io;

/// Prints completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES\n  allora completions bash > /etc/bash_completion.d/allora")]
pub(crate) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut command: Command) -> Outcome {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "allora", &mut text);
        Ok(io::Write::write_all(&mut io::stdout(), &text)?)
    }
}
