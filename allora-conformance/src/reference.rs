//! The pure functions of the record on a plain map: what every backend is compared with.

use allora_core::{
    Error, Kind, Result, Time,
    backend::{
        Change, Find, NewSchedule, Page, Past, Reschedule, Rescheduled, Settle, Settled, State,
    },
    record::{At, Ledger, Record, change, create, delete, settle, step},
};
use std::collections::{BTreeMap, BTreeSet};

/// A store as plain as can be: no lock, no index, no clock, no `async`; it never forgets.
///
/// For differential tests of a backend's own, and as a start for backends that are broken on
/// purpose.
///
/// ```
/// use allora_conformance::reference::Plain;
/// use allora_core::{backend::{Act, Answer, Now, Plan, Reschedule}, time::from_millis};
///
/// let now = Now::At(from_millis(0).unwrap());
/// let answer = Plain::default().reschedule(Reschedule::new("node", now, &[Plan::new("x", Act::Look)]));
/// assert_eq!(answer.answers, [Answer::Absent]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Plain {
    records: BTreeMap<String, Option<Record>>,
    past: BTreeMap<(i64, String), Past>,
}

impl Plain {
    /// What history shows as the node of an operator's change.
    pub const OPERATOR: &str = "operator";

    /// Gives `work` the record of `name`, and keeps what it noted for the history.
    pub fn with<T>(
        &mut self,
        name: &str,
        node: &str,
        now: Time,
        work: impl FnOnce(&mut Option<Record>, At<'_>, &mut Ledger) -> T,
    ) -> T {
        let mut ledger = Ledger::kept();
        let slot = self.records.entry(name.to_owned()).or_default();
        let answer = work(slot, At::new(node, now), &mut ledger);
        self.past
            .extend(ledger.take().into_iter().map(|past| ((past.fence, past.name.clone()), past)));
        answer
    }

    /// The record of `name`, or its tombstone.
    pub fn record(&self, name: &str) -> Option<&Record> {
        self.records.get(name)?.as_ref()
    }

    /// Writes the record of `name` as it was `before`: what a store does that reads and writes
    /// without comparing.
    pub fn put_back(&mut self, name: &str, before: &Self) {
        self.records.insert(name.to_owned(), before.records.get(name).cloned().flatten());
    }

    /// As [`Backend::reschedule`](allora_core::Backend::reschedule).
    pub fn reschedule(&mut self, request: Reschedule<'_>) -> Rescheduled {
        let now = request.now.here();
        let plans = request.plans.iter();
        let answers = plans.map(|plan| {
            self.with(plan.name, request.node, now, |slot, at, ledger| step(slot, plan, at, ledger))
        });
        let answers = answers.collect();
        let (found, next_due) = request.find.map_or((Vec::new(), None), |find| self.found(find));
        Rescheduled::new(now, answers).found(found, next_due)
    }

    /// What [`Find`] looks for, and when the next one wants attention.
    pub fn found(&self, find: Find<'_>) -> (Vec<State>, Option<Time>) {
        let mut due: Vec<(Time, &str)> = Vec::new();
        for kind in find.kinds {
            let of_kind = self.live().filter(|(_, record)| record.kind == *kind);
            let noticed = of_kind.filter_map(|(name, record)| Some((record.notice_at()?, name)));
            let mut noticed: Vec<_> = noticed.collect();
            noticed.sort_unstable();
            due.extend(noticed.into_iter().skip(find.skip));
        }
        due.sort_unstable();
        due.dedup();
        let ready = due.iter().take(find.limit).take_while(|(at, _)| *at < find.until).count();
        let found = due[..ready].iter().filter_map(|(_, name)| self.get(name).ok());
        (found.collect(), due.get(ready).map(|(at, _)| *at))
    }

    /// As [`Leases::settle`](allora_core::backend::Leases::settle).
    pub fn settle(&mut self, request: Settle<'_>) -> Vec<Settled> {
        let now = request.now.here();
        let endings = request.endings.iter();
        let settled = endings.map(|ending| {
            self.with(ending.name, request.node, now, |slot, at, ledger| {
                settle(slot, ending, at, ledger)
            })
        });
        settled.collect()
    }

    /// As [`Schedules::add`](allora_core::backend::Schedules::add), of one schedule.
    ///
    /// # Errors
    /// As there.
    pub fn add(&mut self, new: NewSchedule<'_>, now: Time) -> Result<State> {
        self.with(new.name, Self::OPERATOR, now, |slot, at, _| create(slot, &new, at))?;
        self.get(new.name)
    }

    /// As [`Schedules::get`](allora_core::backend::Schedules::get).
    ///
    /// # Errors
    /// `NotFound`.
    pub fn get(&self, name: &str) -> Result<State> {
        let record = self.records.get(name).and_then(Option::as_ref);
        let live = record.filter(|record| record.is_live()).map(|record| record.state(name));
        live.ok_or_else(|| Error::new(Kind::NotFound, format!("there is no job {name:?}")))
    }

    /// As [`Schedules::list`](allora_core::backend::Schedules::list).
    pub fn list(&self, page: Page<'_>) -> Vec<State> {
        self.live()
            .filter(|(name, _)| page.after.is_none_or(|after| *name > after))
            .filter(|(name, _)| name.starts_with(page.prefix))
            .filter(|(_, record)| page.kind.is_none_or(|kind| record.kind == kind))
            .map(|(name, record)| record.state(name))
            .take(page.limit)
            .collect()
    }

    /// As [`Schedules::kinds`](allora_core::backend::Schedules::kinds).
    pub fn kinds(&self) -> Vec<String> {
        let noticed = self.live().filter(|(_, record)| record.notice_at().is_some());
        let kinds: BTreeSet<&str> = noticed.map(|(_, record)| &*record.kind).collect();
        kinds.into_iter().filter(|kind| !kind.is_empty()).map(str::to_owned).collect()
    }

    /// As [`Schedules::modify`](allora_core::backend::Schedules::modify).
    ///
    /// # Errors
    /// As there.
    pub fn modify(&mut self, name: &str, what: Change<'_>, now: Time) -> Result<State> {
        self.with(name, Self::OPERATOR, now, |slot, at, ledger| {
            change(slot, name, &what, at, ledger)
        })?;
        self.get(name)
    }

    /// As [`Schedules::delete`](allora_core::backend::Schedules::delete).
    ///
    /// # Errors
    /// `NotFound`.
    pub fn delete(&mut self, name: &str, now: Time) -> Result {
        self.with(name, Self::OPERATOR, now, |slot, at, _| delete(slot, name, at))
    }

    /// As [`History::past`](allora_core::backend::History::past).
    pub fn past(&self, name: Option<&str>, before: Option<i64>, limit: usize) -> Vec<Past> {
        self.past
            .values()
            .rev()
            .filter(|past| before.is_none_or(|before| past.fence < before))
            .filter(|past| name.is_none_or(|name| past.name == name))
            .take(limit)
            .cloned()
            .collect()
    }

    fn live(&self) -> impl Iterator<Item = (&str, &Record)> {
        let records = self.records.iter();
        let records = records.filter_map(|(name, slot)| Some((&**name, slot.as_ref()?)));
        records.filter(|(_, record)| record.is_live())
    }
}
