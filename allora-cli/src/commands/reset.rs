//! `allora reset`.

use super::changes::{Changes, made};
use crate::{
    failure::Outcome,
    session::{self, Session},
    store::StoreArgs,
};
use clap::Args;

/// Starts a job's schedule again from now.
///
/// Use it for a job that does not run because the store's clock was ahead for a while. Its active runs
/// are cancelled and recorded as lost.
#[derive(Debug, Args)]
pub(crate) struct Reset {
    /// The job's name.
    name: String,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: StoreArgs,
}

impl Reset {
    pub(crate) fn run(self) -> Outcome {
        session::with(&self.place, async |session: Session| {
            let name = session.full_name(&self.name).await?;
            session.schedules.reset(&name).await?;
            self.changes.print([made(&name, "reset")], "")
        })
    }
}
