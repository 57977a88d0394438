//! The values from which statements are made: what to find, to claim, to complete and to write.

use crate::driver::Value;
use allora_core::{
    backend::{Batch, TimeSource},
    record::FlagChanges,
};

/// The rows of the due index to find.
pub(crate) struct DueRange<'a> {
    /// At most [`Flavour::kinds_at_once`](super::Flavour::kinds_at_once).
    pub(crate) kinds: &'a [&'a str],
    /// The end of the range, in milliseconds.
    pub(crate) until: i64,
    /// The number of the first rows of each kind to leave out.
    pub(crate) skip: i64,
    /// The most rows of each kind to read: those that are leased take places, too.
    pub(crate) rows: i64,
    /// The most rows to return.
    pub(crate) limit: i64,
    /// The most bytes of data, except that one row is always found.
    pub(crate) bytes: i64,
}

/// The node that asks, and the clock that decides.
pub(crate) struct RequestContext<'a> {
    pub(crate) node: &'a str,
    /// Microseconds; `None` is the database's clock.
    pub(crate) now: Option<i64>,
}

impl<'a> RequestContext<'a> {
    /// That of a batch; `None` if its time is not whole microseconds, as the database's are.
    pub(crate) fn of(batch: &Batch<'a>) -> Option<Self> {
        let now = match batch.time {
            TimeSource::Store { .. } => None,
            TimeSource::Fixed(at) if at.timestamp_subsec_nanos().is_multiple_of(1_000) => {
                Some(at.timestamp_micros())
            }
            TimeSource::Fixed(_) => return None,
        };
        Some(Self { node: batch.node, now })
    }
}

/// A claim of the cursor's occurrence itself.
pub(crate) struct SimpleClaim {
    /// The key of the row.
    pub(crate) id: i64,
    pub(crate) claim_id: [u8; 16],
    pub(super) fence: i64,
    pub(super) expected: i64,
    pub(super) then: Option<(i64, i64)>,
    /// Microseconds.
    pub(super) not_after: Option<i64>,
    /// Microseconds.
    pub(super) duration: i64,
    /// As in the column of the lease.
    pub(super) on_expiry: i64,
}

/// A successful completion, or an extension.
pub(crate) struct SimpleCompletion {
    /// The key of the row.
    pub(crate) id: i64,
    pub(super) fence: i64,
    /// Microseconds; of a completion, none.
    pub(super) duration: Option<i64>,
    pub(super) moves: bool,
    pub(super) then: Option<(i64, i64)>,
    /// The run's output, for the history.
    pub(super) output: Option<Vec<u8>>,
}

/// One record to write in place of another.
#[derive(Clone)]
pub(crate) struct Write {
    /// The key of the rows; `None` if there are none yet.
    pub(crate) id: Option<i64>,
    pub(crate) name: Vec<u8>,
    /// The version that was read.
    pub(crate) read_version: i64,
    /// The last moment for the write, in microseconds by the database's clock.
    pub(crate) not_after: Option<i64>,
    /// The columns of the state table, without the key.
    pub(crate) state: Vec<Value>,
    /// The columns of the job table, without the key, if they change.
    pub(crate) job: Option<Vec<Value>>,
    /// The columns of the table of rare parts, without the key, if they change.
    pub(crate) rare: Option<[Value; 2]>,
    /// The data, if it changes.
    pub(crate) data: Option<NewData>,
    /// The rows of the history table.
    pub(crate) history: Vec<Vec<Value>>,
    /// The rows of the table of changes.
    pub(crate) changes: Vec<Vec<Value>>,
    /// The changes of the table of flags; nothing for most claims and ends of runs.
    pub(crate) flags: FlagChanges,
}

/// The data of a record; nothing without a generation.
#[derive(Clone)]
pub(crate) struct NewData {
    pub(crate) generation: Option<i64>,
    pub(crate) data: Vec<u8>,
}

impl Write {
    /// The approximate number of its bytes.
    pub(crate) fn len(&self) -> usize {
        let bytes = |value: &Value| match value {
            Value::Bytes(Some(bytes)) => bytes.len(),
            _ => 8,
        };
        let data = self.data.as_ref().map_or(0, |new| new.data.len());
        let flags = self.flags.added.iter().chain(&self.flags.removed);
        let flags: usize = flags.map(|flag| flag.len() + self.name.len()).sum();
        let (job, rare) = (self.job.iter().flatten(), self.rare.iter().flatten());
        let values = self.state.iter().chain(job).chain(rare);
        let entries = self.history.iter().chain(&self.changes).flatten();
        data + flags + values.chain(entries).map(bytes).sum::<usize>()
    }

    /// The generation and the bytes of the new data.
    pub(super) fn new_data(&self) -> Option<[Value; 2]> {
        let new = self.data.as_ref()?;
        Some([Value::int(new.generation?), Value::bytes(&new.data)])
    }

    /// The rows of these flags of the record.
    pub(super) fn flag_rows(&self, flags: &[String]) -> impl Iterator<Item = Vec<Value>> {
        flags.iter().map(|flag| vec![Value::bytes(flag), Value::bytes(&self.name)])
    }

    /// The rare parts to write; `None` if there are none.
    pub(super) fn new_rare(&self) -> Option<[Value; 2]> {
        self.rare.clone().filter(|parts| parts.iter().any(|part| *part != Value::Bytes(None)))
    }
}
