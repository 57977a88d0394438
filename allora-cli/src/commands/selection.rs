//! The schedules of a command: one by its name, or all that options select.

use super::{
    changes::{Changes, made, tried},
    filter::FilterOptions,
};
use crate::{
    failure::{Failure, Outcome},
    output::{complain, counted, on_one_line},
    session::Session,
};
use allora_core::stored::{Bulk, BulkReport, Filter};
use clap::Args;
use serde_json::Value;

/// Selects schedules.
#[derive(Debug, Args)]
#[group(id = "selection", required = true, multiple = true, args = SELECTORS)]
pub(crate) struct Selection {
    /// The name of one job.
    #[arg(conflicts_with_all = FILTERS)]
    name: Option<String>,
    #[command(flatten)]
    options: FilterOptions,
}

/// The name and the options of [`FilterOptions`], of which one is enough.
pub(super) const SELECTORS: [&str; 6] = ["name", "beginning", "kind", "tag", "owner", "state"];

/// The options alone.
const FILTERS: [&str; 5] = ["beginning", "kind", "tag", "owner", "state"];

/// Prints the names that would be changed, and changes nothing.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DryRun {
    /// Prints the names of the jobs that would be changed, and changes nothing.
    #[arg(long, conflicts_with = "name")]
    dry_run: bool,
}

impl DryRun {
    pub(crate) fn is_asked_for(self) -> bool {
        self.dry_run
    }
}

impl Selection {
    /// The one job, if it is selected by its name.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn filter(&self) -> Outcome<Filter<'_>> {
        // Without a condition, all jobs would be selected.
        if self.options.is_for_orphans() {
            let what = "the records of removed lines and jobs are not schedules; use `allora gc`";
            return Err(Failure::wrong(what));
        }
        if self.options.is_for_bad_data() {
            let what = "schedules with bad data are not selected by their state; `allora list --state bad-data` \
                        names them";
            return Err(Failure::wrong(what));
        }
        Ok(self.options.filter())
    }

    /// The names of the jobs that this would change.
    ///
    /// # Errors
    /// Those of the store, and a prefix that ends within a word.
    pub(crate) async fn preview(
        &self,
        session: &Session,
        change: Bulk<'_>,
    ) -> Outcome<Vec<String>> {
        let names = session.schedules.bulk_preview(self.filter()?, change).await?;
        self.options.check_words(&names)?;
        Ok(names)
    }

    /// Changes all that the options select, and prints the names.
    ///
    /// # Errors
    /// Those of the store, and one if some schedules were not changed.
    pub(crate) async fn change(
        &self,
        session: &Session,
        change: Bulk<'_>,
        DryRun { dry_run }: DryRun,
        changes: Changes,
    ) -> Outcome {
        let mut report = BulkReport::default();
        if dry_run || self.options.names_prefix() {
            report.changed = self.preview(session, change).await?;
        }
        if !dry_run {
            report = session.schedules.bulk(self.filter()?, change).await?;
        }
        let BulkReport { changed, triggered_before: before, failed, .. } = report;
        let names: String = changed.iter().map(|name| on_one_line(name) + "\n").collect();
        let end = if dry_run { "would be changed" } else { "changed" };
        let jobs = counted(changed.len(), "job");
        let objects = changed
            .iter()
            .map(|name| tried(name, word(change), dry_run))
            .chain(before.iter().map(|name| made(name, "triggered_before")))
            .chain(failed.iter().map(|(name, error)| {
                let mut object = made(name, "");
                object["change"] = Value::Null;
                object["error"] = format!("{error:#}").into();
                object
            }));
        let objects = objects.map(|object| with_id(object, change));
        changes.print(objects, format_args!("{names}{jobs} {end}.\n"))?;
        if !before.is_empty() {
            let jobs = counted(before.len(), "job");
            let what = format!("{jobs} had a trigger with this id before, and are not run again");
            complain("note", &what);
        }
        match &failed[..] {
            [] => Ok(()),
            [(name, error)] => Err(Failure::failed(format!("{name:?} was not changed: {error:#}"))),
            [(name, error), ..] => Err(Failure::failed(format!(
                "{} jobs were not changed; the first is {name:?}: {error:#}",
                failed.len()
            ))),
        }
    }
}

/// The change of many jobs in a word.
fn word(change: Bulk<'_>) -> &'static str {
    match change {
        Bulk::Pause { .. } => "paused",
        Bulk::Resume(_) => "resumed",
        Bulk::Trigger { .. } => "triggered",
        Bulk::Rerun => "rerun",
        Bulk::Dismiss => "dismissed",
        Bulk::Delete => "deleted",
        _ => "changed",
    }
}

fn with_id(mut object: Value, change: Bulk<'_>) -> Value {
    if let Bulk::Trigger { id } = change {
        object["id"] = id.into();
    }
    object
}
