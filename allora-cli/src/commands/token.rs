//! `allora token`: tokens and signing keys for the console and its API, the lines for their file, and keys of gateways.

use crate::{
    failure::{Failure, Outcome},
    session,
    values::{duration, instant, random},
};
use allora_console::{Scope, TokenLine, Tokens};
use allora_core::{Time, runtime::Tokio};
use clap::{Args, Subcommand};
use std::{
    io::{self, Write},
    time::Duration,
};

/// Makes tokens and signing keys for `--tokens`, and keys for `--workers-key`.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES
  allora token new ann --scope data,run >> tokens
  allora token new acme --scope edit --prefix acme/ --max-jobs 100 --shortest-period 5m >> tokens
  (umask 077; allora token new ci --scope run --signing >> tokens)
  (umask 077; allora token key > workers-key)")]
pub(crate) struct Token {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    New(New),
    /// Prints a random key for `allora run --workers-key`.
    Key,
}

/// Makes a token, or with --signing a key that signs requests.
///
/// The line for the file goes to standard output. The token itself goes to standard error, and is nowhere else: the
/// file has its hash. Of a signing key, the file has the secret, so only its owner may be able to read it (chmod 600).
#[derive(Debug, Args)]
struct New {
    /// The name of the person or program.
    name: String,
    /// The things that it allows: read, data (data and output), run (pause, trigger, cancel and the like), edit (add, change
    /// and delete), admin (all of these) or work. Separated by commas.
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "read", value_parser = scope)]
    scope: Vec<Scope>,
    /// Limits it to jobs whose names begin with this text. Repeat it for several.
    #[arg(long, value_name = "TEXT")]
    prefix: Vec<String>,
    /// Limits it to stored schedules of this kind. Repeat it for several.
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Lets it add jobs until so many have its prefixes. Default: no limit. Range: 0 to 10000.
    #[arg(long, value_name = "N", requires = "prefix")]
    max_jobs: Option<usize>,
    /// Lets none of its schedules run more often than once in this time, as 5m. Default: no limit.
    #[arg(long, value_name = "PERIOD", requires = "prefix", value_parser = duration)]
    shortest_period: Option<Duration>,
    /// The time at which it ends. Default: never.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<Time>,
    /// Makes a key for requests that are signed by RFC 9421 with hmac-sha256, in place of a token.
    #[arg(long)]
    signing: bool,
}

impl Token {
    pub(crate) fn run(self) -> Outcome {
        match self.command {
            Command::New(new) => new.run(),
            Command::Key => {
                let key = session::run(async { Ok(random(&Tokio::current()?)) })?;
                let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
                Ok(writeln!(io::stdout(), "{key}")?)
            }
        }
    }
}

impl New {
    fn run(self) -> Outcome {
        let line = TokenLine {
            name: self.name,
            scopes: self.scope.into_iter().collect(),
            prefixes: self.prefix.into_iter().collect(),
            kinds: self.kind.into_iter().collect(),
            max_jobs: self.max_jobs,
            shortest_period: self.shortest_period,
            until: self.until,
        };
        let create = if self.signing { Tokens::create_signing } else { Tokens::create };
        let new = create(&line, session::run(async { Ok(random(&Tokio::current()?)) })?)
            .map_err(Failure::wrong)?;
        io::stdout().write_all(new.line.as_bytes())?;
        writeln!(io::stderr(), "{}", new.token)?;
        Ok(())
    }
}

fn scope(word: &str) -> Result<Scope, String> {
    let all = || Scope::ALL.map(Scope::word).join(", ");
    Scope::from_word(word).ok_or_else(|| format!("there is no such scope; use {}", all()))
}
