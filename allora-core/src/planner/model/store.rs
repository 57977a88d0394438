//! The store of the record's model: [`apply`](crate::record::apply), and a memory that lets the search call it once
//! for each record, request and time.

use super::{
    defects::Defect,
    job::{Job, Sent, after},
};
use crate::{
    backend::{Action, HistoryEntry, JobState, Operation, Reply},
    error::Result,
    record::{HistoryBuffer, OpContext, Record, apply},
    time::Time,
};
use std::{collections::HashMap, fmt::Debug, rc::Rc};

/// A record, or its absence, by its number.
pub(super) type Slot = usize;
/// A request, by its number.
pub(super) type Request = usize;

/// The lowest fence: so far ahead of the clock that fences count, and do not tell states apart by their times.
const MIN_FENCE: i64 = 4_000_000_000_000_000;

/// Values without a hash of their own, numbered by their texts.
struct Numbered<T> {
    values: Vec<T>,
    numbers: HashMap<String, usize>,
}

impl<T: Debug> Numbered<T> {
    fn new() -> Self {
        Self { values: Vec::new(), numbers: HashMap::new() }
    }

    fn number(&mut self, value: T) -> usize {
        let new = self.values.len();
        let number = *self.numbers.entry(format!("{value:?}")).or_insert(new);
        if number == new {
            self.values.push(value);
        }
        number
    }
}

/// A request that was carried out.
pub(super) struct CarriedOut {
    pub(super) sent: Sent,
    pub(super) now: Time,
    pub(super) before: Option<Record>,
    pub(super) after: Option<Record>,
    pub(super) slot: Slot,
    pub(super) reply: Result<Reply>,
    pub(super) entries: Vec<HistoryEntry>,
}

pub(super) struct Store {
    pub(super) job: Job,
    defect: Option<Defect>,
    records: Numbered<Option<Record>>,
    requests: Numbered<Sent>,
    decided: HashMap<(Slot, u8, u128), Option<Request>>,
    carried_out: HashMap<(Slot, u8, Request), Rc<CarriedOut>>,
}

impl Store {
    pub(super) fn new(job: Job, defect: Option<Defect>) -> Self {
        let (records, requests) = (Numbered::new(), Numbered::new());
        let (decided, carried_out) = (HashMap::new(), HashMap::new());
        Self { job, defect, records, requests, decided, carried_out }
    }

    pub(super) fn record(&self, slot: Slot) -> Option<&Record> {
        self.records.values[slot].as_ref()
    }

    /// The number of a record, without what nothing depends on here.
    pub(super) fn slot(&mut self, mut record: Option<Record>) -> Slot {
        if let Some(record) = &mut record {
            (record.counters, record.last) = Default::default();
            record.dead.clear();
            for lease in record.leases.iter_mut().chain(&mut record.lost) {
                (lease.started_at, lease.due_at) = (after(0), after(0));
            }
        }
        self.records.number(record)
    }

    pub(super) fn sent(&self, request: Request) -> &Sent {
        &self.requests.values[request]
    }

    pub(super) fn request(&mut self, sent: Sent) -> Request {
        self.requests.number(sent)
    }

    /// The record as a node or a client reads it; `None` without a job.
    pub(super) fn read(&self, slot: Slot, ticks: u8) -> Option<JobState> {
        let mut record = self.record(slot).cloned();
        apply_at(&mut record, Action::Read, after(ticks)).0.unwrap().state()
    }

    /// The request of a node that reads the record.
    pub(super) fn decide(&mut self, slot: Slot, ticks: u8, claim_id: u128) -> Option<Request> {
        let key = (slot, ticks, claim_id);
        if !self.decided.contains_key(&key) {
            let state = self.read(slot, ticks);
            let sent = state.and_then(|state| self.job.decide(&state, after(ticks), claim_id));
            let request = sent.map(|sent| self.request(sent));
            self.decided.insert(key, request);
        }
        self.decided[&key]
    }

    pub(super) fn carry_out(&mut self, slot: Slot, ticks: u8, request: Request) -> Rc<CarriedOut> {
        let key = (slot, ticks, request);
        if !self.carried_out.contains_key(&key) {
            let (sent, now) = (self.sent(request).clone(), after(ticks));
            let before = self.record(slot).cloned();
            let (mut record, mut disarmed) = (before.clone(), sent.clone());
            if let Some(defect) = self.defect {
                defect.disarm(&mut record, &mut disarmed, now);
            }
            let (reply, mut entries) = apply_at(&mut record, disarmed, now);
            if let (Some(defect), Some(record), Some(before)) = (self.defect, &mut record, &before)
            {
                defect.restore(record, before, &sent, &mut entries);
            }
            let (slot, after) = (self.slot(record.clone()), record);
            let step = CarriedOut { sent, now, before, after, slot, reply, entries };
            self.carried_out.insert(key, Rc::new(step));
        }
        Rc::clone(&self.carried_out[&key])
    }
}

fn apply_at(
    record: &mut Option<Record>,
    action: Sent,
    now: Time,
) -> (Result<Reply>, Vec<HistoryEntry>) {
    let mut history = HistoryBuffer::kept();
    let context = OpContext { min_fence: MIN_FENCE, ..OpContext::new("", now) };
    let reply = apply(record, &Operation::new("job", action), context, &mut history);
    (reply, history.take())
}
