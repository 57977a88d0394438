//! The history of a store, and its pruning: once for every store.
//!
//! A store reads and removes entries; which ones go is decided here, by the rule of [`HistoryLimits`].
//!
//! A job is pruned after it has appended a tenth of its limit on this node, what is too old once in
//! each thirtieth of the age, and the total after a tenth of it was appended. So claims and
//! completions do not prune. A job may exceed its limit by a tenth for each node that runs it.

use super::{Load, Loaded, RecordStore};
use crate::{
    backend::{
        HistoryCursor, HistoryEntry, HistoryLimits, HistoryMark, HistoryQuery, JobView, LAST_KEPT,
        Removal, TimeSource,
    },
    error::Result,
    record::Record,
    time::{Time, saturating_add},
};
use async_trait::async_trait;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The number of entries that one request reads.
const PAGE: usize = 500;

/// The number of jobs whose records and limits one request reads.
const JOBS: usize = 32;

/// The most jobs whose entries are counted. With more, the total is reached before any job's limit.
const MOST_COUNTED: usize = 1 << 18;

/// The part of a limit that may be appended before it is enforced again.
const SLACK: u64 = 10;

/// The passes over what is too old, in each period of that age.
const PASSES: u32 = 30;

/// The history of a [`RecordStore`]: its pages, and what its pruning needs.
///
/// The engine hands the entries to [`commit`](RecordStore::commit), in the drafts. It calls the methods
/// of this trait for pages, and, from [`Backend::prune`](crate::Backend::prune), to remove what is
/// beyond the [limits](HistoryLimits). The order of entries is that of their [cursors](HistoryCursor).
///
/// # Errors
/// Every method: `Unavailable`.
#[async_trait]
pub trait HistoryStore: Send + Sync {
    /// The limits and the progress of the pruning. Each connection has its own.
    fn pruning(&self) -> &HistoryPruning;

    /// A page of the history, the highest cursor first.
    async fn history_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>>;

    /// Counts entries, all of them or a part: those below `below`, the highest first.
    async fn count_history(&self, below: Option<&HistoryCursor>) -> Result<HistoryCount>;

    /// Of each pair, the fence of the job's entry at this place, by position: place 1 is its newest
    /// entry. `None` if the job has fewer.
    async fn history_places(&self, places: &[(&str, u64)]) -> Result<Vec<Option<i64>>>;

    /// The entries of one job below this fence, the highest first, at most `limit`.
    async fn history_marks(&self, name: &str, below: i64, limit: usize)
    -> Result<Vec<HistoryMark>>;

    /// The lowest entries of all jobs, those above `above`, the lowest first, at most `limit`. A page
    /// may be shorter; an empty one is the end.
    async fn oldest_history(
        &self,
        above: Option<&HistoryCursor>,
        limit: usize,
    ) -> Result<Vec<HistoryCursor>>;

    /// Removes entries. Those that are not there change nothing.
    async fn remove_history(&self, entries: &[HistoryCursor]) -> Result;
}

/// A count of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryCount {
    /// The number of entries that were counted.
    pub entries: u64,
    /// The last one, if there may be more below it.
    pub last: Option<HistoryCursor>,
}

impl HistoryCount {
    /// All that there are.
    pub fn all(entries: u64) -> Self {
        Self { entries, last: None }
    }
}

/// The limits of a history, and the progress of its pruning.
#[derive(Debug)]
pub struct HistoryPruning {
    limits: HistoryLimits,
    total: u64,
    appended: Mutex<Appended>,
    /// `None` while a call continues it.
    progress: Mutex<Option<Progress>>,
}

/// The entries that this process has written.
#[derive(Debug, Default)]
struct Appended {
    /// By job, since its entries were removed last.
    of_jobs: HashMap<String, u64>,
    /// The jobs that may be beyond their limits.
    due: BTreeSet<String>,
    /// All, since all were counted last; `None` if nothing was written yet. A process that writes no
    /// history leaves it to others.
    all: Option<u64>,
}

/// The progress of a pruning that continues from call to call.
#[derive(Debug, Default)]
struct Progress {
    was_counted: bool,
    total: TotalProgress,
    /// The pass over what is too old.
    aged: Option<AgedPass>,
    /// The time of the next pass.
    next_pass: Option<Time>,
}

#[derive(Clone, Debug, Default)]
enum TotalProgress {
    #[default]
    Done,
    Counting(HistoryCount),
    Removing(Excess),
}

/// The removal of what is beyond the total: rounds over all entries, from the oldest.
#[derive(Clone, Debug)]
struct Excess {
    /// The number of entries to remove.
    entries: u64,
    above: Option<HistoryCursor>,
    has_removed: bool,
    /// The last round has found only the newest of each job: these go, too.
    takes_any: bool,
}

#[derive(Clone, Debug, Default)]
struct AgedPass {
    above: Option<HistoryCursor>,
    /// The jobs whose entries have been looked at.
    seen: BTreeSet<String>,
}

impl HistoryPruning {
    /// Prunes to these limits; to `total` entries if they have no total. `None`: no history is kept.
    pub fn new(limits: Option<HistoryLimits>, total: u64) -> Self {
        let total = limits.map_or(0, |limits| limits.total.unwrap_or(total));
        let limits = limits.unwrap_or_default();
        let progress = Mutex::new(Some(Progress::default()));
        Self { limits, total, appended: Mutex::default(), progress }
    }

    /// `true` if a history is kept: its total is not 0.
    pub fn is_on(&self) -> bool {
        self.total > 0
    }

    /// The largest number of entries; 0 if no history is kept.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Notes entries that were written. The engine does so after a commit; a store does so for what it
    /// writes by another way.
    pub fn appended(&self, entries: &[HistoryEntry]) {
        self.appended_to(entries.iter().map(|entry| &*entry.name));
    }

    /// Notes a new entry of each of these jobs, as [`appended`](Self::appended) does.
    pub fn appended_to<'a>(&self, jobs: impl Iterator<Item = &'a str>) {
        let mut jobs = jobs.peekable();
        if jobs.peek().is_none() {
            return;
        }
        let slack = (self.limits.per_job / SLACK).max(1);
        let mut appended = locked(&self.appended);
        let Appended { of_jobs, due, all } = &mut *appended;
        for name in jobs {
            *all.get_or_insert_default() += 1;
            let entries = of_jobs.get(name).map_or(1, |entries| entries + 1);
            if entries >= slack {
                of_jobs.remove(name);
                due.insert(name.to_owned());
            } else if let Some(counted) = of_jobs.get_mut(name) {
                *counted = entries;
            } else {
                if of_jobs.len() >= MOST_COUNTED {
                    of_jobs.clear();
                }
                of_jobs.insert(name.to_owned(), entries);
            }
        }
    }

    /// Some jobs that may be beyond their limits.
    fn due(&self) -> Vec<String> {
        locked(&self.appended).due.iter().take(JOBS).cloned().collect()
    }

    fn begin(&self) -> Option<Progress> {
        locked(&self.progress).take()
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what is beyond the limits. A call that is dropped leaves the rest to the next one.
pub(super) async fn prune<S: RecordStore>(
    store: &S,
    history: &dyn HistoryStore,
    now: Time,
) -> Result {
    let pruning = history.pruning();
    if locked(&pruning.appended).all.is_none() {
        return Ok(());
    }
    // Another call continues it.
    let Some(progress) = pruning.begin() else { return Ok(()) };
    let mut turn = Turn { store, history, pruning, now, progress };
    turn.prune_due().await?;
    turn.prune_aged().await?;
    turn.prune_to_total().await
}

/// The number of all entries.
pub(super) async fn count(history: &dyn HistoryStore) -> Result<u64> {
    let mut count = history.count_history(None).await?;
    while let Some(last) = count.last.take() {
        let more = history.count_history(Some(&last)).await?;
        count = HistoryCount { entries: count.entries + more.entries, last: more.last };
    }
    Ok(count.entries)
}

/// One call's part of a pruning. Dropped, it leaves the rest to the next call.
struct Turn<'a, S> {
    store: &'a S,
    history: &'a dyn HistoryStore,
    pruning: &'a HistoryPruning,
    now: Time,
    progress: Progress,
}

impl<S> Drop for Turn<'_, S> {
    fn drop(&mut self) {
        *locked(&self.pruning.progress) = Some(std::mem::take(&mut self.progress));
    }
}

impl<S: RecordStore> Turn<'_, S> {
    /// The jobs that have appended a part of their limit.
    async fn prune_due(&mut self) -> Result {
        loop {
            let due = self.pruning.due();
            if due.is_empty() {
                return Ok(());
            }
            let names: Vec<&str> = due.iter().map(String::as_str).collect();
            self.prune_jobs(&names).await?;
            let mut appended = locked(&self.pruning.appended);
            for name in names {
                appended.due.remove(name);
                appended.of_jobs.remove(name);
            }
        }
    }

    /// The jobs that have entries that are too old, now and then.
    async fn prune_aged(&mut self) -> Result {
        let limits = self.pruning.limits;
        if self.progress.aged.is_none() {
            if self.progress.next_pass.is_some_and(|next| self.now < next) {
                return Ok(());
            }
            self.progress.next_pass = Some(saturating_add(self.now, limits.age / PASSES));
            self.progress.aged = Some(AgedPass::default());
        }
        let oldest = limits.oldest_fence(self.now);
        while let Some(pass) = &self.progress.aged {
            let page = self.history.oldest_history(pass.above.as_ref(), PAGE).await?;
            let aged = page.iter().filter(|entry| entry.fence < oldest);
            let names: BTreeSet<&str> = aged.map(|entry| &*entry.name).collect();
            let names: Vec<&str> =
                names.into_iter().filter(|name| !pass.seen.contains(*name)).collect();
            for names in names.chunks(JOBS) {
                self.prune_jobs(names).await?;
            }
            let has_more = page.last().is_some_and(|last| last.fence < oldest);
            self.progress.aged = self.progress.aged.take().filter(|_| has_more).map(|pass| {
                let mut seen = pass.seen;
                seen.extend(names.into_iter().map(str::to_owned));
                AgedPass { above: page.last().cloned(), seen }
            });
        }
        Ok(())
    }

    /// Removes what is beyond the limits of these jobs.
    async fn prune_jobs<'n>(&self, names: &[&'n str]) -> Result {
        let limits = self.pruning.limits;
        let per_job = limits.per_job.max(LAST_KEPT);
        let time = TimeSource::Fixed(self.now);
        let load = Load { fresh: true, ..Load::new("client", time, names) };
        let loaded = names.iter().zip(self.store.load(load).await?.records);
        // The active runs of a record that cannot be read are unknown: another time.
        let readable = |(name, loaded): (&&'n str, Result<Loaded<S::Version>>)| {
            Some((*name, loaded.ok()?.record.ok()?))
        };
        let records: Vec<(&str, Option<Record>)> = loaded.filter_map(readable).collect();
        let places: Vec<(&str, u64)> =
            records.iter().flat_map(|(name, _)| [(*name, LAST_KEPT), (*name, per_job)]).collect();
        let places = self.history.history_places(&places).await?;
        for ((name, record), places) in records.into_iter().zip(places.chunks(2)) {
            let &[last_kept, limit] = places else { continue };
            let (is_live, active) = record.map_or((false, Vec::new()), |record| {
                let runs = record.leases.iter().chain(&record.lost);
                (record.is_live(), runs.map(|lease| lease.fence).collect())
            });
            let job = JobView { is_live, active, last_kept, limit };
            self.prune_job(name, Removal::new(job, &limits, self.now)).await?;
        }
        Ok(())
    }

    async fn prune_job(&self, name: &str, mut removal: Removal) -> Result {
        let Some(mut below) = removal.below else { return Ok(()) };
        loop {
            let page = self.history.history_marks(name, below, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            below = last.fence;
            let cursor = |fence| HistoryCursor { fence, name: name.to_owned() };
            let removed = page.iter().filter(|mark| removal.removes(**mark));
            let removed: Vec<HistoryCursor> = removed.map(|mark| cursor(mark.fence)).collect();
            if !removed.is_empty() {
                self.history.remove_history(&removed).await?;
            }
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Counts all entries after a part of the total was appended, and removes the oldest beyond it.
    async fn prune_to_total(&mut self) -> Result {
        let total = self.pruning.total;
        loop {
            self.progress.total = match &self.progress.total {
                TotalProgress::Done => {
                    let all = locked(&self.pruning.appended).all.unwrap_or_default();
                    if self.progress.was_counted && all < (total / SLACK).max(1) {
                        return Ok(());
                    }
                    let count = self.history.count_history(None).await?;
                    self.progress.was_counted = true;
                    locked(&self.pruning.appended).all = Some(0);
                    TotalProgress::Counting(count)
                }
                TotalProgress::Counting(HistoryCount { entries, last: Some(last) }) => {
                    let more = self.history.count_history(Some(last)).await?;
                    let entries = entries + more.entries;
                    TotalProgress::Counting(HistoryCount { entries, last: more.last })
                }
                TotalProgress::Counting(HistoryCount { entries, last: None }) => {
                    match entries.saturating_sub(total) {
                        0 => TotalProgress::Done,
                        entries => TotalProgress::Removing(Excess {
                            entries,
                            above: None,
                            has_removed: false,
                            takes_any: false,
                        }),
                    }
                }
                TotalProgress::Removing(excess) => self.remove(excess.clone()).await?,
            };
        }
    }

    /// Removes from one page what is beyond the total.
    async fn remove(&self, excess: Excess) -> Result<TotalProgress> {
        let page = self.history.oldest_history(excess.above.as_ref(), PAGE).await?;
        let Some(last) = page.last().cloned() else {
            // The end of a round.
            let next = Excess {
                above: None,
                has_removed: false,
                takes_any: !excess.has_removed,
                ..excess
            };
            return Ok(match excess.has_removed || !excess.takes_any {
                true => TotalProgress::Removing(next),
                false => TotalProgress::Done,
            });
        };
        let mut last_kept = BTreeMap::new();
        if !excess.takes_any {
            let names: BTreeSet<&str> = page.iter().map(|entry| &*entry.name).collect();
            let places: Vec<(&str, u64)> = names.iter().map(|name| (*name, LAST_KEPT)).collect();
            last_kept =
                names.into_iter().zip(self.history.history_places(&places).await?).collect();
        }
        let is_removable = |entry: &&HistoryCursor| {
            let last_kept = last_kept.get(&*entry.name).copied().flatten();
            excess.takes_any || last_kept.is_some_and(|last_kept| entry.fence < last_kept)
        };
        let most = usize::try_from(excess.entries).unwrap_or(usize::MAX);
        let removed: Vec<HistoryCursor> =
            page.iter().filter(is_removable).take(most).cloned().collect();
        if !removed.is_empty() {
            self.history.remove_history(&removed).await?;
        }
        Ok(match excess.entries.saturating_sub(removed.len() as u64) {
            0 => TotalProgress::Done,
            entries => TotalProgress::Removing(Excess {
                entries,
                above: Some(last),
                has_removed: excess.has_removed || !removed.is_empty(),
                ..excess
            }),
        })
    }
}
