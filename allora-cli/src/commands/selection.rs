//! The schedules of a command: one by its name, or all that options select.

use super::list::In;
use crate::{
    failure::{Failure, Outcome},
    output::on_one_line,
    session::Session,
};
use allora_core::stored::{Bulk, Filter};
use clap::Args;
use std::io::{self, Write};

/// Selects schedules.
#[derive(Debug, Args)]
#[group(id = "selection", required = true, multiple = true)]
pub(crate) struct Selection {
    /// The name of one job.
    #[arg(conflicts_with_all = ["beginning", "kind", "tag", "owner", "state"])]
    name: Option<String>,
    /// All jobs whose names begin so.
    #[arg(long = "name", value_name = "PREFIX")]
    beginning: Option<String>,
    /// All schedules of this kind.
    #[arg(long, visible_alias = "type")]
    kind: Option<String>,
    /// All schedules with this tag.
    #[arg(long)]
    tag: Option<String>,
    /// All schedules of this owner.
    #[arg(long)]
    owner: Option<String>,
    /// All jobs in this state.
    #[arg(long)]
    state: Option<In>,
}

/// Prints the names that would be changed, and changes nothing.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DryRun {
    /// Prints the names of the jobs that would be changed, and changes nothing.
    #[arg(long, conflicts_with = "name")]
    dry_run: bool,
}

impl Selection {
    /// The one job, if it is selected by its name.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn filter(&self) -> Outcome<Filter<'_>> {
        let condition = match self.state.map(In::condition) {
            // Without a condition, all jobs would be selected.
            Some(None) => {
                let what =
                    "the records of removed lines and jobs are not schedules; use `allora gc`";
                return Err(Failure::failed(what.to_owned()));
            }
            condition => condition.flatten(),
        };
        let mut filter = Filter::default().prefix(self.beginning.as_deref().unwrap_or_default());
        filter.kind = self.kind.as_deref();
        filter.tag = self.tag.as_deref();
        filter.owner = self.owner.as_deref();
        filter.condition = condition;
        Ok(filter)
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
    ) -> Outcome {
        let (changed, failed) = match dry_run {
            true => (session.schedules.bulk_preview(self.filter()?, change).await?, Vec::new()),
            false => {
                let report = session.schedules.bulk(self.filter()?, change).await?;
                (report.changed, report.failed)
            }
        };
        let mut out = io::BufWriter::new(io::stdout().lock());
        for name in &changed {
            writeln!(out, "{}", on_one_line(name))?;
        }
        let end = if dry_run { "would be changed" } else { "changed" };
        writeln!(out, "{} jobs {end}.", changed.len())?;
        out.flush()?;
        match &failed[..] {
            [] => Ok(()),
            [(name, error), ..] => Err(Failure::failed(format!(
                "{} jobs were not changed; the first is {name:?}: {error:#}",
                failed.len()
            ))),
        }
    }
}
