//! One node's calls to a store, each at a given time, as `trace` and `parity` make them.

use crate::calls;
use allora_core::{
    Backend, Result, Schedule, Time,
    backend::{
        Action, Claim, Claimed, Completion, Cursor, DueQuery, Edit, JobState, NewSchedule, NextRun,
        Operation, Replan, Reply, RetryCause, TimeSource,
    },
    cron,
};
use allora_sql::Sql;
use std::time::Duration;

/// 2011-12-14 00:00:00 UTC, as in the golden trace.
const BEGINNING: i64 = 1_323_820_800;

/// The time so many seconds after that.
pub(crate) fn t(seconds: i64) -> Time {
    allora_core::time::from_millis((BEGINNING + seconds) * 1_000).unwrap()
}

/// The same time in the trace's numbers.
pub(crate) fn seconds(at: Time) -> i64 {
    at.timestamp() - BEGINNING
}

/// The first match of a cron expression at or after a time.
pub(crate) fn first(text: &str, from: Time) -> NextRun {
    following(text, from - chrono::TimeDelta::milliseconds(1))
}

/// The first match strictly after a time.
pub(crate) fn following(text: &str, after: Time) -> NextRun {
    cron(text).unwrap().next_at(after).unwrap().into()
}

/// One node.
pub(crate) struct Desk {
    pub(crate) store: Sql,
    node: String,
}

impl Desk {
    pub(crate) fn new(store: &Sql, node: &str) -> Self {
        Self { store: store.clone(), node: node.into() }
    }

    pub(crate) async fn add(&self, name: &str, text: &str, from: Time) -> Result<JobState> {
        let new = NewSchedule::new("t", text, Some(first(text, from)));
        self.create(from, name, new).await
    }

    pub(crate) async fn create(
        &self,
        now: Time,
        name: &str,
        new: NewSchedule<'_>,
    ) -> Result<JobState> {
        calls::create(&self.store, name, new, TimeSource::Fixed(now)).await
    }

    pub(crate) async fn get(&self, name: &str) -> JobState {
        calls::get(&self.store, name).await.unwrap()
    }

    async fn act(&self, now: Time, name: &str, action: Action<'_>) -> Reply {
        let operation = Operation::new(name, action);
        calls::send(&self.store, &self.node, TimeSource::Fixed(now), operation).await.unwrap()
    }

    /// Claims the job's head, if it is due, with a lease of so many seconds.
    pub(crate) async fn poll(&self, now: Time, name: &str, lease: u64) -> Option<Claimed> {
        let seen = self.get(name).await;
        let mut claim_id = [0; 16];
        getrandom::fill(&mut claim_id).unwrap();
        let claim_id = u128::from_le_bytes(claim_id);
        let lease = Duration::from_secs(lease);
        let claim = Claim::at_least_once(claim_id, seen.fence, seen.head.clone()?, lease);
        self.act(now, name, Action::Claim(claim)).await.claimed()
    }

    /// The names of the due jobs, the earliest first.
    pub(crate) async fn due(&self, now: Time, limit: usize) -> Vec<String> {
        let query = DueQuery::new(&["t"], now, limit);
        let queries = self.store.queries().unwrap();
        let found = queries.find_due(query, TimeSource::Fixed(now)).await.unwrap().found;
        found.into_iter().map(|state| state.name).collect()
    }

    pub(crate) async fn extend(&self, now: Time, name: &str, run: &Claimed, lease: u64) -> Reply {
        let duration = Duration::from_secs(lease);
        self.act(now, name, Action::Extend { fence: run.fence, duration }).await
    }

    /// Completes a run; the cursor goes to the first match after the run's own time.
    pub(crate) async fn complete(&self, now: Time, name: &str, run: &Claimed, text: &str) -> Reply {
        let then = Cursor::To(Some(following(text, run.occurrence.scheduled_at)));
        let completion = Completion::Succeeded;
        self.act(now, name, Action::Complete { fence: run.fence, then, completion }).await
    }

    pub(crate) async fn retry(&self, now: Time, name: &str, run: &Claimed, wait: i64) -> Reply {
        let not_before = now + chrono::TimeDelta::seconds(wait);
        let cause = RetryCause::Failed("boom");
        self.act(now, name, Action::Retry { fence: run.fence, not_before, cause }).await
    }

    pub(crate) async fn release(&self, now: Time, name: &str, run: &Claimed) -> Reply {
        self.act(now, name, Action::Release { fence: run.fence }).await
    }

    /// Another definition; the cursor goes to its first match at or after now.
    pub(crate) async fn edit(&self, now: Time, name: &str, text: &str) -> Result<JobState> {
        let seen = self.get(name).await;
        let mut edit = Edit::of(seen.generation);
        let plan = Replan::new(seen.next, Some(first(text, now)));
        edit.definition = Some((text, plan));
        calls::modify(&self.store, name, edit, TimeSource::Fixed(now)).await
    }
}
