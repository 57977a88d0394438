//! A backend that is right but for one defect: the reference, with one function replaced.

use allora_conformance::{Fixture, reference::Plain};
use allora_core::{
    Backend, Result,
    backend::{
        Answer, Change, Ending, Find, Hint, History, Leases, NewSchedule, Now, Page, Past, Plan,
        Reschedule, Rescheduled, Schedules, Settle, Settled, State, Watch,
    },
    record::{At, Ledger, Record, change, create, delete, settle, step},
};
use async_trait::async_trait;
use futures::{StreamExt, channel::mpsc, stream::BoxStream};
use std::{
    fmt,
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard},
};

/// What is wrong: each defect replaces one of these functions.
pub(crate) trait Defect: Send + Sync + 'static {
    fn key(name: &str) -> String {
        name.to_owned()
    }
    fn step(slot: &mut Option<Record>, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        step(slot, plan, at, ledger)
    }
    fn settle(
        slot: &mut Option<Record>,
        ending: &Ending<'_>,
        at: At<'_>,
        ledger: &mut Ledger,
    ) -> Settled {
        settle(slot, ending, at, ledger)
    }
    fn create(slot: &mut Option<Record>, new: &NewSchedule<'_>, at: At<'_>) -> Result {
        create(slot, new, at)
    }
    fn change(
        slot: &mut Option<Record>,
        name: &str,
        what: &Change<'_>,
        at: At<'_>,
        ledger: &mut Ledger,
    ) -> Result {
        change(slot, name, what, at, ledger)
    }
    fn delete(slot: &mut Option<Record>, name: &str, at: At<'_>) -> Result {
        delete(slot, name, at)
    }
    fn answers(answers: Vec<Answer>) -> Vec<Answer> {
        answers
    }
    fn listed(states: Vec<State>) -> Vec<State> {
        states
    }
    fn added(added: Vec<Result<State>>) -> Vec<Result<State>> {
        added
    }
    fn kinds(kinds: Vec<String>) -> Vec<String> {
        kinds
    }
    fn find(find: Find<'_>) -> Find<'_> {
        find
    }
    fn past(past: Vec<Past>) -> Vec<Past> {
        past
    }
    fn tells() -> bool {
        true
    }
    fn is_atomic() -> bool {
        true
    }
}

#[derive(Default)]
struct Shared {
    plain: Mutex<Plain>,
    watchers: Mutex<Vec<mpsc::UnboundedSender<Hint>>>,
}

pub(crate) struct Broken<D> {
    shared: Arc<Shared>,
    defect: PhantomData<D>,
}

impl<D> fmt::Debug for Broken<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Broken")
    }
}

#[async_trait]
impl<D: Defect> Fixture for Broken<D> {
    async fn set_up(_: &str) -> Result<Self> {
        Ok(Self { shared: Arc::default(), defect: PhantomData })
    }
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(Self { shared: self.shared.clone(), defect: PhantomData }))
    }
}

impl<D: Defect> Broken<D> {
    fn plain(&self) -> MutexGuard<'_, Plain> {
        self.shared.plain.lock().unwrap()
    }
    fn tell(&self) {
        if D::tells() {
            let mut watchers = self.shared.watchers.lock().unwrap();
            watchers.retain(|watcher| watcher.unbounded_send(Hint::Look).is_ok());
        }
    }
    fn read(&self, name: &str) -> Result<State> {
        self.plain().get(&D::key(name)).map(|state| renamed(state, name))
    }
}

/// Told under the name that was asked for.
fn renamed(mut state: State, name: &str) -> State {
    name.clone_into(&mut state.name);
    state
}

#[async_trait]
impl<D: Defect> Backend for Broken<D> {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        let now = request.now.here();
        let before = (!D::is_atomic()).then(|| self.plain().clone());
        if before.is_some() {
            // Somebody else's turn.
            std::thread::yield_now();
        }
        let mut plain = self.plain();
        if let Some(before) = before {
            for plan in request.plans {
                plain.put_back(plan.name, &before);
            }
        }
        let answers = request.plans.iter().map(|plan| {
            plain.with(&D::key(plan.name), request.node, now, |slot, at, ledger| {
                D::step(slot, plan, at, ledger)
            })
        });
        let answers = D::answers(answers.collect());
        let (found, next) = request.find.map_or((vec![], None), |find| plain.found(D::find(find)));
        Ok(Rescheduled::new(now, answers).found(found, next))
    }
    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }
    fn schedules(&self) -> Option<&dyn Schedules> {
        Some(self)
    }
    fn history(&self) -> Option<&dyn History> {
        Some(self)
    }
    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

#[async_trait]
impl<D: Defect> Leases for Broken<D> {
    async fn settle(&self, request: Settle<'_>) -> Result<Vec<Settled>> {
        let mut plain = self.plain();
        let now = request.now.here();
        let settled = request.endings.iter().map(|ending| {
            plain.with(&D::key(ending.name), request.node, now, |slot, at, ledger| {
                D::settle(slot, ending, at, ledger)
            })
        });
        let settled = settled.collect();
        drop(plain);
        self.tell();
        Ok(settled)
    }
}

#[async_trait]
impl<D: Defect> Schedules for Broken<D> {
    async fn add(&self, new: &[NewSchedule<'_>], now: Now) -> Result<Vec<Result<State>>> {
        let add = |new: &NewSchedule<'_>| {
            self.plain().with(&D::key(new.name), Plain::OPERATOR, now.here(), |slot, at, _| {
                D::create(slot, new, at)
            })?;
            self.read(new.name)
        };
        let added = D::added(new.iter().map(add).collect());
        self.tell();
        Ok(added)
    }
    async fn kinds(&self) -> Result<Vec<String>> {
        Ok(D::kinds(self.plain().kinds()))
    }
    async fn get(&self, name: &str) -> Result<State> {
        self.read(name)
    }
    async fn list(&self, page: Page<'_>) -> Result<Vec<State>> {
        Ok(D::listed(self.plain().list(page)))
    }
    async fn modify(&self, name: &str, what: Change<'_>, now: Now) -> Result<State> {
        self.plain().with(&D::key(name), Plain::OPERATOR, now.here(), |slot, at, ledger| {
            D::change(slot, name, &what, at, ledger)
        })?;
        self.tell();
        self.read(name)
    }
    async fn delete(&self, name: &str, now: Now) -> Result {
        self.plain().with(&D::key(name), Plain::OPERATOR, now.here(), |slot, at, _| {
            D::delete(slot, name, at)
        })?;
        self.tell();
        Ok(())
    }
}

#[async_trait]
impl<D: Defect> History for Broken<D> {
    async fn past(
        &self,
        name: Option<&str>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Past>> {
        Ok(D::past(self.plain().past(name, before, limit)))
    }
}

#[async_trait]
impl<D: Defect> Watch for Broken<D> {
    async fn subscribe(&self) -> Result<BoxStream<'static, Hint>> {
        let (watcher, hints) = mpsc::unbounded();
        self.shared.watchers.lock().unwrap().push(watcher);
        Ok(hints.boxed())
    }
}
