//! Pages of the history by a filter, for the list of runs and for the API.

use crate::reader::Reader;
use allora_core::{HistoryEntry, HistoryQuery, Result, Time, backend::HistoryCursor};

/// The choices: those of which a person asks, then every outcome.
pub(crate) const OUTCOMES: [&str; 13] = [
    "failures",
    "all",
    "succeeded",
    "failed",
    "dead",
    "lost",
    "expired",
    "missed",
    "skipped",
    "cancelled",
    "retried",
    "interrupted",
    "released",
];

/// The entries that are read at once, and in all, for an outcome that the store does not look for.
const PAGE: usize = 500;
const MOST: usize = 5_000;

/// The entries to look for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// One of [`OUTCOMES`].
    pub(crate) outcome: &'static str,
    /// Empty: of all jobs.
    pub(crate) name: String,
    pub(crate) prefix: String,
    /// `None`: of all kinds.
    pub(crate) kind: Option<String>,
    /// The present owner of the job. Empty: any.
    pub(crate) owner: String,
    pub(crate) from: Option<Time>,
    pub(crate) until: Option<Time>,
    pub(crate) before: Option<HistoryCursor>,
}

/// The entries of a page.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) entries: Vec<HistoryEntry>,
    /// The entry below which the next page begins.
    pub(crate) older: Option<HistoryCursor>,
    /// The number of entries that were read, if the search ended before the history did.
    pub(crate) gave_up_at: Option<usize>,
}

impl Wanted {
    fn query<'a>(&'a self, before: Option<&'a HistoryCursor>, limit: usize) -> HistoryQuery<'a> {
        let mut query = HistoryQuery::new(limit).prefix(&self.prefix);
        query.name = Some(self.name.as_str()).filter(|name| !name.is_empty());
        (query.before, query.from, query.until) = (before, self.from, self.until);
        query.kind = self.kind.as_deref();
        query.owner = Some(self.owner.as_str()).filter(|owner| !owner.is_empty());
        query.failures_only = self.outcome == "failures";
        query
    }

    /// `true` if the entry has the outcome that is looked for.
    fn has(&self, entry: &HistoryEntry) -> bool {
        match self.outcome {
            "all" => true,
            "failures" => entry.outcome.is_failure(),
            word => entry.outcome.word() == word,
        }
    }
}

/// The newest entries of these, at most `limit`.
pub(crate) async fn find(reader: &Reader, wanted: &Wanted, limit: usize) -> Result<Found> {
    let mut found = Found::default();
    let mut before = wanted.before.clone();
    let mut read = 0;
    // The store looks for these by itself.
    let size = if ["all", "failures"].contains(&wanted.outcome) { limit.min(PAGE) } else { PAGE };
    loop {
        let page = reader.history(wanted.query(before.as_ref(), size)).await?;
        read += page.read;
        for entry in page.entries {
            let place = entry.cursor();
            if wanted.has(&entry) {
                found.entries.push(entry);
            }
            if found.entries.len() == limit {
                found.older = Some(place);
                return Ok(found);
            }
        }
        before = page.next;
        if before.is_none() {
            return Ok(found);
        }
        if read >= MOST {
            (found.older, found.gave_up_at) = (before, Some(read));
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use allora_core::Outcome;

    #[test]
    fn failures_are_several_outcomes_and_every_other_choice_is_one() {
        let entry = |outcome| HistoryEntry::new("a", 7, at("2026-10-26T01:00:00Z").into(), outcome);
        let has = |outcome, of| Wanted { outcome, ..Wanted::default() }.has(&entry(of));
        assert!(has("failures", Outcome::Lost) && !has("failures", Outcome::Succeeded));
        assert!(has("all", Outcome::Succeeded) && has("succeeded", Outcome::Succeeded));
        assert!(!has("succeeded", Outcome::Lost));
        for outcome in &OUTCOMES[2..] {
            assert!(Outcome::from_word(outcome, "").is_some(), "{outcome}");
        }
    }
}
