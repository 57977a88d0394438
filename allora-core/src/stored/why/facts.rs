//! The records that are read for an answer.

use crate::{
    ConcurrencyKey,
    backend::{After, HistoryCursor, HistoryEntry, HistoryQuery, JobState},
    error::{ErrorKind, Result},
    job::{after_in, is_code},
    record::ChangeAction,
    registry::{Fleet, NodeInfo, name_hash},
    stored::{ChangeFilter, Definition, Schedules},
    time::{Time, saturating_add},
};
use chrono::DateTime;
use std::time::Duration;

/// The records about a job, at one time.
pub(super) struct Facts {
    /// The store's time.
    pub(super) now: Time,
    pub(super) state: JobState,
    /// The job was deleted, and only the history has it: the state is empty.
    pub(super) is_gone: bool,
    /// The definition with its calendars, or the reason why it cannot be read; `None` for a schedule
    /// that only its code knows.
    pub(super) definition: Option<Result<Definition, String>>,
    pub(super) fleet: Fleet,
    pub(super) key: Option<KeyFact>,
    /// The job after which it runs, and that job's state, if it exists.
    pub(super) before: Option<(After, Option<JobState>)>,
    /// The history around the time; `None` if the store keeps none.
    pub(super) past: Option<Past>,
}

/// The concurrency key of the job.
pub(super) struct KeyFact {
    pub(super) key: ConcurrencyKey,
    /// `None` if no job has ever held it.
    pub(super) record: Option<JobState>,
}

/// The part of a job's history that is about one time, the newest entry first.
#[derive(Default)]
pub(super) struct Past {
    pub(super) entries: Vec<HistoryEntry>,
    /// The scheduled time of the oldest entry of all, if the history begins among these.
    pub(super) begins: Option<Time>,
    /// The history has no successes.
    pub(super) lacks_successes: bool,
}

/// An occurrence has no entry that is older than itself, and usually all of them soon after: these
/// long after it, the history is looked at first, the shortest time first.
const SOON: [Duration; 4] = [
    Duration::from_secs(10),
    Duration::from_secs(120),
    Duration::from_secs(10 * 60),
    Duration::from_secs(2 * 60 * 60),
];

/// The number of entries that are read each time.
const FEW: usize = 200;

/// The number of the newest entries that are read if none of these has the end of the occurrence.
const MANY: usize = 2_000;

impl Facts {
    /// The progress of the run with this fence, as its node last wrote it.
    pub(super) fn progress(&self, fence: i64) -> Option<&str> {
        let mut runs = self.fleet.nodes.iter().flat_map(|node| &node.progress);
        let run = runs.find(|run| run.fence == fence && run.name == self.state.name);
        run.map(|run| &*run.text)
    }

    pub(super) async fn read(schedules: &Schedules, name: &str, at: Option<Time>) -> Result<Self> {
        let (state, is_gone) = match schedules.get(name).await {
            Ok(state) => (state, None),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                (JobState::empty(name), Some(error))
            }
            Err(error) => return Err(error),
        };
        let past = match (at, &is_gone) {
            (Some(at), _) => Past::read(schedules, &state, at).await?,
            (None, Some(_)) => Past::newest(schedules, &state).await?,
            (None, None) => None,
        };
        let is_gone = match is_gone {
            Some(error) if past.as_ref().is_none_or(|past| past.entries.is_empty()) => {
                return Err(error);
            }
            gone => gone.is_some(),
        };
        let definition = match state.definition.is_empty() || is_code(&state.definition) {
            true => None,
            false => match schedules.definition(&state).await {
                Err(error) if error.kind() != ErrorKind::Invalid => return Err(error),
                definition => Some(definition.map_err(|error| error.to_string())),
            },
        };
        let key = definition.as_ref().and_then(|one| one.as_ref().ok());
        let key = match key.and_then(|one| one.settings().concurrency_key.clone()) {
            None => None,
            Some(key) => match schedules.get(&key.record()).await {
                Ok(record) => Some(KeyFact { key, record: Some(record) }),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    Some(KeyFact { key, record: None })
                }
                Err(error) => return Err(error),
            },
        };
        let before = match after_in(&state.definition) {
            None => None,
            Some(after) => match schedules.get(&after.job).await {
                Ok(before) => Some((after, Some(before))),
                Err(error) if error.kind() == ErrorKind::NotFound => Some((after, None)),
                Err(error) => return Err(error),
            },
        };
        let (fleet, now) = schedules.fleet_at().await?;
        Ok(Self { now, state, is_gone, definition, fleet, key, before, past })
    }

    /// The definition, if it can be read.
    pub(super) fn readable(&self) -> Option<&Definition> {
        self.definition.as_ref()?.as_ref().ok()
    }

    pub(super) fn name(&self) -> &str {
        &self.state.name
    }

    /// `true` if a node is live: without one, it is not known which jobs have a use.
    pub(super) fn has_live_nodes(&self) -> bool {
        self.fleet.live().next().is_some()
    }

    /// The live nodes that have the job, even if they do not run it.
    pub(super) fn having(&self) -> impl Iterator<Item = &NodeInfo> {
        let (name, kind) = (self.name(), &self.state.kind);
        self.fleet.live().filter(move |node| match kind.is_empty() {
            true => node.may_declare(name),
            false => node.handles(kind),
        })
    }

    /// `true` if this node does not run the job, because of its definition in the store.
    pub(super) fn is_left_by(&self, node: &NodeInfo) -> bool {
        node.left_jobs.contains(&name_hash(self.name()))
    }

    /// The live nodes that can run the job.
    pub(super) fn able(&self) -> Vec<&NodeInfo> {
        let keeps = |node: &NodeInfo| self.state.kind.is_empty() && node.keeps(self.name());
        self.having().filter(|node| !keeps(node) && !self.is_left_by(node)).collect()
    }

    /// `true` if the node of this id lives, or stops and waits for its runs; without any live node,
    /// unless its record says that it is dead.
    pub(super) fn lives(&self, id: &str) -> bool {
        match self.fleet.nodes.iter().find(|node| node.node == id) {
            Some(node) => !node.is_dead(),
            None => !self.has_live_nodes(),
        }
    }

    /// The entries about the time.
    pub(super) fn entries(&self) -> &[HistoryEntry] {
        self.past.as_ref().map_or(&[], |past| &past.entries)
    }
}

impl Past {
    /// The entries about one time.
    async fn read(schedules: &Schedules, state: &JobState, at: Time) -> Result<Option<Self>> {
        let limits = schedules.history_limits();
        let lacks_successes = limits.is_some_and(|limits| !limits.successes);
        let mut past = Self { lacks_successes, ..Self::default() };
        let soon = SOON.map(|soon| (Some(saturating_add(at, soon)), FEW));
        for (before, limit) in soon.into_iter().chain([(None, MANY)]) {
            let Some(page) = page(schedules, state, before, limit).await? else { return Ok(None) };
            if page.len() < limit {
                past.begins = page.last().map(|oldest| oldest.occurrence.scheduled_at);
            }
            past.entries.extend(page);
            if past.tells_end(at) {
                break;
            }
        }
        if past.has_failure(at) {
            past.entries.extend(marks(schedules, state, at).await?);
        }
        past.entries = state.with_active_runs(past.entries);
        past.entries.dedup_by_key(|entry| entry.fence);
        Ok(Some(past))
    }

    /// The newest entry of a job.
    async fn newest(schedules: &Schedules, state: &JobState) -> Result<Option<Self>> {
        let entries = page(schedules, state, None, 1).await?;
        Ok(entries.map(|entries| Self { entries, ..Self::default() }))
    }

    /// `true` if the occurrence of this time has failed, was lost, or was missed.
    fn has_failure(&self, at: Time) -> bool {
        self.entries.iter().filter(|entry| entry.outcome.is_failure()).any(|entry| {
            let first = entry.occurrence.scheduled_at;
            (first..=entry.last.unwrap_or(first)).contains(&at)
        })
    }

    fn tells_end(&self, at: Time) -> bool {
        self.entries.iter().any(|entry| entry.occurrence.scheduled_at == at && entry.is_final())
    }
}

/// The entries by which operators have marked an occurrence of this time as succeeded, at any time since. The
/// record of changes has the place of each: its sequence was drawn right after the fence of the entry. A mark
/// without an author is found among the newest entries only.
async fn marks(schedules: &Schedules, state: &JobState, at: Time) -> Result<Vec<HistoryEntry>> {
    let is_mark = |entry: &HistoryEntry| entry.is_mark() && entry.occurrence.scheduled_at == at;
    let mut entries = page(schedules, state, None, MANY).await?.unwrap_or_default();
    entries.retain(is_mark);
    if !entries.is_empty() {
        return Ok(entries);
    }
    let filter = ChangeFilter::default().name(&state.name).actions(&[ChangeAction::Mark]).from(at);
    let changes = match schedules.changes(filter, None, FEW).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => Vec::new(),
        page => page?.changes,
    };
    for change in changes.iter().filter(|change| change.is_about(at)) {
        let found = page_below(schedules, state, Some(change.sequence), 1).await?;
        entries.extend(found.into_iter().flatten().filter(is_mark));
    }
    Ok(entries)
}

/// The newest entries of a job that were drawn before this time; `None` without a history.
async fn page(
    schedules: &Schedules,
    state: &JobState,
    before: Option<Time>,
    limit: usize,
) -> Result<Option<Vec<HistoryEntry>>> {
    page_below(schedules, state, before.map(|before| before.timestamp_micros()), limit).await
}

/// The newest entries of a job below this fence; `None` without a history.
async fn page_below(
    schedules: &Schedules,
    state: &JobState,
    fence: Option<i64>,
    limit: usize,
) -> Result<Option<Vec<HistoryEntry>>> {
    let Some(history) = schedules.history_of_runs() else { return Ok(None) };
    let before = fence.map(|fence| HistoryCursor { fence, name: state.name.clone() });
    let mut query = HistoryQuery::new(limit).name(&state.name);
    query.before = before.as_ref();
    schedules.within("history", history.entries(query)).await.map(Some)
}

/// The time at which an entry was begun: fences are drawn from the store's clock.
pub(super) fn drawn(entry: &HistoryEntry) -> Option<Time> {
    DateTime::from_timestamp_micros(entry.fence)
}
