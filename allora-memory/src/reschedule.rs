//! Plans applied under one lock.

use crate::{Memory, store::Store};
use allora_core::{
    Backend, Result, Time,
    backend::{Find, History, Leases, Reschedule, Rescheduled, Schedules, State, Watch},
    record::step,
};
use async_trait::async_trait;

#[async_trait]
impl Backend for Memory {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        let now = self.decides(request.now);
        let mut store = self.store();
        store.forget(now);
        let mut answers = Vec::with_capacity(request.plans.len());
        for plan in request.plans {
            answers.push(store.with(plan.name, request.node, now, |record, at, ledger| {
                step(record, plan, at, ledger)
            }));
        }
        let (found, next_due) = match request.find {
            Some(find) => found(&store, find),
            None => (Vec::new(), None),
        };
        Ok(Rescheduled::new(now, answers).found(found, next_due))
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }

    fn schedules(&self) -> Option<&dyn Schedules> {
        Some(self)
    }

    fn history(&self) -> Option<&dyn History> {
        self.store().keeps_history().then_some(self as _)
    }

    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

/// The stored schedules looked for, the earliest first, and when the next one wants attention.
fn found(store: &Store, find: Find<'_>) -> (Vec<State>, Option<Time>) {
    let mut due: Vec<(Time, &str)> = Vec::new();
    for kind in find.kinds {
        due.extend(store.due(kind).skip(find.skip).take(find.limit.saturating_add(1)));
    }
    due.sort_unstable();
    due.dedup();
    let ready = due.iter().take(find.limit).take_while(|(at, _)| *at < find.until).count();
    let next_due = due.get(ready).map(|(at, _)| *at);
    (due[..ready].iter().filter_map(|(_, name)| store.state(name)).collect(), next_due)
}
