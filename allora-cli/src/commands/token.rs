//! `allora token`: a token for the console, and the line for its file.

use crate::{
    failure::{Failure, Outcome},
    session,
    values::instant,
};
use allora_console::{Scope, TokenLine, Tokens};
use allora_core::{
    Time,
    runtime::{Runtime, Tokio},
};
use clap::Args;
use std::io::{self, Write};

/// Makes an access token for `allora console --tokens`.
///
/// The line for the file goes to standard output. The token itself goes to standard error, and is nowhere else: the
/// file has its hash.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES
  allora token ann --scope data,run >> tokens
  allora token acme --prefix acme/ --until 2027-01-01T00:00:00Z >> tokens")]
pub(crate) struct Token {
    /// The name of the person or program.
    name: String,
    /// The things that it allows: read, data (data and output), run (pause, trigger, cancel and the like), edit (delete), admin
    /// (all of these) or work. Separated by commas.
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "read", value_parser = scope)]
    scope: Vec<Scope>,
    /// Limits it to jobs whose names begin with this text. Repeat it for several.
    #[arg(long, value_name = "TEXT")]
    prefix: Vec<String>,
    /// Limits it to stored schedules of this kind. Repeat it for several.
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// The time at which it ends. Default: never.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<Time>,
}

impl Token {
    pub(crate) fn run(self) -> Outcome {
        let line = TokenLine {
            name: self.name,
            scopes: self.scope.into_iter().collect(),
            prefixes: self.prefix.into_iter().collect(),
            kinds: self.kind.into_iter().collect(),
            until: self.until,
        };
        let new =
            Tokens::create(&line, session::run(async { random() })?).map_err(Failure::wrong)?;
        io::stdout().write_all(new.line.as_bytes())?;
        writeln!(io::stderr(), "{}", new.token)?;
        Ok(())
    }
}

/// 32 bytes of the operating system's random numbers.
fn random() -> Outcome<[u8; 32]> {
    let runtime = Tokio::current()?;
    let mut bytes = [0; 32];
    bytes.chunks_mut(8).for_each(|part| part.copy_from_slice(&runtime.random().to_be_bytes()));
    Ok(bytes)
}

fn scope(word: &str) -> Result<Scope, String> {
    let all = || Scope::ALL.map(Scope::word).join(", ");
    Scope::from_word(word).ok_or_else(|| format!("there is no such scope; use {}", all()))
}
