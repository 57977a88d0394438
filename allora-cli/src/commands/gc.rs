//! `allora gc`: removes orphaned records.

use super::changes::{Changes, made, tried};
use crate::{
    clock,
    declared::{Declared, written_at},
    failure::{Failure, Outcome},
    output::{counted, on_one_line},
    session::{self, Session},
    store::StoreArgs,
    values::duration,
};
use allora_core::{
    Time,
    backend::JobState,
    stored::Filter,
    time::{saturating_add, since},
};
use clap::Args;
use std::time::Duration;

/// Removes the records of jobs that no live node has any more, and prints their names.
///
/// These are crontab lines and jobs in code. Their history stays.
///
/// A daemon writes its lines into its record every --heartbeat (15 s): after a line came back into a
/// crontab, wait so long. Records that were used during the last minute stay.
#[derive(Debug, Args)]
pub(crate) struct Gc {
    /// Only records that were not used for this time; at least 1m.
    #[arg(long, default_value = "1m", value_parser = duration)]
    older_than: Duration,
    /// Prints the names, and removes nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: StoreArgs,
}

/// The shortest time for which a record was not used.
const YOUNG: Duration = Duration::from_secs(60);

impl Gc {
    pub(crate) fn run(self) -> Outcome {
        let older_than = self.older_than.max(YOUNG);
        let (removed, young) = session::with(&self.place, async |session: Session| {
            let declared = Declared::read(&session).await?;
            if !declared.is_known() {
                return Err(Failure::failed(
                    "no daemon is live on this store, so it is not known which records are \
                     orphaned; start the daemons first, or remove one record with `allora delete \
                     NAME`",
                ));
            }
            let now = session.schedules.store_now().await.unwrap_or_else(|_| clock::now());
            let states =
                session.schedules.list(Filter::default().kind(""), None, usize::MAX).await?;
            let orphans = states.iter().filter(|state| declared.is_orphaned(state));
            let is_old = |state: &&JobState| is_unused(state, older_than, now);
            let (old, young): (Vec<_>, Vec<_>) = orphans.partition(is_old);
            let mut removed = Vec::new();
            for state in old {
                if !self.dry_run {
                    session.schedules.delete(&state.name).await?;
                }
                removed.push(state.name.clone());
            }
            let young: Vec<String> = young.into_iter().map(|state| state.name.clone()).collect();
            Ok((removed, young))
        })?;
        let names: String = removed.iter().map(|name| on_one_line(name) + "\n").collect();
        let verb = if self.dry_run { "orphaned" } else { "removed" };
        let kept = match young.len() {
            0 => String::new(),
            young => {
                format!("; kept {} used within the last {older_than:?}", counted(young, "orphan"))
            }
        };
        let objects = removed.iter().map(|name| tried(name, "deleted", self.dry_run));
        let objects = objects.chain(young.iter().map(|name| made(name, "kept")));
        let records = counted(removed.len(), "record");
        self.changes.print(objects, format_args!("{names}{records} {verb}{kept}.\n"))
    }
}

fn is_unused(state: &JobState, time: Duration, now: Time) -> bool {
    written_at(state)
        .is_some_and(|written| saturating_add(written, time) <= now && since(now, written) >= time)
}
