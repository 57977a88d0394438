//! Things that jobs share: concurrency keys and calendars.

use super::Reader;
use allora_core::{
    ConcurrencyKey, Error, ErrorKind, KeyHolder, Result, backend::JobState, schedule::Calendar,
    stored::Filter,
};

impl Reader {
    /// The concurrency keys after this one, each with its record, and the key behind which the next page begins. With
    /// a limit, those that jobs of the reader hold or wait for, with these jobs alone.
    pub(crate) async fn keys(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<(String, JobState)>, Option<String>)> {
        let record = |key: &str| ConcurrencyKey::new(key, 1).record().to_string();
        let (prefix, mut after) = (record(""), after.map(record));
        let key = |state: &JobState| state.name[prefix.len()..].to_owned();
        let mut own = Vec::new();
        loop {
            let filter = Filter::default().prefix(&prefix);
            let records = self.schedules.list(filter, after.as_deref(), limit).await?;
            let is_last = records.len() < limit;
            after = records.last().map(|last| last.name.clone());
            let shown = |state: JobState| Some((key(&state), self.shown_key(state)?));
            own.extend(records.into_iter().filter_map(shown));
            if is_last || own.len() >= limit {
                return Ok(first(own, limit));
            }
        }
    }

    /// The record of a concurrency key, as of [`keys`](Self::keys).
    pub(crate) async fn key(&self, key: &str) -> Result<JobState> {
        let record = self.schedules.get(&ConcurrencyKey::new(key, 1).record()).await;
        let none = || {
            let text = format!("no job holds the concurrency key {key:?}, or waits for it");
            Error::new(ErrorKind::NotFound, text)
        };
        match record {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(none()),
            record => self.shown_key(record?).ok_or_else(none),
        }
    }

    /// `None` if the reader may not see any of its jobs.
    fn shown_key(&self, mut record: JobState) -> Option<JobState> {
        if self.access.is_limited() {
            let may_see = |job: &str| self.may_name_any_kind(job);
            record.leases.retain(|lease| may_see(&KeyHolder::of(lease).job));
            record.waiters.retain(|waiter| may_see(&waiter.job));
            if record.leases.is_empty() && record.waiters.is_empty() {
                return None;
            }
        }
        Some(record)
    }

    /// The calendars after this one, and the one behind which the next page begins.
    pub(crate) async fn calendars(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<(String, Result<Calendar>)>, Option<String>)> {
        let (mut own, mut after) = (Vec::new(), after.map(str::to_owned));
        loop {
            let calendars = self.schedules.calendars(after.as_deref(), limit).await?;
            let is_last = calendars.len() < limit;
            after = calendars.last().map(|(name, _)| name.clone());
            own.extend(calendars.into_iter().filter(|(name, _)| self.access.may_name(name)));
            if is_last || own.len() >= limit {
                return Ok(first(own, limit));
            }
        }
    }

    pub(crate) async fn calendar(&self, name: &str) -> Result<Calendar> {
        self.schedules.calendar(name).await
    }

    /// The jobs of the reader that use a calendar, the first `limit`.
    pub(crate) async fn calendar_users(&self, name: &str, limit: usize) -> Result<Vec<String>> {
        let limit = if self.access.is_limited() { usize::MAX } else { limit };
        let mut users = self.schedules.calendar_users(name, limit).await?;
        users.retain(|user| self.access.may_name(user));
        Ok(users)
    }
}

/// The first of these, and the name behind which the others begin: one of the reader's, since it stands in a link.
fn first<T>(mut own: Vec<(String, T)>, limit: usize) -> (Vec<(String, T)>, Option<String>) {
    let is_full = own.len() >= limit;
    own.truncate(limit);
    let next = own.last().filter(|_| is_full).map(|(name, _)| name.clone());
    (own, next)
}
