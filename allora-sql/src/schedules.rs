//! Stored schedules: added, changed and removed, each in one transaction.

use crate::{
    Sql,
    store::{Slot, Store},
};
use allora_core::{
    Error, Kind, MAX_NAME, Result,
    backend::{Change, NewSchedule, Now, Page, Schedules, State},
    record::{At, Ledger, Record, change, create, delete},
};
use async_trait::async_trait;

/// What history shows as the node of an operator's change.
const OPERATOR: &str = "operator";

#[async_trait]
impl Schedules for Sql {
    async fn add(&self, new: NewSchedule<'_>, now: Now) -> Result<State> {
        allora_core::check_name(new.name)?;
        let store = &*self.store;
        let state = store
            .one("add", new.name, now, |slot, at, _| match slot {
                Slot::Sound(record) => {
                    create(record, &new, at)?;
                    shown(new.name, record)
                }
                Slot::Parked { reason, .. } => Err(unreadable(new.name, reason)),
            })
            .await?;
        if let Some(due_at) = state.due_at {
            store.tell(&crate::watch::due(due_at)).await;
        }
        Ok(state)
    }

    async fn get(&self, name: &str) -> Result<State> {
        if name.len() > MAX_NAME {
            return Err(missing(name));
        }
        let (_, rows) = self.store.look("get", self.store.dialect.rows(&[name])).await?;
        rows.first().and_then(|row| row.state()).ok_or_else(|| missing(name))
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<State>> {
        let (_, rows) = self.store.look("list", self.store.dialect.list_jobs(&page)).await?;
        Ok(rows.iter().filter_map(|row| row.state()).collect())
    }

    async fn modify(&self, name: &str, what: Change<'_>, now: Now) -> Result<State> {
        if name.len() > MAX_NAME {
            return Err(missing(name));
        }
        let store = &*self.store;
        let state = store
            .one("modify", name, now, |slot, at, ledger| match slot {
                Slot::Sound(record) => {
                    change(record, name, &what, at, ledger)?;
                    shown(name, record)
                }
                Slot::Parked { reason, .. } => Err(unreadable(name, reason)),
            })
            .await?;
        store.tell(&crate::watch::job(name)).await;
        Ok(state)
    }

    async fn delete(&self, name: &str, now: Now) -> Result {
        if name.len() > MAX_NAME {
            return Err(missing(name));
        }
        let store = &*self.store;
        let at = store
            .one("delete", name, now, |slot, at, _| {
                match slot {
                    Slot::Sound(record) => delete(record, name, at)?,
                    Slot::Parked { instead, .. } => bury(instead, name, at)?,
                }
                Ok(at.now)
            })
            .await?;
        store.tell(&crate::watch::job(name)).await;
        // Deleting is what makes tombstones, and so the time to clear old ones away.
        store.forget("delete", at).await
    }
}

impl Store {
    /// One record in one transaction.
    async fn one<T: Send>(
        &self,
        op: &'static str,
        name: &str,
        now: Now,
        work: impl Fn(Slot<'_>, At<'_>, &mut Ledger) -> Result<T> + Send + Sync,
    ) -> Result<T> {
        let work = |_, slot: Slot<'_>, at: At<'_>, ledger: &mut Ledger| work(slot, at, ledger);
        let done = self.with(op, &[name], OPERATOR, now, work).await?;
        done.answers.into_iter().next().unwrap_or_else(|| Err(missing(name)))
    }
}

/// A tombstone in the place of a record that cannot be read.
fn bury(instead: &mut Option<Record>, name: &str, at: At<'_>) -> Result {
    create(instead, &NewSchedule::new(name, "parked", "", None), at)?;
    delete(instead, name, at)
}

fn shown(name: &str, record: &Option<Record>) -> Result<State> {
    record.as_ref().map(|record| record.state(name)).ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Error {
    Error::new(Kind::NotFound, format!("there is no job {name:?}"))
}

fn unreadable(name: &str, reason: &str) -> Error {
    let parked = format!("{name:?} is parked: {reason}; delete it and add it again");
    Error::new(Kind::Other, parked)
}
