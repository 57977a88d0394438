//! Lists and counts of jobs, and changes of all that a list has: by the parts of the filter that exist for the reader.

use super::Reader;
use allora_core::{
    Result, Time,
    backend::{Counts, Flag, Flagged, JobState, Page},
    stored::{Bulk, BulkReport, Filter},
};

/// The most jobs that are counted by reading them.
pub(super) const COUNTED: usize = 10_000;

impl Reader {
    /// As [`Schedules::list`].
    pub(crate) async fn list(
        &self,
        filter: Filter<'_>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<JobState>> {
        let found = self.unredacted_list(filter, after, limit).await?;
        Ok(found.into_iter().map(|state| self.shown(state)).collect())
    }

    /// As [`list`](Self::list), as the store has the jobs: for an export.
    pub(crate) async fn unredacted_list(
        &self,
        filter: Filter<'_>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<JobState>> {
        let mut found = Vec::new();
        let parts = self.access.parts(filter.prefix, filter.kind);
        for (prefix, kind) in &parts {
            let part = part(filter, prefix, *kind);
            found.extend(self.schedules.list(part, after, limit).await?);
        }
        if parts.len() > 1 {
            found.sort_by(|one, other| one.name.cmp(&other.name));
        }
        Ok(self.own(found).take(limit).collect())
    }

    /// As [`Schedules::list_by_due`].
    pub(crate) async fn list_by_due(
        &self,
        filter: Filter<'_>,
        limit: usize,
    ) -> Result<Vec<JobState>> {
        let mut found = Vec::new();
        let parts = self.access.parts(filter.prefix, filter.kind);
        for (prefix, kind) in &parts {
            let part = part(filter, prefix, *kind);
            found.extend(self.schedules.list_by_due(part, limit).await?);
        }
        if parts.len() > 1 {
            found.sort_by(|one, other| (one.due_at, &one.name).cmp(&(other.due_at, &other.name)));
        }
        Ok(self.seen(found, limit))
    }

    /// The jobs that are due first, at most `limit`; for a reader with prefixes, the first ones by name.
    pub(crate) async fn first(&self, limit: usize) -> Result<Vec<JobState>> {
        match self.lists_by_due() {
            true => self.list_by_due(Filter::default(), limit).await,
            false => self.list(Filter::default(), None, limit).await,
        }
    }

    /// `true` if a store finds the reader's jobs by their due times without a look at all of them: its index has
    /// kinds, and no prefixes.
    pub(crate) fn lists_by_due(&self) -> bool {
        self.access.parts("", None).iter().all(|(prefix, _)| prefix.is_empty())
    }

    /// As [`Schedules::flagged`], of the prefix and the kind of the filter.
    pub(crate) async fn flagged(
        &self,
        flag: Flag<'_>,
        filter: Filter<'_>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Flagged> {
        let mut all = Flagged::new(Vec::new(), None);
        for (prefix, kind) in self.access.parts(filter.prefix, filter.kind) {
            let mut page = Page::first(limit).prefix(prefix);
            (page.after, page.kind) = (after, kind);
            let part = self.schedules.flagged(flag, page).await?;
            all.found.extend(part.found);
            all.next = all.next.into_iter().chain(part.next).min();
            all.is_complete &= part.is_complete;
        }
        all.found.sort_by(|one, other| one.name.cmp(&other.name));
        // Behind the end of one part, jobs of that part may be missing.
        if let Some(next) = &all.next {
            all.found.retain(|state| state.name <= *next);
        }
        if all.found.len() > limit {
            all.next = all.found.get(limit.saturating_sub(1)).map(|last| last.name.clone());
        }
        all.found = self.seen(all.found, limit);
        Ok(all)
    }

    /// The numbers of the reader's jobs. A store counts by one prefix; for any other limit, the first
    /// [`COUNTED`] jobs are read.
    pub(crate) async fn counts(&self, now: Time) -> Result<Counts> {
        if let [(prefix, None)] = self.access.parts("", None)[..] {
            let mut counts = self.schedules.counts(prefix).await?;
            counts.active = self.seen(counts.active, usize::MAX);
            return Ok(counts);
        }
        let mut states = self.list(Filter::default(), None, COUNTED + 1).await?;
        let is_whole = states.len() <= COUNTED;
        states.truncate(COUNTED);
        Ok(Counts::among(&states, now, is_whole))
    }

    /// As [`Schedules::bulk_preview`].
    pub(crate) async fn bulk_preview(
        &self,
        filter: Filter<'_>,
        change: Bulk<'_>,
    ) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for (prefix, kind) in self.access.parts(filter.prefix, filter.kind) {
            let part = part(filter, prefix, kind);
            names.extend(self.schedules.bulk_preview(part, change).await?);
        }
        names.sort_unstable();
        Ok(names)
    }

    /// As [`Schedules::bulk`], with this note.
    pub(crate) async fn bulk(
        &self,
        note: &str,
        filter: Filter<'_>,
        change: Bulk<'_>,
    ) -> Result<BulkReport> {
        let schedules = self.whole_store(note);
        let mut report = BulkReport::default();
        for (prefix, kind) in self.access.parts(filter.prefix, filter.kind) {
            let done = schedules.bulk(part(filter, prefix, kind), change).await?;
            report.changed.extend(done.changed);
            report.triggered_before.extend(done.triggered_before);
            report.failed.extend(done.failed);
        }
        Ok(report)
    }

    fn own(&self, found: Vec<JobState>) -> impl Iterator<Item = JobState> {
        let may_see = |state: &JobState| self.access.may_see(&state.name, &state.kind);
        found.into_iter().filter(may_see)
    }

    fn seen(&self, found: Vec<JobState>, limit: usize) -> Vec<JobState> {
        self.own(found).take(limit).map(|state| self.shown(state)).collect()
    }
}

fn part<'a>(filter: Filter<'a>, prefix: &'a str, kind: Option<&'a str>) -> Filter<'a> {
    let mut part = filter.prefix(prefix);
    part.kind = kind;
    part
}
