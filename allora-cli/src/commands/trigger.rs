//! `allora trigger`, `allora backfill` and `allora rerun`.

use crate::{
    failure::Outcome,
    session::{self, Session},
    store::StoreArgs,
    values::{instant, shown},
};
use allora_core::{Time, backend::Occurrence};
use clap::Args;
use std::io::{self, Write};

/// Runs a job once beside its schedule, now, on the first node with room.
#[derive(Debug, Args)]
pub(crate) struct Trigger {
    /// The job's name.
    name: String,
    /// The trigger's own id: the same one again while it waits or runs changes nothing [default:
    /// the time].
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    place: StoreArgs,
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
            Ok(session.schedules.trigger(&self.name, &id).await.map(drop)?)
        })
    }
}

/// Runs a stored schedule once for each of its instants in a range of the past; prints them.
#[derive(Debug, Args)]
pub(crate) struct Backfill {
    /// The schedule's name.
    name: String,
    /// After this (exclusive): RFC 3339, or seconds since 1970.
    #[arg(long, value_parser = instant)]
    from: Time,
    /// Up to this (inclusive), in the past.
    #[arg(long, value_parser = instant)]
    until: Time,
    #[command(flatten)]
    place: StoreArgs,
}

impl Backfill {
    pub(crate) fn run(self) -> Outcome {
        let filled = session::with(&self.place, async |session: Session| {
            Ok(session.schedules.backfill(&self.name, self.from, self.until).await?)
        })?;
        let mut out = io::stdout().lock();
        for occurrence in filled {
            writeln!(out, "{}", shown(occurrence.scheduled_at))?;
        }
        Ok(out.flush()?)
    }
}

/// Runs a dead letter again; `allora show` lists them.
#[derive(Debug, Args)]
pub(crate) struct Rerun {
    /// The schedule's name.
    name: String,
    /// The dead letter's scheduled time.
    #[arg(value_parser = instant)]
    scheduled_at: Time,
    /// The dead letter's trigger, if it had one.
    #[arg(long)]
    trigger: Option<String>,
    /// Removes it instead.
    #[arg(long)]
    dismiss: bool,
    #[command(flatten)]
    place: StoreArgs,
}

impl Rerun {
    pub(crate) fn run(self) -> Outcome {
        let Self { scheduled_at, trigger, .. } = self;
        let occurrence = Occurrence { scheduled_at, trigger };
        session::with(&self.place, async |session: Session| {
            let schedules = &session.schedules;
            let done = match self.dismiss {
                true => schedules.dismiss(&self.name, &occurrence).await,
                false => schedules.rerun(&self.name, &occurrence).await,
            };
            Ok(done.map(drop)?)
        })
    }
}
