//! `allora delete`: deletes schedules.

use super::{
    changes::{Changes, made},
    selection::{DryRun, Selection},
};
use crate::{
    declared::Declared,
    failure::{Failure, Outcome},
    output::{counted, on_one_line},
    session::{self, Session},
    store::StoreArgs,
};
use allora_core::stored::Bulk;
use clap::Args;
use std::io::{self, IsTerminal, Write};

/// Deletes a schedule, or all that options select, and cancels their active runs.
///
/// Does not delete a crontab's line or a job in code that a live node has: remove the line, or pause
/// the job.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    jobs: Selection,
    #[command(flatten)]
    dry_run: DryRun,
    /// Deletes a line that live nodes have, too. They do not run it until they are started again.
    #[arg(long)]
    force: bool,
    /// Deletes all that the options select without asking.
    #[arg(long, short = 'y', conflicts_with_all = ["name", "dry_run"])]
    yes: bool,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: StoreArgs,
}

impl Delete {
    pub(crate) fn run(self) -> Outcome {
        session::with(&self.place, async |session: Session| match self.jobs.name() {
            Some(name) => {
                let name = session.full_name(name).await?;
                if !self.force {
                    check(&session, &name).await?;
                }
                session.schedules.delete(&name).await?;
                self.changes.print([made(&name, "deleted")], "")
            }
            None => {
                if !self.yes && !self.dry_run.is_asked_for() {
                    confirm(&self.jobs.preview(&session, Bulk::Delete).await?)?;
                }
                self.jobs.change(&session, Bulk::Delete, self.dry_run, self.changes).await
            }
        })
    }
}

/// Asks before many are deleted.
///
/// # Errors
/// The answer is no, or nobody can be asked.
fn confirm(names: &[String]) -> Outcome {
    let Some(first) = names.first() else { return Ok(()) };
    let jobs = counted(names.len(), "job");
    if !io::stdin().is_terminal() {
        return Err(Failure::failed(format!(
            "this would delete {jobs}, such as {first:?}, and nothing is deleted; look with --dry-run, \
             then add --yes"
        )));
    }
    write!(io::stderr(), "Delete {jobs}, such as {}? [y/N] ", on_one_line(first))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::failed("nothing is deleted")),
    }
}

/// Rejects what live nodes would not run any more although their crontabs have it.
async fn check(session: &Session, name: &str) -> Outcome {
    let state = session.schedules.get(name).await?;
    if !state.kind.is_empty() {
        return Ok(());
    }
    let declared = Declared::read(session).await?;
    let nodes = declared.nodes(name);
    let Some(node) = nodes.first() else { return Ok(()) };
    let others = match nodes.len() {
        1 => String::new(),
        2 => " and another node".into(),
        many => format!(" and {} other nodes", many - 1),
    };
    Err(Failure::failed(format!(
        "{name:?} is a line or job of the live node {node}{others}, which would not run it any \
         more until the next start; remove the line from the crontabs and then the record with \
         `allora gc`, or stop it for a time with `allora pause {name}`"
    )))
}
