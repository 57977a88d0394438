//! The changes that the model's proposers make: core's own, over numbered records.

use allora_core::{
    Time,
    backend::{Act, Answer, Cursor, Deliver, End, Ended, Ending, Next, Plan, Settled, Take},
    record::{At, Ledger, Record, codec, settle, step},
    time::from_millis,
};
use std::{collections::HashMap, time::Duration};

/// A record, by its number.
pub(super) type Value = u16;

/// What a proposer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Want {
    Take,
    Finish { fence: i64 },
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Got {
    Granted { fence: i64 },
    Ended,
    Nothing,
}

/// When a change is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Clock {
    /// The occurrence is due.
    Due,
    /// Every lease is over.
    Later,
}

type Input = (Value, Want, u8, Clock);

/// All records that have come up, and what has become of them: the functions are pure, and are
/// called once for each input.
pub(super) struct Changes {
    records: Vec<Record>,
    numbers: HashMap<Vec<u8>, Value>,
    made: HashMap<Input, (Value, Got)>,
    leases: bool,
    /// Whether a finish compares fences.
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
    /// The number of the record that every server begins with: registered, and nothing taken.
    pub(super) const FIRST: Value = 0;

    pub(super) fn new(leases: bool, fenced: bool) -> Self {
        let mut slot = None;
        let first = Some(Next::from(due()));
        let register = Act::Register { definition: "once", version: 0, first };
        let before = from_millis(1).expect("an instant");
        let at = At::new("operator", before);
        step(&mut slot, &Plan::new(NAME, register), at, &mut Ledger::off());
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

    /// What `want` of proposer `p` makes of this record.
    pub(super) fn make(&mut self, value: Value, want: Want, p: u8, clock: Clock) -> (Value, Got) {
        let input = (value, want, p, clock);
        if let Some(made) = self.made.get(&input) {
            return *made;
        }
        let mut slot = Some(self.records[usize::from(value)].clone());
        let node = format!("node-{p}");
        let at = At::new(&node, now(clock));
        let got = match want {
            Want::Take => self.take(&mut slot, p, at),
            Want::Finish { fence } => self.finish(&mut slot, fence, at),
        };
        let made = (self.number(slot.expect("nobody deletes")), got);
        self.made.insert(input, made);
        made
    }

    fn take(&self, slot: &mut Option<Record>, p: u8, at: At<'_>) -> Got {
        // As one who has looked just now: who has not is refused more often.
        let fence = slot.as_ref().map_or(0, |record| record.fence);
        let deliver = if self.leases {
            Deliver::AtLeastOnce { lease: Duration::from_secs(60) }
        } else {
            Deliver::AtMostOnce { then: Cursor::To(None), mark: None }
        };
        let take = Take::new(u128::from(p) + 1, fence, due().into(), deliver);
        match step(slot, &Plan::new(NAME, Act::Take(take)), at, &mut Ledger::off()) {
            Answer::Taken(taken) => Got::Granted { fence: taken.fence },
            _ => Got::Nothing,
        }
    }

    fn finish(&self, slot: &mut Option<Record>, fence: i64, at: At<'_>) -> Got {
        let held = slot.as_ref().and_then(|record| record.holds.first());
        let fence = held.map(|held| held.fence).filter(|_| !self.fenced).unwrap_or(fence);
        let end = End::Finish { then: Cursor::To(None), outcome: Ended::Ran };
        match settle(slot, &Ending::new(NAME, fence, end), at, &mut Ledger::off()) {
            Settled::Done => Got::Ended,
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

    /// Who holds it, by the node's number.
    pub(super) fn holder(&self, value: Value) -> Option<u8> {
        let record = &self.records[usize::from(value)];
        let claim = record.holds.first().map(|held| held.claim);
        let claim = claim.or_else(|| record.unheld.as_ref().map(|last| last.claim))?;
        u8::try_from(claim - 1).ok()
    }

    /// Whether its occurrence was finished, or, at most once, taken.
    pub(super) fn is_over(&self, value: Value) -> bool {
        self.records[usize::from(value)].cursor.is_none()
    }
}
