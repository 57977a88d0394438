//! `allora export`: stored schedules as lines of JSON, with their progress.

use super::calendar;
use crate::{
    failure::{Failure, Outcome, chain},
    output::{Progress, complain, counted},
    session::{self, Session},
    store::StoreArgs,
};
use allora_core::stored::{ExportLine, Filter, ScheduleExport};
use clap::Args;
use std::io::{self, Write};

/// Prints calendars and stored schedules, one a line, as `allora import` reads them.
///
/// Each line has the next time, the pause, the counters and the dead letters of its schedule, but
/// no pending triggers. To move schedules to another store, stop the nodes that run them first.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES
  allora export --url sqlite:old.db > schedules.jsonl
  allora import schedules.jsonl --url postgres://cron@db.example/cron")]
pub(crate) struct Export {
    /// Only schedules whose names begin so.
    #[arg(long, default_value = "")]
    name: String,
    /// Only schedules of this kind.
    #[arg(long, visible_alias = "type")]
    kind: Option<String>,
    #[command(flatten)]
    place: StoreArgs,
}

/// The number of records that are read at once.
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
            // Before the schedules, which need them.
            for (name, calendar) in calendar::all(&session).await? {
                match calendar {
                    Ok(calendar) => writeln!(out, "{}", ExportLine::Calendar { name, calendar })?,
                    Err(error) => {
                        complain("error", &chain(&error));
                        refused += 1;
                    }
                }
            }
            loop {
                let states = session.schedules.list(filter, after.as_deref(), PAGE).await?;
                let mut written = 0;
                for state in states.iter().filter(|state| is_stored(state)) {
                    match ScheduleExport::of(state) {
                        Ok(exported) => {
                            writeln!(out, "{}", ExportLine::Schedule(Box::new(exported)))?;
                            written += 1;
                        }
                        Err(error) => {
                            progress.clear();
                            complain("error", &chain(&error));
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
            many => {
                let records = counted(many, "record");
                Err(Failure::failed(format!(
                    "{records} could not be exported; the lines above say why"
                )))
            }
        }
    }
}

/// True unless it is a job in code, which nodes register by themselves. An unreadable record may
/// be either: it counts as stored, so that it is reported.
fn is_stored(state: &allora_core::backend::JobState) -> bool {
    !state.kind.is_empty() || state.unreadable.is_some()
}
