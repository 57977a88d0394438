//! `allora pause` and `allora resume`.

use crate::{
    failure::Outcome,
    session::{self, Session},
    store::Place,
};
use allora_core::stored::Gap;
use clap::Args;

/// Stops a job's schedule on all nodes; what runs goes on, and triggers still run.
#[derive(Debug, Args)]
pub(crate) struct Pause {
    /// The job's name.
    key: String,
    /// Why, for those who find it paused.
    #[arg(long, short = 'm', default_value = "")]
    note: String,
    #[command(flatten)]
    place: Place,
}

impl Pause {
    pub(crate) fn run(self) -> Outcome {
        session::with(&self.place, async |session: Session| {
            Ok(session.schedules.pause(&self.key, &self.note).await.map(drop)?)
        })
    }
}

/// Starts a paused job's schedule again.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// The job's name.
    key: String,
    /// Goes on from now and records what passed meanwhile as missed, whatever the job's catch-up
    /// policy.
    #[arg(long)]
    skip_missed: bool,
    #[command(flatten)]
    place: Place,
}

impl Resume {
    pub(crate) fn run(self) -> Outcome {
        let gap = if self.skip_missed { Gap::Missed } else { Gap::CatchUp };
        session::with(&self.place, async |session: Session| {
            Ok(session.schedules.resume(&self.key, gap).await.map(drop)?)
        })
    }
}
