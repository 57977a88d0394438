//! `allora delete`: removes a schedule.

use crate::{
    failure::Outcome,
    session::{self, Session},
    store::Place,
};
use clap::Args;

/// Removes a schedule; what runs of it is cancelled.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The schedule's name.
    key: String,
    #[command(flatten)]
    place: Place,
}

impl Delete {
    pub(crate) fn run(self) -> Outcome {
        session::with(&self.place, async |session: Session| {
            Ok(session.schedules.delete(&self.key).await?)
        })
    }
}
