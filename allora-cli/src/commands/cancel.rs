//! `allora cancel`: cancels the active runs of a job, and those that wait.

use super::changes::{Changes, made};
use crate::{
    failure::Outcome,
    session::{self, Session},
    store::StoreArgs,
};
use clap::Args;

/// Cancels the runs of a job on all nodes, and what waits to run.
///
/// The commands are asked to end (SIGTERM), and killed if they do not. Waiting
/// triggers and attempts that wait for a retry are cancelled as well. Each is recorded as cancelled
/// and not tried again; the schedule continues.
///
/// A node learns it at once from a store with notifications (PostgreSQL, Redis, etcd), and
/// otherwise after a third of the lease at most. If no run is active or waits, there is nothing to
/// cancel: the command says so and ends with 0, because what was asked for is so already.
#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// The job's name.
    name: String,
    /// Cancels only the triggers with this id, as `allora trigger` prints it. `backfill`: what is left
    /// of a backfill.
    #[arg(long, value_name = "ID")]
    trigger: Option<String>,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: StoreArgs,
}

impl Cancel {
    pub(crate) fn run(self) -> Outcome {
        let (name, runs) = session::with(&self.place, async |session: Session| {
            let name = session.full_name(&self.name).await?;
            let runs = match &self.trigger {
                Some(id) => session.schedules.cancel_trigger(&name, id).await?,
                None => session.schedules.cancel(&name).await?,
            };
            Ok((name, runs))
        })?;
        let text = match runs {
            0 => format!("no run of {name:?} is active, and none waits"),
            1 => format!("1 run of {name:?} is being cancelled"),
            runs => format!("{runs} runs of {name:?} are being cancelled"),
        };
        let mut object = made(&name, "cancelled");
        object["runs"] = runs.into();
        self.changes.print([object], format_args!("{text}\n"))
    }
}
