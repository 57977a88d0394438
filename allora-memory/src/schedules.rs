//! Stored schedules.

use crate::Memory;
use allora_core::{
    Error, Kind, Result,
    backend::{Change, Hint, NewSchedule, Now, Page, Schedules, State},
    record::{change, create, delete},
};
use async_trait::async_trait;

/// What history shows as the node of an operator's change.
const OPERATOR: &str = "operator";

#[async_trait]
impl Schedules for Memory {
    async fn add(&self, new: &[NewSchedule<'_>], now: Now) -> Result<Vec<Result<State>>> {
        let now = self.decides(now);
        let mut added = Vec::with_capacity(new.len());
        {
            let mut store = self.store();
            for new in new {
                let created =
                    store.with(new.name, OPERATOR, now, |record, at, _| create(record, new, at));
                let state = |()| store.state(new.name).ok_or_else(|| missing(new.name));
                added.push(created.and_then(state));
            }
        }
        let due = added.iter().flatten().filter_map(|state| state.due_at).min();
        self.tell(due.map(Hint::DueAt));
        Ok(added)
    }

    async fn get(&self, name: &str) -> Result<State> {
        self.store().state(name).ok_or_else(|| missing(name))
    }

    async fn list(&self, page: Page<'_>) -> Result<Vec<State>> {
        let store = self.store();
        let after = page.after.unwrap_or_default();
        let states = store
            .names_after(after)
            .filter(|name| name.starts_with(page.prefix))
            .filter_map(|name| store.state(name))
            .filter(|state| page.kind.is_none_or(|kind| state.kind == kind))
            .take(page.limit)
            .collect();
        Ok(states)
    }

    async fn kinds(&self) -> Result<Vec<String>> {
        Ok(self.store().kinds())
    }

    async fn modify(&self, name: &str, what: Change<'_>, now: Now) -> Result<State> {
        let state = {
            let mut store = self.store();
            let now = self.decides(now);
            store.with(name, OPERATOR, now, |record, at, ledger| {
                change(record, name, &what, at, ledger)
            })?;
            store.state(name).ok_or_else(|| missing(name))?
        };
        self.tell([Hint::Job(name.to_owned())].into_iter().chain(state.due_at.map(Hint::DueAt)));
        Ok(state)
    }

    async fn delete(&self, name: &str, now: Now) -> Result {
        let now = self.decides(now);
        self.store().with(name, OPERATOR, now, |record, at, _| delete(record, name, at))?;
        self.tell([Hint::Job(name.to_owned())]);
        Ok(())
    }
}

fn missing(name: &str) -> Error {
    Error::new(Kind::NotFound, format!("there is no job {name:?}"))
}
