//! Queries derived from a scan of the names, for stores without an index.

use super::{
    Load, RecordStore,
    flags::{self, shown},
    history,
};
use crate::{
    backend::{
        Backend, Batch, Claim, ClaimDue, Claimed, ClaimedDue, Counts, Due, DueQuery, Flag, Flagged,
        History, HistoryEntry, HistoryLimits, HistoryQuery, JobState, Lease, OnExpiry, Operation,
        Page, Queries, Reply, TimeSource, scan_counts, scan_flagged,
    },
    error::Result,
    name::{AFTER_HOURS, HOURS, is_internal},
    record::{Change, Record, due_claim, missing},
    time::{Time, saturating_add, whole_millis},
};
use async_trait::async_trait;
use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

/// The number of records that one scan reads.
const CHUNK: usize = 1_000;

#[async_trait]
impl<S: RecordStore> Queries for S {
    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        RecordStore::find_due(self, query, time).await
    }

    fn claims_due(&self) -> bool {
        RecordStore::claims_due(self)
    }

    async fn claim_due(&self, query: ClaimDue<'_>, time: TimeSource) -> Result<ClaimedDue> {
        RecordStore::claim_due(self, query, time).await
    }

    async fn get(&self, name: &str) -> Result<JobState> {
        let names = [name];
        let time = TimeSource::Fixed(Time::UNIX_EPOCH);
        let load = Load { fresh: true, ..Load::new("client", time, &names) };
        let loaded = self.load(load).await?.records.pop().transpose()?;
        let record = loaded.map(|loaded| loaded.record.map_err(|unreadable| unreadable.reason));
        record.and_then(|record| shown(name, record.transpose()?)).ok_or_else(|| missing(name))
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<JobState>> {
        // The scheduler's own records are no jobs. They are listed for a prefix that asks for them.
        let shows_internal = is_internal(page.prefix);
        let mut listed = Vec::new();
        let mut after = page.after.map(str::to_owned);
        loop {
            let limit = page.limit - listed.len();
            let part = Page { after: after.as_deref(), limit, ..page };
            let records = RecordStore::list(self, part).await?;
            let (count, before) = (records.len(), listed.len());
            let last = records.last().map(|(name, _)| name.clone());
            let records =
                records.into_iter().filter(|(name, _)| shows_internal || !is_internal(name));
            listed.extend(records.filter_map(|(name, record)| shown(&name, record)));
            if count < limit || listed.len() - before == count {
                return Ok(listed);
            }
            // There may be many of these: each job has one for each day.
            let is_hours = |last: &String| !shows_internal && last.starts_with(HOURS);
            after = last.map(|last| if is_hours(&last) { AFTER_HOURS.to_owned() } else { last });
        }
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        RecordStore::kinds(self).await
    }

    async fn changes(&self, query: HistoryQuery<'_>) -> Result<Vec<Change>> {
        match self.change_store() {
            Some(changes) => changes.change_entries(query).await,
            None => kept_changes(self, query).await,
        }
    }

    async fn flagged(&self, flag: Flag<'_>, page: Page<'_>, time: TimeSource) -> Result<Flagged> {
        match self.flag_store() {
            Some(index) => flags::flagged(self, index, flag, page, time).await,
            None => scan_flagged(self, flag, page, time).await,
        }
    }

    async fn counts(&self, prefix: &str, time: TimeSource) -> Result<Counts> {
        match self.flag_store() {
            Some(index) => flags::counts(self, index, prefix, time).await,
            None => scan_counts(self, prefix, time).await,
        }
    }
}

/// The changes that the records themselves keep, the newest first.
async fn kept_changes<S: RecordStore>(store: &S, query: HistoryQuery<'_>) -> Result<Vec<Change>> {
    let mut found = Vec::new();
    let mut keep = |record: Record| {
        if record.changes.is_empty() {
            return;
        }
        found.extend(record.changes);
        found.retain(|change| query.before.is_none_or(|before| change.cursor() < *before));
        found.sort_by_key(|change| Reverse(change.cursor()));
        found.truncate(query.limit);
    };
    match query.name {
        // Of a deleted job, too.
        Some(name) => {
            let names = [name];
            let time = TimeSource::Fixed(Time::UNIX_EPOCH);
            let load = Load { fresh: true, ..Load::new("client", time, &names) };
            let loaded = store.load(load).await?.records.pop().transpose()?;
            loaded.and_then(|loaded| loaded.record.ok().flatten()).into_iter().for_each(keep);
        }
        None => each(store, "", |_, record| record.into_iter().for_each(&mut keep)).await?,
    }
    Ok(found)
}

#[async_trait]
impl<S: RecordStore> History for S {
    async fn entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        match self.history_store() {
            Some(history) => match query.owner {
                Some(owner) => {
                    let names = names_of(self, owner, query).await?;
                    history::page_of(history, query, names).await
                }
                None => history::page(history, query, |_| true).await,
            },
            None => Ok(Vec::new()),
        }
    }

    fn limits(&self) -> HistoryLimits {
        self.history_store().map_or_else(|| 0.into(), |history| history.pruning().limits())
    }
}

/// The names of the stored schedules of this owner that a page of the history may be about.
async fn names_of<S: RecordStore>(
    store: &S,
    owner: &str,
    query: HistoryQuery<'_>,
) -> Result<BTreeSet<String>> {
    let time = TimeSource::Fixed(Time::UNIX_EPOCH);
    let (mut names, mut after) = (BTreeSet::new(), None::<String>);
    loop {
        let mut page = Page::first(CHUNK).prefix(query.prefix);
        page.after = after.as_deref();
        let found = Queries::flagged(store, Flag::Owner(owner), page, time).await?;
        let found_names = found.found.into_iter().map(|state| state.name);
        names.extend(found_names.filter(|name| query.name.is_none_or(|one| name == one)));
        after = found.next;
        if after.is_none() {
            return Ok(names);
        }
    }
}

/// The records that want attention. Those that cannot be read come first, once.
pub(super) async fn find_due<S: RecordStore + ?Sized>(
    store: &S,
    query: DueQuery<'_>,
    time: TimeSource,
) -> Result<Due> {
    let now = store.now(time).await?;
    let mut due: Vec<(Time, String, Record)> = Vec::new();
    each(store, "", |name, record| {
        let Ok(record) = record else { return };
        if let Some(at) = record.index_at().filter(|_| query.kinds.contains(&&*record.kind)) {
            due.push((at, name, record));
        }
    })
    .await?;
    due.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let mut passed: Vec<(&str, usize)> = query.kinds.iter().map(|kind| (*kind, 0)).collect();
    due.retain(|(_, _, record)| {
        let Some((_, seen)) = passed.iter_mut().find(|(kind, _)| *kind == record.kind) else {
            return false;
        };
        *seen += 1;
        *seen > query.skip
    });
    let ready = due.iter().take(query.limit).take_while(|(at, ..)| *at < query.until).count();
    let next_due = due.get(ready).map(|(at, ..)| *at);
    due.truncate(ready);
    let found = due.into_iter().map(|(_, name, record)| record.state(&name)).collect();
    Ok(Due::new(now, found, next_due))
}

/// Claims by operations what a search finds; or finds what the same query has claimed.
pub(super) async fn claim_due<S: RecordStore>(
    store: &S,
    query: ClaimDue<'_>,
    time: TimeSource,
) -> Result<ClaimedDue> {
    let now = store.now(time).await?;
    let mut claimed = Vec::new();
    if query.is_repeated {
        each(store, "", |name, record| {
            let Ok(record) = record else { return };
            let is_of_kind = record.is_live() && query.kinds.contains(&&*record.kind);
            let is_it = |lease: &&Lease| is_of_kind && record.is_claim(lease, query.claim_id);
            if let Some(lease) = record.leases.iter().find(is_it) {
                claimed.push((record.state(&name), record.claimed(lease)));
            }
        })
        .await?;
        return Ok(ClaimedDue::new(now, claimed));
    }
    // Up to and including now.
    let until = saturating_add(now, Duration::from_millis(1));
    let mut find = DueQuery::new(query.kinds, until, query.limit).node(query.node);
    while claimed.len() < query.limit {
        let found = RecordStore::find_due(store, find, time).await?.found;
        let is_last = found.len() < find.limit;
        let claims = found.iter().filter_map(|state| {
            let claim = due_claim(state, query.claim_id)?;
            Some((state, Claim { not_after: query.not_after, ..claim }))
        });
        let claims: Vec<_> = claims.take(query.limit - claimed.len()).collect();
        let operations: Vec<Operation<'_>> = claims
            .iter()
            .map(|(state, claim)| Operation::claim(&state.name, claim.clone()))
            .collect();
        let applied = store.reschedule(Batch::new(query.node, time, &operations)).await?;
        let before = claimed.len();
        for ((state, claim), reply) in claims.into_iter().zip(applied.replies) {
            if let Ok(Reply::Claimed(granted)) = reply {
                let mut state = state.clone();
                started(&mut state, query.node, &claim, &granted, whole_millis(applied.now));
                claimed.push((state, granted));
            }
        }
        if is_last {
            break;
        }
        if claimed.len() == before {
            // A page of records that cannot be claimed so must not hide those behind it.
            find.limit *= 2;
        }
    }
    Ok(ClaimedDue::new(now, claimed))
}

/// Applies to a state what the claim of its head has changed.
fn started(state: &mut JobState, node: &str, claim: &Claim, claimed: &Claimed, now: Time) {
    let due_at = state.due_at.unwrap_or(now);
    let Claimed { fence, until, occurrence, .. } = claimed;
    let lease =
        Lease::new(node, claim.claim_id, *fence, occurrence.clone(), *until, OnExpiry::Retry);
    let lease = lease.attempt(claimed.attempt).claimed_at(whole_millis(due_at), now);
    (state.due_at, state.attempts) = (Some(*until), claimed.attempt);
    (state.fence, state.last_started) = (*fence, Some(occurrence.scheduled_at));
    state.counters.started += 1;
    state.leases.push(lease);
}

pub(super) async fn list<S: RecordStore + ?Sized>(
    store: &S,
    page: Page<'_>,
) -> Result<Vec<(String, Result<Record, String>)>> {
    let mut listed = Vec::new();
    let mut after = page.after.map(str::to_owned);
    while listed.len() < page.limit {
        let scanned = store.scan(page.prefix, after.as_deref(), CHUNK).await?;
        let Some((last, _)) = scanned.last() else { break };
        after = Some(last.clone());
        listed.extend(scanned.into_iter().filter(|(_, record)| match record {
            Ok(record) => record.is_live() && page.kind.is_none_or(|kind| record.kind == kind),
            // Its kind is unknown.
            Err(_) => page.kind.is_none(),
        }));
    }
    listed.truncate(page.limit);
    Ok(listed)
}

pub(super) async fn kinds<S: RecordStore + ?Sized>(store: &S) -> Result<Vec<String>> {
    let mut kinds = BTreeSet::new();
    each(store, "", |_, record| {
        let wanted = record.ok().filter(|record| record.index_at().is_some());
        kinds.extend(wanted.map(|record| record.kind).filter(|kind| !kind.is_empty()));
    })
    .await?;
    Ok(kinds.into_iter().collect())
}

/// Calls `visit` with every record whose name begins with `prefix`.
async fn each<S: RecordStore + ?Sized>(
    store: &S,
    prefix: &str,
    mut visit: impl FnMut(String, Result<Record, String>) + Send,
) -> Result {
    let mut after = None;
    loop {
        let scanned = store.scan(prefix, after.as_deref(), CHUNK).await?;
        let Some((last, _)) = scanned.last() else { return Ok(()) };
        after = Some(last.clone());
        scanned.into_iter().for_each(|(name, record)| visit(name, record));
    }
}
