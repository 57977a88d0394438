//! The changes that the model's proposers make: core's own, over numbered records.

use allora_core::{
    Time,
    backend::{Action, Claim, Completion, Cursor, NextRun, Operation, Reply, Sharing},
    record::{HistoryBuffer, OpContext, Record, apply, codec},
    time::from_millis,
};
use std::{collections::HashMap, time::Duration};

/// A record, by its number.
pub(super) type Value = u16;

/// A proposer's wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Want {
    Claim,
    Complete { fence: i64 },
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Got {
    Granted { fence: i64 },
    Ended,
    Nothing,
}

/// The time at which a change is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Clock {
    /// The occurrence is due.
    Due,
    /// Every lease is over.
    Later,
}

type Input = (Value, Want, u8, Clock);

/// All records that have come up, and the results of changes. The functions are pure, and are
/// called once for each input.
pub(super) struct Changes {
    records: Vec<Record>,
    numbers: HashMap<Vec<u8>, Value>,
    made: HashMap<Input, (Value, Got)>,
    leases: bool,
    /// False: a completion does not compare fences.
    fenced: bool,
}

const NAME: &str = "job";

fn due() -> Time {
    from_millis(1_000_000).expect("an instant")
}

fn now(clock: Clock) -> Time {
    match clock {
        Clock::Due => due(),
        Clock::Later => from_millis(9_000_000).expect("an instant"),
    }
}

impl Changes {
    /// The record with which every server begins: registered, and nothing claimed.
    pub(super) const FIRST: Value = 0;

    pub(super) fn new(leases: bool, fenced: bool) -> Self {
        let mut slot = None;
        let first = Some(NextRun::from(due()));
        let register = Action::Register { definition: "once", version: 0, first };
        let before = from_millis(1).expect("an instant");
        let at = OpContext::new("operator", before);
        apply_to(&mut slot, &Operation::new(NAME, register), at);
        let mut changes = Self {
            records: Vec::new(),
            numbers: HashMap::new(),
            made: HashMap::new(),
            leases,
            fenced,
        };
        changes.number(slot.expect("registered"));
        changes
    }

    /// The result of `want` of proposer `p` on this record.
    pub(super) fn make(&mut self, value: Value, want: Want, p: u8, clock: Clock) -> (Value, Got) {
        let input = (value, want, p, clock);
        if let Some(made) = self.made.get(&input) {
            return *made;
        }
        let mut slot = Some(self.records[usize::from(value)].clone());
        let node = format!("node-{p}");
        let at = OpContext::new(&node, now(clock));
        let got = match want {
            Want::Claim => self.claim(&mut slot, p, at),
            Want::Complete { fence } => self.complete(&mut slot, fence, at),
        };
        let made = (self.number(slot.expect("no change deletes")), got);
        self.made.insert(input, made);
        made
    }

    fn claim(&self, slot: &mut Option<Record>, p: u8, at: OpContext<'_>) -> Got {
        // With the current fence: a proposer with an older one is refused more often.
        let fence = slot.as_ref().map_or(0, |record| record.fence);
        let (claim_id, lease) = (u128::from(p) + 1, Duration::from_secs(60));
        let claim = if self.leases {
            Claim::at_least_once(claim_id, fence, due().into(), lease)
        } else {
            let then = Cursor::To(None);
            Claim::at_most_once(claim_id, fence, due().into(), then, lease, Sharing::Exclusive)
        };
        match apply_to(slot, &Operation::claim(NAME, claim), at) {
            Reply::Claimed(claimed) => Got::Granted { fence: claimed.fence },
            _ => Got::Nothing,
        }
    }

    fn complete(&self, slot: &mut Option<Record>, fence: i64, at: OpContext<'_>) -> Got {
        let held = slot.as_ref().and_then(|record| record.leases.first());
        let fence = held.map(|held| held.fence).filter(|_| !self.fenced).unwrap_or(fence);
        let complete = Operation::complete(NAME, fence, Cursor::To(None), Completion::Succeeded);
        match apply_to(slot, &complete, at) {
            Reply::Accepted => Got::Ended,
            _ => Got::Nothing,
        }
    }

    fn number(&mut self, record: Record) -> Value {
        let records = &mut self.records;
        *self.numbers.entry(codec::encode(&record)).or_insert_with(|| {
            records.push(record);
            Value::try_from(records.len() - 1).expect("few records")
        })
    }

    /// The highest fence that a record has given out.
    pub(super) fn fence(&self, value: Value) -> i64 {
        self.records[usize::from(value)].fence
    }

    /// The holder's number.
    pub(super) fn holder(&self, value: Value) -> Option<u8> {
        let record = &self.records[usize::from(value)];
        let lease = record.leases.first()?;
        u8::try_from(lease.claim_id - 1).ok()
    }

    /// True if its occurrence was completed, or, at most once, claimed.
    pub(super) fn is_over(&self, value: Value) -> bool {
        self.records[usize::from(value)].cursor.is_none()
    }
}

fn apply_to(slot: &mut Option<Record>, operation: &Operation<'_>, at: OpContext<'_>) -> Reply {
    let reply = apply(slot, operation, at, &mut HistoryBuffer::off());
    reply.expect("no operation of a client")
}
