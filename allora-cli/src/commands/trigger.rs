//! `allora trigger`, `allora backfill`, and what is done with dead letters.

use crate::{
    failure::Outcome,
    session::{self, Session},
    store::Place,
    values::{instant, shown},
};
use allora_core::{Time, backend::Occurrence};
use clap::Args;
use std::io::{self, Write};

/// Runs a job once beside its schedule, now, on whatever node has room first.
#[derive(Debug, Args)]
pub(crate) struct Trigger {
    /// The job's name.
    key: String,
    /// The trigger's own id: the same one again while it waits or runs changes nothing [default:
    /// the time].
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    place: Place,
}

impl Trigger {
    pub(crate) fn run(self) -> Outcome {
        session::with(&self.place, async |session: Session| {
            let id = match self.id {
                Some(id) => id,
                None => format!(
                    "{}-{}",
                    shown(session.schedules.store_now().await?),
                    std::process::id()
                ),
            };
            Ok(session.schedules.trigger(&self.key, &id).await.map(drop)?)
        })
    }
}

/// Runs a stored schedule once for each of its instants in a range of the past; prints them.
#[derive(Debug, Args)]
pub(crate) struct Backfill {
    /// The schedule's name.
    key: String,
    /// After this (exclusive): RFC 3339, or seconds since 1970.
    #[arg(long, value_parser = instant)]
    from: Time,
    /// Up to this (inclusive), in the past.
    #[arg(long, value_parser = instant)]
    until: Time,
    #[command(flatten)]
    place: Place,
}

impl Backfill {
    pub(crate) fn run(self) -> Outcome {
        let filled = session::with(&self.place, async |session: Session| {
            Ok(session.schedules.backfill(&self.key, self.from, self.until).await?)
        })?;
        let mut out = io::stdout().lock();
        for occurrence in filled {
            writeln!(out, "{}", shown(occurrence.at))?;
        }
        Ok(out.flush()?)
    }
}

/// Runs an occurrence again that failed for good; `allora show` lists them as dead letters.
#[derive(Debug, Args)]
pub(crate) struct Rerun {
    /// The schedule's name.
    key: String,
    /// The dead letter's instant.
    #[arg(value_parser = instant)]
    at: Time,
    /// The dead letter's trigger, if it had one.
    #[arg(long)]
    trigger: Option<String>,
    /// Forgets it instead.
    #[arg(long)]
    dismiss: bool,
    #[command(flatten)]
    place: Place,
}

impl Rerun {
    pub(crate) fn run(self) -> Outcome {
        let run = Occurrence { at: self.at, trigger: self.trigger };
        session::with(&self.place, async |session: Session| {
            let schedules = &session.schedules;
            let done = match self.dismiss {
                true => schedules.dismiss(&self.key, &run).await,
                false => schedules.rerun(&self.key, &run).await,
            };
            Ok(done.map(drop)?)
        })
    }
}
