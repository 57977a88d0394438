//! `allora mark`: records that the work of an occurrence is done.

use super::changes::{Changes, made};
use crate::{
    failure::Outcome,
    session::{self, Session},
    store::StoreArgs,
    values::{instant, shown},
};
use allora_core::{Occurrence, Time};
use clap::Args;

/// Records that the work of an occurrence is done although no run of it has succeeded.
///
/// For a dead letter, which goes, and for an occurrence that has failed, was lost or was missed. The
/// history gets an entry of its own with your name and the note; no run is counted.
#[derive(Debug, Args)]
pub(crate) struct Mark {
    /// The job's name.
    name: String,
    /// The scheduled time of the occurrence.
    #[arg(value_parser = instant)]
    scheduled_at: Time,
    /// Its trigger, if it had one.
    #[arg(long)]
    trigger: Option<String>,
    /// The reason, which the entry keeps.
    #[arg(long, default_value = "")]
    note: String,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: StoreArgs,
}

impl Mark {
    pub(crate) fn run(self) -> Outcome {
        let Self { name, scheduled_at, trigger, note, .. } = &self;
        let name = session::with(&self.place, async |session: Session| {
            let name = session.full_name(name).await?;
            let occurrence = Occurrence { scheduled_at: *scheduled_at, trigger: trigger.clone() };
            let schedules = session.schedules.by(session::author().note(note));
            schedules.mark_succeeded(&name, &occurrence).await?;
            Ok(name)
        })?;
        let at = shown(*scheduled_at);
        let mut object = made(&name, "marked");
        object["scheduled_at"] = at.as_str().into();
        self.changes.print([object], format_args!("recorded as succeeded: {at} of {name}\n"))
    }
}
