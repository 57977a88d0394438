//! `allora gc`: removes orphaned records.

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
use std::{
    io::{self, Write},
    time::Duration,
};

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
            Ok((removed, young.len()))
        })?;
        let mut out = io::stdout().lock();
        for name in &removed {
            writeln!(out, "{}", on_one_line(name))?;
        }
        let verb = if self.dry_run { "orphaned" } else { "removed" };
        let young = match young {
            0 => String::new(),
            _ => {
                format!("; kept {} used within the last {older_than:?}", counted(young, "orphan"))
            }
        };
        writeln!(out, "{} {verb}{young}.", counted(removed.len(), "record"))?;
        Ok(out.flush()?)
    }
}

fn is_unused(state: &JobState, time: Duration, now: Time) -> bool {
    written_at(state)
        .is_some_and(|written| saturating_add(written, time) <= now && since(now, written) >= time)
}
