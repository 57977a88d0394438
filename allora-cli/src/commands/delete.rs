//! `allora delete`: deletes a schedule.

use crate::{
    failure::Outcome,
    session::{self, Session},
    store::StoreArgs,
};
use clap::Args;

/// Deletes a schedule and cancels its active runs.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The schedule's name.
    name: String,
    #[command(flatten)]
    place: StoreArgs,
}

impl Delete {
    pub(crate) fn run(self) -> Outcome {
        session::with(&self.place, async |session: Session| {
            Ok(session.schedules.delete(&self.name).await?)
        })
    }
}
