//! The history: one entry for each attempt that has ended, and for each range that was not run.
//!
//! An attempt is written once, at its end. Until then it is a lease in the record of its job, from
//! which readers of one job show it.
//!
//! Readers count occurrences, so each has exactly one final entry, and an attempt that another one
//! follows is not final. A page begins below a pair of fence and name: jobs that are claimed in one
//! microsecond have equal fences.

use super::{HistoryLimits, JobState, Lease, NotRunReason, Occurrence, Outcome};
use crate::{
    error::{Error, Result},
    time::{Time, since},
};
use async_trait::async_trait;
use std::{cmp::Reverse, fmt, str::FromStr, time::Duration};

/// The history of all runs, within the [limits](super::HistoryLimits) that the store keeps.
///
/// # Promises
/// Each names the cases of the conformance suite that check it.
/// 1. *One entry for each attempt*, written when it ends, and one for each range that was not run.
///    Until then the attempt is a [lease](super::JobState::leases) with the same fence and times. If a run
///    that was recorded as lost goes on, that entry stays until the run's end replaces it. Cases:
///    `history::a_run_is_a_lease_until_its_end_which_is_one_entry`, `history::every_outcome_has_an_entry`, `history::occurrences_that_did_not_run_are_one_entry_with_their_range`.
/// 2. *Ended leases have entries*: runs that expired or were lost, and those of a deleted job.
///    Cases: `history::an_expired_run_and_its_successor_are_two_entries`,
///    `history::a_lost_run_has_an_entry`,
///    `history::a_lost_run_that_ends_later_has_one_final_entry`, `history::a_run_of_a_deleted_job_ends_as_cancelled`.
/// 3. *One final entry for each occurrence* ([`HistoryEntry::is_final`]): attempts that another one
///    follows are not final. Only a dead letter that is run again gets a second one, and a job that
///    is deleted while an occurrence waits to be retried gets none. Cases:
///    `history::of_the_attempts_of_an_occurrence_only_the_last_is_final`.
/// 4. *The newest come first*, page by page, and no page hides or repeats an entry, also if entries
///    of many jobs have equal fences. Cases: `history::the_newest_come_first_page_by_page`,
///    `history::pages_are_whole_where_many_jobs_have_equal_fences`.
///    A query leaves out what it does not ask for, by time, outcome, kind and prefix, and its pages are
///    whole nevertheless. Case: `history::a_query_has_whole_pages_of_what_it_asks_for`.
///    That of an owner has the entries of the schedules that it has now. Case:
///    `flags::the_history_of_an_owner_is_that_of_its_schedules`.
/// 5. *An entry has the times of its run*: when it was due, when it started, when it ended. Cases:
///    `history::an_entry_has_the_times_of_its_run`,
///    `history::an_ended_lease_has_an_entry_with_its_times`.
/// 6. *The limits hold for each job*: [`Backend::prune`](super::Backend::prune) removes what is beyond the
///    [limits](super::HistoryLimits), and no entry of another job in its place. Cases:
///    `history::a_busy_job_evicts_no_entry_of_another`,
///    `history::failures_and_the_rest_have_limits_of_their_own`,
///    `history::a_lost_run_that_succeeds_is_a_failure_no_more`,
///    `history::entries_older_than_the_age_are_removed`,
///    `history::pruning_leaves_an_active_run_and_its_end_is_an_entry`.
/// 7. *What is removed is counted*, by the job and the [hour](crate::Schedules::hours). The engine of a
///    [`RecordStore`](crate::store::RecordStore) does so. Cases:
///    `history::entries_are_counted_by_the_hour_before_they_are_removed`.
#[async_trait]
pub trait History: Send + Sync {
    /// A page of the history, the newest entry first.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>>;

    /// The limits that this connection was opened with. Others may be opened with other ones.
    fn limits(&self) -> HistoryLimits;
}

/// A page of the history.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HistoryQuery<'a> {
    /// Only entries of this job. Default: of all jobs.
    pub name: Option<&'a str>,
    /// Only entries below this one: the [cursor](HistoryEntry::cursor) of the last entry of the page
    /// before. Default: from the newest one.
    pub before: Option<&'a HistoryCursor>,
    /// Only entries that are not older than this, by the time of their claims; ranges that were not run,
    /// by the time at which that was recorded. Default: however old.
    pub from: Option<Time>,
    /// Only entries that are older than this. Default: up to the newest one.
    pub until: Option<Time>,
    /// Only [failures](Outcome::is_failure). Default: every outcome.
    pub failures_only: bool,
    /// Only entries of stored schedules of this kind; with an empty text, of jobs in code.
    pub kind: Option<&'a str>,
    /// Only entries of jobs whose names begin with this text.
    pub prefix: &'a str,
    /// Only entries of stored schedules that have this owner now. An entry has no owner, so a schedule takes
    /// its history along when it gets another one, and the entries of a deleted schedule are left out.
    pub owner: Option<&'a str>,
    /// The largest number of entries.
    pub limit: usize,
}

impl<'a> HistoryQuery<'a> {
    /// The newest `limit` entries of all jobs.
    pub fn new(limit: usize) -> Self {
        Self {
            name: None,
            before: None,
            from: None,
            until: None,
            failures_only: false,
            kind: None,
            prefix: "",
            owner: None,
            limit,
        }
    }

    /// Of this job only.
    #[must_use]
    pub fn name(mut self, name: &'a str) -> Self {
        self.name = Some(name);
        self
    }

    /// Below this entry.
    #[must_use]
    pub fn before(mut self, before: &'a HistoryCursor) -> Self {
        self.before = Some(before);
        self
    }

    /// Not older than this.
    #[must_use]
    pub fn from(mut self, from: Time) -> Self {
        self.from = Some(from);
        self
    }

    /// Older than this.
    #[must_use]
    pub fn until(mut self, until: Time) -> Self {
        self.until = Some(until);
        self
    }

    /// Failures only.
    #[must_use]
    pub fn failures_only(mut self) -> Self {
        self.failures_only = true;
        self
    }

    /// Of this kind only; with an empty text, of jobs in code.
    #[must_use]
    pub fn kind(mut self, kind: &'a str) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Of jobs whose names begin with this text.
    #[must_use]
    pub fn prefix(mut self, prefix: &'a str) -> Self {
        self.prefix = prefix;
        self
    }

    /// Of stored schedules that have this [owner](Self::owner) now.
    #[must_use]
    pub fn owner(mut self, owner: &'a str) -> Self {
        self.owner = Some(owner);
        self
    }

    /// `true` if the page may have this entry; the [owner](Self::owner) is that of the job, and is not
    /// compared.
    pub fn admits(&self, entry: &HistoryEntry) -> bool {
        self.name.is_none_or(|name| entry.name == name)
            && self.first_place().is_none_or(|first| entry.cursor() < first)
            && entry.fence >= self.lowest_fence()
            && (!self.failures_only || entry.outcome.is_failure())
            && self.kind.is_none_or(|kind| entry.kind == kind)
            && entry.name.starts_with(self.prefix)
    }

    /// The cursor below which the page begins: fences are drawn from microseconds.
    pub(crate) fn first_place(&self) -> Option<HistoryCursor> {
        let fence = self.until.map(|until| until.timestamp_micros());
        let until = fence.map(|fence| HistoryCursor { fence, name: String::new() });
        [until, self.before.cloned()].into_iter().flatten().min()
    }

    /// The lowest fence of an entry of the page.
    pub(crate) fn lowest_fence(&self) -> i64 {
        self.from.map_or(i64::MIN, |from| from.timestamp_micros())
    }

    /// True if entries are left out that are between others of the page.
    pub(crate) fn leaves_out(&self) -> bool {
        self.failures_only || self.kind.is_some() || !self.prefix.is_empty() || self.owner.is_some()
    }
}

/// The key of an entry, and its place: a page has the highest fence first, and of equal fences the
/// name that is last in the order of its bytes. As a text, it is the fence, a colon and the name.
///
/// ```
/// use allora::backend::HistoryCursor;
///
/// let cursor: HistoryCursor = "1767225600000000:acme: report".parse()?;
/// assert_eq!((cursor.fence, &*cursor.name), (1_767_225_600_000_000, "acme: report"));
/// assert_eq!(cursor.to_string(), "1767225600000000:acme: report");
/// assert!("report".parse::<HistoryCursor>().is_err());
/// # Ok::<(), allora::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryCursor {
    /// The fence.
    pub fence: i64,
    /// The job.
    pub name: String,
}

impl fmt::Display for HistoryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.fence, self.name)
    }
}

impl FromStr for HistoryCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once(':');
        let cursor = parts.and_then(|(fence, name)| {
            Some(Self { fence: fence.parse().ok()?, name: name.to_owned() })
        });
        cursor.ok_or_else(|| {
            Error::invalid(format!(
                "{text:?} is no place in the history; give that of an entry, as \"1767225600000000:job\""
            ))
        })
    }
}

/// One entry: one run, or one range of occurrences that were missed or skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// The job.
    pub name: String,
    /// The kind of a stored schedule; empty for a job in code.
    pub kind: String,
    /// The run's fence. A range has a fence of its own.
    pub fence: i64,
    /// The occurrence that was run, or the first of the range.
    pub occurrence: Occurrence,
    /// The last scheduled time of a range.
    pub last: Option<Time>,
    /// The number of occurrences in a range; `None` if they were not counted. For a run: 1.
    pub count: Option<u64>,
    /// The earliest time at which this attempt could be claimed; `None` for a range.
    pub due_at: Option<Time>,
    /// The number of the attempt; for a range: 0.
    pub attempt: u32,
    /// The node that ran the occurrence or moved the cursor past it.
    pub node: String,
    /// The time of the claim, by the clock that decided; `None` for a range.
    pub started_at: Option<Time>,
    /// The time at which the outcome was recorded, by the clock that decided; `None` for a run that
    /// is [active](super::JobState::active_runs).
    pub ended_at: Option<Time>,
    /// The result, with the chain of errors if there is one.
    pub outcome: Outcome,
    /// The reason why a range was not run, or why a run was cancelled if that was requested; `None`
    /// for any other run.
    pub reason: Option<NotRunReason>,
    /// The output of the run, if it has [set](crate::Run::set_output) any.
    pub output: Option<String>,
    /// The value of the run as JSON, if it has [set](crate::Run::set_value) any.
    pub value: Option<String>,
}

/// The end of an occurrence for which a caller has waited.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// The result of the last attempt.
    pub outcome: Outcome,
    /// Its output, if it has [set](crate::Run::set_output) any.
    pub output: Option<String>,
    /// Its value as JSON, if it has [set](crate::Run::set_value) any.
    pub value: Option<String>,
}

impl Ended {
    /// The end with this outcome, without output and value.
    pub fn new(outcome: Outcome) -> Self {
        Self { outcome, output: None, value: None }
    }
}

impl From<&HistoryEntry> for Ended {
    fn from(entry: &HistoryEntry) -> Self {
        let HistoryEntry { outcome, output, value, .. } = entry;
        Self { outcome: outcome.clone(), output: output.clone(), value: value.clone() }
    }
}

impl HistoryEntry {
    /// An entry for the first attempt of one run, without kind, node and times: for backends that
    /// read it back and set the other fields.
    pub fn new(
        name: impl Into<String>,
        fence: i64,
        occurrence: Occurrence,
        outcome: Outcome,
    ) -> Self {
        Self {
            name: name.into(),
            kind: String::new(),
            fence,
            occurrence,
            last: None,
            count: Some(1),
            due_at: None,
            attempt: 1,
            node: String::new(),
            started_at: None,
            ended_at: None,
            outcome,
            reason: None,
            output: None,
            value: None,
        }
    }

    /// An active run: what readers show of it, and no store keeps.
    pub(crate) fn running(name: &str, kind: &str, lease: &Lease) -> Self {
        Self {
            kind: kind.to_owned(),
            due_at: Some(lease.due_at),
            attempt: lease.attempt,
            node: lease.node.clone(),
            started_at: Some(lease.started_at).filter(|_| lease.claim_id != 0),
            ..Self::new(name, lease.fence, lease.occurrence.clone(), Outcome::Running)
        }
    }

    /// `true` if an operator has [marked](crate::Schedules::mark_succeeded) the occurrence as succeeded: no run
    /// of it has.
    pub fn is_mark(&self) -> bool {
        let is_operators = self.attempt == 0 && self.reason == Some(NotRunReason::Operator);
        is_operators && self.outcome == Outcome::Succeeded
    }

    /// The text of an operator about an occurrence that was skipped or marked as succeeded, with the name of
    /// its author: `by ann: sent by hand`. `None` for any other entry, and if the author was not given.
    pub fn operator_note(&self) -> Option<&str> {
        let is_operators = self.attempt == 0 && self.reason == Some(NotRunReason::Operator);
        self.output.as_deref().filter(|_| is_operators)
    }

    /// The entry's key: the page after it begins below this.
    pub fn cursor(&self) -> HistoryCursor {
        HistoryCursor { fence: self.fence, name: self.name.clone() }
    }

    /// The duration of the run, by the clock that decided; `None` for a range, and while the run is
    /// active.
    pub fn duration(&self) -> Option<Duration> {
        Some(since(self.ended_at?, self.started_at?))
    }

    /// `true` if no other attempt at the occurrence follows this one.
    pub fn is_final(&self) -> bool {
        self.outcome.is_final()
    }

    /// `true` if the run was recorded as lost or expired: its lease ended without word from its node.
    pub fn has_lapsed(&self) -> bool {
        matches!(self.outcome, Outcome::Lost | Outcome::Expired)
    }
}

impl JobState {
    /// The active runs in the form of history entries, without an end. The history has a run from its
    /// end on.
    pub fn active_runs(&self) -> impl Iterator<Item = HistoryEntry> {
        // One without a claim was cancelled while it waited, and one that was completed has its entry.
        let runs = self.leases.iter().filter(|lease| lease.claim_id != 0 && !lease.completed);
        runs.map(|lease| HistoryEntry::running(&self.name, &self.kind, lease))
    }

    /// These entries of the job with its [active runs](Self::active_runs), the newest first.
    pub fn with_active_runs(&self, mut entries: Vec<HistoryEntry>) -> Vec<HistoryEntry> {
        for run in self.active_runs() {
            match entries.iter_mut().find(|entry| entry.fence == run.fence) {
                None => entries.push(run),
                // It was taken for lost, and goes on.
                Some(entry) if entry.outcome == Outcome::Lost => *entry = run,
                // It has ended since the job was read.
                Some(_) => {}
            }
        }
        entries.sort_by_key(|entry| Reverse(entry.fence));
        entries
    }
}
