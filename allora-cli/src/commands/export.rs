//! `allora export`: stored schedules as lines of JSON, with their past.

use crate::{
    failure::{Failure, Outcome, chain},
    output::{Progress, complain},
    session::{self, Session},
    store::Place,
};
use allora_core::stored::{Exported, Filter};
use clap::Args;
use std::io::{self, Write};

/// Prints the stored schedules, one a line, as `allora import` reads them.
///
/// They have their next time, pause, counters and dead letters with them; triggers that wait are
/// left behind. Stop what runs them before, where they are to go on in another store.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES
  allora export --url sqlite:old.db > schedules.jsonl
  allora import schedules.jsonl --url postgres://cron@db.example/cron")]
pub(crate) struct Export {
    /// Only schedules whose names begin so.
    #[arg(long, default_value = "")]
    name: String,
    /// Only schedules of this type.
    #[arg(long = "type", visible_alias = "kind", value_name = "TYPE")]
    kind: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// How many are read at once.
const PAGE: usize = 500;

impl Export {
    pub(crate) fn run(self) -> Outcome {
        let mut filter = Filter::default().prefix(&self.name);
        filter.kind = self.kind.as_deref();
        let refused = session::with(&self.place, async |session: Session| {
            // Not locked: between the pages the terminal is the progress's.
            let mut out = io::BufWriter::new(io::stdout());
            let mut progress = Progress::new("schedules exported");
            let (mut refused, mut after) = (0_usize, None::<String>);
            loop {
                let states = session.schedules.list(filter, after.as_deref(), PAGE).await?;
                let mut written = 0;
                for state in states.iter().filter(|state| is_stored(state)) {
                    match Exported::of(state).map_err(|error| chain(&error)).and_then(|exported| {
                        serde_json::to_string(&exported).map_err(|error| error.to_string())
                    }) {
                        Ok(line) => {
                            writeln!(out, "{line}")?;
                            written += 1;
                        }
                        Err(what) => {
                            progress.clear();
                            complain("error", &what);
                            refused += 1;
                        }
                    }
                }
                progress.more(written);
                if states.len() < PAGE {
                    break;
                }
                after = states.into_iter().last().map(|state| state.name);
            }
            out.flush()?;
            Ok(refused)
        })?;
        match refused {
            0 => Ok(()),
            many => Err(Failure::failed(format!("{many} schedules could not be exported"))),
        }
    }
}

/// Whether it is no job in code, which nodes register by themselves. What cannot be read may be
/// either, and is said.
fn is_stored(state: &allora_core::backend::State) -> bool {
    !state.kind.is_empty() || state.parked.is_some()
}
