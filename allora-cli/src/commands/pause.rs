//! `allora pause` and `allora resume`.

use super::{
    changes::{Changes, made},
    selection::{DryRun, SELECTORS, Selection},
};
use crate::{
    failure::{Failure, Outcome},
    session::{self, Session},
    store::StoreArgs,
    values::{instant, shown},
};
use allora_core::{
    Time,
    stored::{Bulk, Gap},
};
use clap::Args;

/// Pauses a job's schedule on all nodes, or those of all jobs that options select.
///
/// Active runs continue, and triggers still run. With --until the pause ends by itself, and each job's
/// catch-up policy decides what becomes of the times that passed: `allora pause --all --until TIME` is a
/// maintenance window for all jobs that the store has now. Of many jobs, those stay as they are that
/// are paused already for as long or longer.
#[derive(Debug, Args)]
pub(crate) struct Pause {
    #[command(flatten)]
    jobs: Selection,
    #[command(flatten)]
    all: All,
    #[command(flatten)]
    dry_run: DryRun,
    /// The end of the pause, by the store's clock: RFC 3339, or seconds since 1970 [default: when the
    /// job is resumed].
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<Time>,
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
                let (schedules, note) = (&session.schedules, self.note.as_str());
                match self.until {
                    None => schedules.pause(&name, note).await?,
                    Some(until) => {
                        let paused = schedules.pause_until(&name, until, note).await;
                        paused.map_err(Failure::of_input)?
                    }
                };
                self.changes.print([made(&name, "paused")], "")
            }
            None => {
                if let Some(until) = self.until {
                    check(until, session.schedules.store_now().await?)?;
                }
                let pause = Bulk::Pause { note: &self.note, until: self.until };
                self.jobs.change(&session, pause, self.dry_run, self.changes).await
            }
        })
    }
}

/// Refuses an end of many pauses that has come already: once, instead of for each job.
fn check(until: Time, now: Time) -> Outcome {
    if until > now {
        return Ok(());
    }
    Err(Failure::wrong(format!(
        "no job can be paused until {}: the store's time is {}; give a later time",
        shown(until),
        shown(now)
    )))
}

/// All jobs of the store.
#[derive(Debug, Args)]
struct All {
    /// All jobs of the store.
    #[arg(long, group = "selection", conflicts_with_all = SELECTORS)]
    all: bool,
}

/// Resumes a paused job's schedule, or those of all jobs that options select.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    #[command(flatten)]
    jobs: Selection,
    #[command(flatten)]
    all: All,
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
