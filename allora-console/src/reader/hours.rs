//! The statistics by the hour, of the reader's jobs.

use super::{Reader, lists::COUNTED};
use allora_core::{
    ErrorKind, Result, Time,
    backend::{Count, JobState},
    stored::{Filter, Hour, HourTotals},
};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The most days of jobs that are added up: a record each.
const MOST_DAYS: u64 = 10_000;

impl Reader {
    /// As [`Schedules::hours_of`], by the names of these jobs; of none if the store keeps no history. What had
    /// such a name before is part of it.
    pub(crate) async fn hours_of(
        &self,
        jobs: &[&JobState],
        from: Time,
        now: Time,
    ) -> Result<HashMap<String, Vec<Hour>>> {
        let seen = jobs.iter().filter(|job| self.access.may_see(&job.name, &job.kind));
        let names: Vec<&str> = seen.map(|job| job.name.as_str()).collect();
        match self.schedules.hours_of(&names, from, now).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(HashMap::new()),
            hours => Ok(names.into_iter().map(str::to_owned).zip(hours?).collect()),
        }
    }

    /// As [`Schedules::hour_totals`], of the reader's jobs, of which there are so many. `None` if that would be too
    /// much to add up, or the store keeps no history.
    pub(crate) async fn hour_totals(
        &self,
        from: Time,
        now: Time,
        jobs: Count,
    ) -> Result<Option<HourTotals>> {
        let parts = self.access.parts("", None);
        let prefixes: BTreeSet<&str> = parts.iter().map(|(prefix, _)| *prefix).collect();
        // Of several prefixes, all jobs are read.
        let (prefix, is_all) = match prefixes.first() {
            None => return Ok(Some(HourTotals::new(from))),
            Some(prefix) if prefixes.len() == 1 => (*prefix, !self.access.has_kinds()),
            Some(_) => ("", false),
        };
        let jobs = if is_all { jobs } else { self.schedules.counts(prefix).await?.jobs() };
        let days = u64::try_from((now - from).num_days()).unwrap_or_default() + 2;
        if jobs.number.saturating_mul(days) > MOST_DAYS {
            return Ok(None);
        }
        // The counts have no kinds.
        let mut names: Option<HashSet<String>> = None;
        if self.access.has_kinds() {
            let own = self.list(Filter::default(), None, COUNTED).await?;
            names = Some(own.into_iter().map(|state| state.name).collect());
        }
        let is_wanted = |name: &str| {
            self.access.may_name(name) && names.as_ref().is_none_or(|own| own.contains(name))
        };
        match self.schedules.hour_totals(prefix, from, is_wanted).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
            totals => Ok(Some(totals?).filter(HourTotals::is_whole)),
        }
    }
}
