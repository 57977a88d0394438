//! `allora pause` and `allora resume`.

use crate::{
    failure::Outcome,
    session::{self, Session},
    store::StoreArgs,
};
use allora_core::stored::Gap;
use clap::Args;

/// Pauses a job's schedule on all nodes. Active runs continue, and triggers still run.
#[derive(Debug, Args)]
pub(crate) struct Pause {
    /// The job's name.
    name: String,
    /// The reason, shown by `allora show`.
    #[arg(long, short = 'm', default_value = "")]
    note: String,
    #[command(flatten)]
    place: StoreArgs,
}

impl Pause {
    pub(crate) fn run(self) -> Outcome {
        session::with(&self.place, async |session: Session| {
            Ok(session.schedules.pause(&self.name, &self.note).await.map(drop)?)
        })
    }
}

/// Resumes a paused job's schedule.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// The job's name.
    name: String,
    /// Records the occurrences of the pause as missed, whatever the job's catch-up policy, and
    /// continues with the next one.
    #[arg(long)]
    skip_missed: bool,
    #[command(flatten)]
    place: StoreArgs,
}

impl Resume {
    pub(crate) fn run(self) -> Outcome {
        let gap = if self.skip_missed { Gap::Missed } else { Gap::CatchUp };
        session::with(&self.place, async |session: Session| {
            Ok(session.schedules.resume(&self.name, gap).await.map(drop)?)
        })
    }
}
