//! `allora sync`: brings about what a file declares.

use super::file::{self, shown_as};
use crate::{
    daemon::kinds,
    failure::{Failure, Outcome},
    output::on_one_line,
    session::{self, Session},
    store::Place,
    values::duration,
};
use allora_core::{AnySchedule, Stored, stored::Declared};
use clap::Args;
use serde_json::Value;
use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

/// Adds, changes and removes stored schedules until they are as a file says; prints what it does.
///
/// What is as it should be is left alone, with its next time, its counters and its pause.
#[derive(Debug, Args)]
#[command(after_help = "\
FILE
  a JSON array of objects with name, kind and schedule, and as needed zone, delay, window, spread,
  timeout, start, end, max-runs, catch-up, overlap, retry, mutex, at-least-once,
  at-most-once, data:
    [{\"name\": \"backup\", \"kind\": \"command\", \"schedule\": \"0 4 * * *\", \"zone\": \"Europe/Paris\",
      \"data\": {\"command\": [\"backup\", \"--all\"]}}]

EXAMPLES
  allora sync schedules.json --complete acme/ --dry-run
  allora sync schedules.json --complete acme/")]
pub(crate) struct Sync {
    /// The file; - is standard input.
    file: PathBuf,
    /// The file has all schedules whose names begin so: others of them are paused, and deleted by
    /// the first sync after the grace. '' are all stored schedules [default: none is withdrawn].
    #[arg(long, value_name = "PREFIX")]
    complete: Option<String>,
    /// How long what is not declared any more can be declared again and goes on where it was.
    #[arg(long, default_value = "24h", requires = "complete", value_parser = duration)]
    grace: Duration,
    /// Prints what would be done, and does nothing.
    #[arg(long, short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    place: Place,
}

impl Sync {
    pub(crate) fn run(self) -> Outcome {
        let zone = self.place.settings()?.timezone;
        let text = file::text(&self.file)?;
        let wrong = |what: String| Failure::failed(format!("{}: {what}", shown_as(&self.file)));
        let stored = declared(&text, zone.as_deref()).map_err(|error| wrong(error.to_string()))?;
        for stored in &stored {
            kinds::check_stored(stored)
                .map_err(|what| wrong(format!("{:?}: {what}", stored.name())))?;
        }
        let mut declared = Declared::new(&stored).grace(self.grace);
        if let Some(prefix) = &self.complete {
            declared = declared.complete(prefix);
        }
        if self.dry_run {
            declared = declared.dry_run();
        }
        let differences = session::with(&self.place, async |session: Session| {
            Ok(session.schedules.sync(declared).await?)
        })?;
        let mut out = io::BufWriter::new(io::stdout().lock());
        for difference in &differences {
            writeln!(out, "{}", on_one_line(&difference.to_string()))?;
        }
        Ok(out.flush()?)
    }
}

/// What a file declares; what names no zone is in the one given, as with `allora add`.
fn declared(text: &str, zone: Option<&str>) -> serde_json::Result<Vec<Stored>> {
    let stored: Vec<Stored> = serde_json::from_str(text)?;
    let Some(zone) = zone else { return Ok(stored) };
    let objects: Vec<Value> = serde_json::from_str(text)?;
    let with_zone = |(stored, object): (Stored, Value)| {
        let names_none = object.get("zone").is_none()
            && object["schedule"].as_str().is_some_and(|schedule| {
                matches!(AnySchedule::for_job(stored.name(), schedule), Ok(AnySchedule::Cron(cron)) if !cron.names_zone())
            });
        if names_none { stored.zone(zone) } else { stored }
    };
    Ok(stored.into_iter().zip(objects).map(with_zone).collect())
}
