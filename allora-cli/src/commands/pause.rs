//! `allora pause` and `allora resume`.

use super::{
    changes::{Changes, made},
    selection::{DryRun, Selection},
};
use crate::{
    failure::Outcome,
    session::{self, Session},
    store::StoreArgs,
};
use allora_core::stored::{Bulk, Gap};
use clap::Args;

/// Pauses a job's schedule on all nodes, or those of all jobs that options select.
///
/// Active runs continue, and triggers still run.
#[derive(Debug, Args)]
pub(crate) struct Pause {
    #[command(flatten)]
    jobs: Selection,
    #[command(flatten)]
    dry_run: DryRun,
    /// The reason, shown by `allora show`.
    #[arg(long, short = 'm', default_value = "")]
    note: String,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: StoreArgs,
}

impl Pause {
    pub(crate) fn run(self) -> Outcome {
        session::with(&self.place, async |session: Session| match self.jobs.name() {
            Some(name) => {
                let name = session.full_name(name).await?;
                session.schedules.pause(&name, &self.note).await?;
                self.changes.print([made(&name, "paused")], "")
            }
            None => {
                let pause = Bulk::Pause { note: &self.note, until: None };
                self.jobs.change(&session, pause, self.dry_run, self.changes).await
            }
        })
    }
}

/// Resumes a paused job's schedule, or those of all jobs that options select.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    #[command(flatten)]
    jobs: Selection,
    #[command(flatten)]
    dry_run: DryRun,
    /// Records the occurrences of the pause as missed, whatever the job's catch-up policy, and
    /// continues with the next one.
    #[arg(long)]
    skip_missed: bool,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: StoreArgs,
}

impl Resume {
    pub(crate) fn run(self) -> Outcome {
        let gap = if self.skip_missed { Gap::Missed } else { Gap::CatchUp };
        session::with(&self.place, async |session: Session| match self.jobs.name() {
            Some(name) => {
                let name = session.full_name(name).await?;
                session.schedules.resume(&name, gap).await?;
                self.changes.print([made(&name, "resumed")], "")
            }
            None => self.jobs.change(&session, Bulk::Resume(gap), self.dry_run, self.changes).await,
        })
    }
}
