//! The data of a trigger, and the checkpoint that a run has left for the next attempt: parts of single
//! occurrences, which the record keeps until these have ended.
//!
//! Most records have none of it. Stores keep it with their rare parts, so no single statement or script
//! meets a record that has any.

use super::Record;
use crate::{
    backend::{Checkpoint, Lease, Occurrence},
    time::{Time, whole_millis},
};

/// The largest checkpoint of a run, in bytes.
pub const MAX_CHECKPOINT: usize = 64 << 10;

/// The largest size of the checkpoints of one job together, in bytes. Of more, the oldest is forgotten
/// first, and the next attempt at its occurrence has none.
pub const MAX_CHECKPOINTS: usize = 256 << 10;

/// The parts of one occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OccurrenceData {
    /// The occurrence.
    pub occurrence: Occurrence,
    /// The data of its runs, if it is a trigger with any of its own.
    pub data: Option<Vec<u8>>,
    /// The last that its runs have left for the next attempt.
    pub checkpoint: Option<SavedValue>,
}

/// A value, and the time at which it was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedValue {
    /// The time, in whole milliseconds.
    pub saved_at: Time,
    /// The value.
    pub value: Vec<u8>,
}

impl Record {
    /// The parts that are kept of this occurrence.
    pub(super) fn data_of(&self, occurrence: &Occurrence) -> Option<&OccurrenceData> {
        self.occurrence_data.iter().find(|one| one.occurrence == *occurrence)
    }

    /// The checkpoints, the one saved last at the end.
    pub(super) fn checkpoints(&self) -> impl Iterator<Item = Checkpoint> {
        self.occurrence_data.iter().filter_map(|one| {
            let SavedValue { saved_at, value } = one.checkpoint.clone()?;
            Some(Checkpoint { occurrence: one.occurrence.clone(), saved_at, value })
        })
    }

    /// Keeps the checkpoint of the run with this lease in place of the one before.
    pub(super) fn keep_checkpoint(&mut self, lease: usize, checkpoint: &[u8], now: Time) {
        // The occurrence of a former job may have the name and time of another one here, and one that was
        // completed has no other attempt.
        let lease: &Lease = &self.leases[lease];
        if checkpoint.len() > MAX_CHECKPOINT || self.is_recorded(lease) {
            return;
        }
        let is_it = |one: &mut OccurrenceData| one.occurrence == lease.occurrence;
        let before = self.occurrence_data.extract_if(.., is_it).next();
        let new = OccurrenceData {
            occurrence: lease.occurrence.clone(),
            data: before.and_then(|one| one.data),
            checkpoint: Some(SavedValue {
                saved_at: whole_millis(now),
                value: checkpoint.to_vec(),
            }),
        };
        self.occurrence_data.push(new);
        let mut size = 0;
        for one in self.occurrence_data.iter_mut().rev() {
            size += one.checkpoint.as_ref().map_or(0, |saved| saved.value.len());
            one.checkpoint.take_if(|_| size > MAX_CHECKPOINTS);
        }
        self.occurrence_data.retain(|one| one.data.is_some() || one.checkpoint.is_some());
    }

    /// Forgets what belongs to occurrences that have ended.
    pub(super) fn forget_occurrence_data(&mut self) {
        if self.occurrence_data.is_empty() {
            return;
        }
        let mut all = std::mem::take(&mut self.occurrence_data);
        let letters = || self.dead.iter().map(|letter| &letter.occurrence);
        all.retain(|one| self.pending().chain(letters()).any(|other| *other == one.occurrence));
        self.occurrence_data = all;
    }
}
