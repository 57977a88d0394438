//! The history of a store, and the progress of its pruning: once for every store.
//!
//! A job is trimmed after it has appended a tenth of its limit on this node, and all jobs whose entries
//! are too old once in each thirtieth of the age. So claims and completions do not prune, and what
//! pruning costs follows what was written. A job may exceed its limit by a tenth for each node that
//! runs it.

use crate::{
    backend::{HistoryCursor, HistoryEntry, HistoryLimits, HistoryQuery, HistoryTrim, Newest},
    error::Result,
    record::{Change, HistoryBuffer},
    time::{Time, saturating_add},
};
use async_trait::async_trait;
use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The number of entries that one request reads.
pub(super) const PAGE: usize = 500;

/// The most jobs whose entries are counted. When there are more, all are counted from zero again, and
/// their histories may grow until the age removes entries.
const MOST_COUNTED: usize = 1 << 18;

/// The time between two removals of old changes by one process: clients write them, and nodes remove
/// them.
const TRIM_CHANGES_EVERY: Duration = Duration::from_secs(3_600);

/// The part of a limit that may be appended before it is enforced again.
const SLACK: u64 = 10;

/// The passes over what is too old, in each period of that age.
const PASSES: u32 = 30;

/// The time after which a job with new entries is counted, even if none is to be removed.
const COUNT_EVERY: Duration = Duration::from_secs(3_600);

/// The interval at which the counts of old days are removed.
const FORGET: Duration = Duration::from_secs(24 * 60 * 60);

/// The history of a [`RecordStore`](super::RecordStore): its pages, and the removal of old entries.
///
/// The engine hands the entries to [`commit`](super::RecordStore::commit), in the drafts. It calls the
/// methods of this trait for pages, and, from [`Backend::prune`](crate::Backend::prune), to remove what
/// is beyond the [limits](HistoryLimits). The order of entries is that of their
/// [cursors](HistoryCursor).
///
/// # Errors
/// Every method: `Unavailable`.
#[async_trait]
pub trait HistoryStore: Send + Sync {
    /// The limits and the progress of the pruning. Each connection has its own.
    fn pruning(&self) -> &HistoryPruning;

    /// A page of the history, the highest cursor first. An entry that cannot be read is left out.
    ///
    /// Of the query, only [`name`](HistoryQuery::name), [`before`](HistoryQuery::before), the limit and
    /// [`failures_only`](HistoryQuery::failures_only) are set: the engine reads on until a page has what
    /// the other conditions ask for. A store without an index of failures may return other entries as
    /// well, which the engine leaves out.
    async fn history_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>>;

    /// Removes from the history of one job the entries that are not kept. A dropped call may have removed
    /// a part: of a long history it removes some at a time, so that the next call finds fewer.
    async fn trim_history(&self, name: &str, kept: HistoryTrim) -> Result;
}

/// The record of all changes by clients of a [`RecordStore`](super::RecordStore): its pages, and the
/// removal of old ones. It is kept whether there is a history or not.
///
/// The engine hands the changes to [`commit`](super::RecordStore::commit), in the drafts. The order of
/// changes is that of their [cursors](Change::cursor).
///
/// # Errors
/// Every method: `Unavailable`.
#[async_trait]
pub trait ChangeStore: Send + Sync {
    /// The limits and the progress of the pruning: the value that prunes the history, too.
    fn pruning(&self) -> &HistoryPruning;

    /// A page of the changes, the highest cursor first, of one job or of all: of the query, only name,
    /// cursor and limit count. A change that cannot be read is left out.
    async fn change_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<Change>>;

    /// Removes the changes that are not kept. A dropped call may have removed a part.
    async fn trim_changes(&self, kept: Newest) -> Result;
}

/// The limits of a history, and the progress of its pruning.
#[derive(Debug)]
pub struct HistoryPruning {
    limits: HistoryLimits,
    /// The time at which the changes are to be trimmed next.
    trim_changes: Mutex<Option<Time>>,
    appended: Mutex<Appended>,
    pass: Mutex<Pass>,
}

/// The entries that this process has written.
#[derive(Debug, Default)]
struct Appended {
    /// By job, since its entries were removed last.
    of_jobs: HashMap<String, New>,
    /// The jobs that may be beyond their limits.
    due: BTreeSet<String>,
    /// There were some. A process that writes no history leaves it to others.
    any: bool,
}

/// The entries of one job that this process has written.
#[derive(Clone, Copy, Debug)]
struct New {
    entries: u64,
    /// Those among them that are counted by the hour.
    counted: u64,
}

/// The passes over what is too old and over what is not counted, which continue from call to call.
#[derive(Debug, Default)]
struct Pass {
    /// The last entry that was looked at; `None` between two passes.
    below: Option<HistoryCursor>,
    /// The time of the next pass.
    next: Option<Time>,
    /// The time at which the counts of old days are removed next.
    forget_at: Option<Time>,
    /// The jobs that are to be counted in this pass.
    uncounted: Vec<(String, u64)>,
    /// The time of the next one.
    count_at: Option<Time>,
}

impl HistoryPruning {
    /// Prunes to these limits, with so many entries of each job if they have no number.
    pub fn new(mut limits: HistoryLimits, per_job: u64) -> Self {
        limits.per_job = limits.per_job.or(Some(per_job));
        limits.failures_per_job = limits.failures_per_job.or(limits.per_job);
        let (appended, pass, trim_changes) = Default::default();
        Self { limits, trim_changes, appended, pass }
    }

    /// Keeps so many changes by clients, unless the limits have a number. Default: 100 000.
    #[must_use]
    pub fn changes(mut self, changes: u64) -> Self {
        self.limits.changes.get_or_insert(changes);
        self
    }

    /// `true` if a history is kept: the number of entries of each job is not 0.
    pub fn is_on(&self) -> bool {
        self.limits.per_job != Some(0)
    }

    /// A buffer for the entries of a batch, which drops those that the history does not keep.
    pub fn buffer(&self) -> HistoryBuffer {
        match (self.is_on(), self.limits.successes) {
            (false, _) => HistoryBuffer::off(),
            (true, false) => HistoryBuffer::without_successes(),
            (true, true) => HistoryBuffer::kept(),
        }
    }

    /// The limits, with their numbers.
    pub fn limits(&self) -> HistoryLimits {
        self.limits
    }

    /// Notes an entry of each of these jobs that was written. The engine does so after a commit; a
    /// store does so for what it writes by another way.
    pub fn appended<'a>(&self, jobs: impl IntoIterator<Item = &'a str>) {
        let slack = self.slack();
        let mut jobs = jobs.into_iter().peekable();
        if jobs.peek().is_none() {
            return;
        }
        let mut appended = locked(&self.appended);
        let Appended { of_jobs, due, any } = &mut *appended;
        *any = true;
        for name in jobs {
            let entries = of_jobs.get(name).map_or(1, |new| new.entries + 1);
            if entries >= slack {
                of_jobs.remove(name);
                due.insert(name.to_owned());
            } else if let Some(new) = of_jobs.get_mut(name) {
                new.entries = entries;
            } else {
                if of_jobs.len() >= MOST_COUNTED {
                    of_jobs.clear();
                }
                of_jobs.insert(name.to_owned(), New { entries, counted: 0 });
            }
        }
    }

    /// The number of entries of a job after which it is trimmed.
    pub(super) fn slack(&self) -> u64 {
        let least = self.limits.per_job.min(self.limits.failures_per_job);
        (least.unwrap_or_default() / SLACK).max(1)
    }

    /// The jobs that may be beyond their limits.
    pub(super) fn due(&self) -> BTreeSet<String> {
        locked(&self.appended).due.clone()
    }

    pub(super) fn trimmed(&self, name: &str) {
        let mut appended = locked(&self.appended);
        appended.due.remove(name);
        appended.of_jobs.remove(name);
    }

    /// The next job to be counted by the hour, with the number of its entries. A pass begins an hour after
    /// the last one, with the jobs that have new entries.
    pub(super) fn uncounted(&self, now: Time) -> Option<(String, u64)> {
        let mut pass = locked(&self.pass);
        if pass.uncounted.is_empty() {
            if now < *pass.count_at.get_or_insert(saturating_add(now, COUNT_EVERY)) {
                return None;
            }
            pass.count_at = Some(saturating_add(now, COUNT_EVERY));
            let appended = locked(&self.appended);
            let new = appended.of_jobs.iter().filter(|(_, new)| new.counted < new.entries);
            pass.uncounted = new.map(|(name, new)| (name.clone(), new.entries)).collect();
            // In the order of their names, from the end.
            pass.uncounted.sort_unstable_by(|one, other| other.cmp(one));
        }
        pass.uncounted.pop()
    }

    /// So many entries of the job are counted.
    pub(super) fn counted(&self, name: &str, entries: u64) {
        if let Some(new) = locked(&self.appended).of_jobs.get_mut(name) {
            new.counted = entries.min(new.entries);
        }
    }

    /// The place at which the pass over old entries begins or goes on; `None` if it is not due.
    pub(super) fn place(&self, kept: &HistoryTrim, now: Time) -> Option<HistoryCursor> {
        let mut pass = locked(&self.pass);
        if pass.below.is_none() && pass.next.is_none_or(|next| next <= now) {
            let fence = kept.rest.from.max(kept.failures.from);
            pass.below = Some(HistoryCursor { fence, name: String::new() });
            let least = self.limits.age.min(self.limits.failure_age);
            pass.next = Some(saturating_add(now, least / PASSES));
        }
        pass.below.clone()
    }

    /// The pass has looked at all entries down to this one; `None`: at all of them.
    pub(super) fn passed(&self, last: Option<HistoryCursor>) {
        locked(&self.pass).below = last;
    }

    /// `true` if this process has written entries. One that has not leaves the pruning to others.
    pub(super) fn has_appended(&self) -> bool {
        locked(&self.appended).any
    }

    /// `true` if the counts of old days are to be removed.
    pub(super) fn forgets(&self, now: Time) -> bool {
        locked(&self.pass).forget_at.is_none_or(|at| at <= now)
    }

    /// They were removed.
    pub(super) fn forgot(&self, now: Time) {
        locked(&self.pass).forget_at = Some(saturating_add(now, FORGET));
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most jobs whose histories are read one by one.
const ONE_BY_ONE: usize = 16;

/// A page of what a query asks for, of these jobs.
pub(super) async fn page_of(
    history: &dyn HistoryStore,
    query: HistoryQuery<'_>,
    names: BTreeSet<String>,
) -> Result<Vec<HistoryEntry>> {
    if names.len() > ONE_BY_ONE {
        return page(history, query, |entry| names.contains(&entry.name)).await;
    }
    let mut found = Vec::new();
    for name in &names {
        let of_job = HistoryQuery { owner: None, name: Some(name), ..query };
        found.extend(page(history, of_job, |_| true).await?);
    }
    found.sort_by_key(|entry| Reverse(entry.cursor()));
    found.truncate(query.limit);
    Ok(found)
}

/// A page of what a query asks for, without the entries that are not wanted.
pub(super) async fn page(
    history: &dyn HistoryStore,
    query: HistoryQuery<'_>,
    is_wanted: impl Fn(&HistoryEntry) -> bool,
) -> Result<Vec<HistoryEntry>> {
    let lowest = query.lowest_fence();
    let mut place = query.first_place();
    let mut found: Vec<HistoryEntry> = Vec::new();
    while found.len() < query.limit {
        let missing = query.limit - found.len();
        let mut part = HistoryQuery::new(if query.leaves_out() { PAGE } else { missing });
        (part.name, part.before) = (query.name, place.as_ref());
        part.failures_only = query.failures_only;
        let mut read = history.history_entries(part).await?;
        let is_last = !query.leaves_out() && read.len() < missing;
        let Some(last) = read.last() else { break };
        let is_over = is_last || last.fence < lowest;
        place = Some(last.cursor());
        read.retain(|entry| query.admits(entry) && is_wanted(entry));
        found.extend(read);
        // Most queries have their page with the first request.
        if is_over {
            break;
        }
    }
    found.truncate(query.limit);
    Ok(found)
}

/// Removes the changes that are too old or too many, at first and then once an hour.
pub(super) async fn prune_changes(changes: &dyn ChangeStore, now: Time) -> Result {
    let pruning = changes.pruning();
    if locked(&pruning.trim_changes).is_some_and(|next| now < next) {
        return Ok(());
    }
    changes.trim_changes(pruning.limits.changes_at(now)).await?;
    *locked(&pruning.trim_changes) = Some(saturating_add(now, TRIM_CHANGES_EVERY));
    Ok(())
}
