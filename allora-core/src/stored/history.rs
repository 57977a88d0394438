//! Pages of the history, and of one job its active runs with them: until a run ends, its lease is all
//! that the store has of it.

use super::errors::no_history;
use crate::{
    backend::{Backend, Flag, HistoryEntry, HistoryQuery, JobState},
    error::{ErrorKind, Result},
    time::Time,
};

/// A page of the history; of one job, with its active runs.
pub(crate) async fn history_page(
    backend: &dyn Backend,
    query: HistoryQuery<'_>,
) -> Result<Vec<HistoryEntry>> {
    let history = backend.history().ok_or_else(|| no_history("history"))?;
    // The job first: a run that ends between the two requests is in both, and not in neither.
    let job = match query.name.zip(backend.queries()) {
        None => None,
        Some((name, queries)) => match queries.get(name).await {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            job => Some(job?),
        },
    };
    let has_owner = |job: &JobState| {
        query.owner.is_none_or(|owner| Flag::Owner(owner).holds(job, Time::UNIX_EPOCH))
    };
    let job = job.filter(has_owner);
    let entries = history.entries(query).await?;
    Ok(match job {
        Some(job) => with_active_runs(entries, &job, query),
        None => entries,
    })
}

/// A page of entries of this job, with its active runs in their places.
fn with_active_runs(
    entries: Vec<HistoryEntry>,
    job: &JobState,
    query: HistoryQuery<'_>,
) -> Vec<HistoryEntry> {
    let mut entries = job.with_active_runs(entries);
    entries.retain(|entry| query.admits(entry));
    entries.truncate(query.limit);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{HistoryCursor, Lease, OnExpiry, Outcome},
        time::from_millis,
    };

    #[test]
    fn active_runs_are_in_their_places_of_the_pages_of_a_job() {
        let at = from_millis(0).unwrap();
        let entry = |fence, outcome| HistoryEntry::new("job", fence, at.into(), outcome);
        let mut job = JobState::unreadable("job", String::new());
        let lease = |fence| Lease::new("node", 1, fence, at.into(), at, OnExpiry::Lost);
        job.leases = [2, 5, 7, 9].map(lease).to_vec();
        job.leases[0].claim_id = 0;
        let all = [
            entry(8, Outcome::Succeeded),
            entry(7, Outcome::Succeeded),
            entry(5, Outcome::Lost),
            entry(3, Outcome::Succeeded),
        ];
        let page = |entries: &[HistoryEntry], query| {
            let page = with_active_runs(entries.to_vec(), &job, query);
            page.into_iter().map(|entry| (entry.fence, entry.outcome.word())).collect::<Vec<_>>()
        };
        let first = [(9, "running"), (8, "succeeded"), (7, "succeeded")];
        assert_eq!(page(&all[..3], HistoryQuery::new(3)), first);
        let last = HistoryCursor { fence: 7, name: "job".into() };
        let query = HistoryQuery::new(3).before(&last);
        assert_eq!(page(&all[2..], query), [(5, "running"), (3, "succeeded")]);
    }
}
