//! Unused jobs in code: the setting, the progress of this node's search, and when a record was last
//! moved.

use allora_core::{Time, record::Record, time::saturating_add};
use chrono::DateTime;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The setting of unused jobs, and the progress of this node's search.
pub(crate) struct Unused {
    after: Duration,
    search: Mutex<Search>,
}

#[derive(Default)]
pub(crate) struct Search {
    next: Option<Instant>,
    pub(crate) place: Option<Place>,
}

/// The place up to which a search has come.
#[derive(Default)]
pub(crate) struct Place {
    pub(crate) shard: u32,
    /// The name after which it continues; `None` before the shard's first call.
    pub(crate) from: Option<Vec<u8>>,
}

impl Unused {
    pub(crate) fn new(after: Duration) -> Self {
        Self { after, search: Mutex::default() }
    }

    /// The time between two searches. Eight fit into the time: one that is left out is no gap.
    pub(crate) fn period(&self) -> Duration {
        self.after / 8
    }

    /// The longest time between two searches in which nodes count as running.
    pub(crate) fn gap(&self) -> Duration {
        self.after / 4
    }

    pub(crate) fn is_over(&self, from: Time, now: Time) -> bool {
        saturating_add(from, self.after) <= now
    }

    pub(crate) fn is_unused(&self, record: &Record, now: Time) -> bool {
        moved(record).is_some_and(|at| self.is_over(at, now))
    }

    pub(crate) fn search(&self) -> MutexGuard<'_, Search> {
        self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place to continue; `None` if it is too early for a search, or one is running.
    pub(crate) fn begin(&self, now: Instant) -> Option<Place> {
        let mut search = self.search();
        if let Some(place) = search.place.take() {
            return Some(place);
        }
        let is_time = search.next.is_none_or(|next| next <= now);
        is_time.then(|| {
            search.next = now.checked_add(self.period());
            Place::default()
        })
    }
}

/// When a job in code was last moved, or was due to be moved; `None` if that is unknown.
fn moved(record: &Record) -> Option<Time> {
    if !record.kind.is_empty() || !record.is_live() {
        return None;
    }
    let pause_end = match &record.paused {
        Some(pause) => Some(pause.until?),
        None => None,
    };
    // A fence is the time of the claim or the change that drew it, unless clocks went back.
    let drawn = DateTime::from_timestamp_micros(record.fence)?;
    let leases = record.leases.iter().map(|lease| lease.until);
    let retries = record.retries.iter().map(|retry| retry.not_before);
    let triggers = record.triggers.iter().map(|trigger| trigger.scheduled_at);
    let own = [record.cursor?.due_at, drawn].into_iter();
    own.chain(leases).chain(retries).chain(triggers).chain(pause_end).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::{
        Occurrence,
        backend::{Action, Lease, NextRun, OnExpiry, Operation, Pause},
        record::{HistoryBuffer, OpContext, apply},
        time::from_millis,
    };

    fn at(ms: i64) -> Time {
        from_millis(ms).unwrap()
    }

    /// The time of a job that was registered at 1 s and is due at 5 s, changed by `change`.
    fn moved_after(change: impl FnOnce(&mut Record)) -> Option<Time> {
        let mut slot = None;
        let first = Some(NextRun::from(at(5_000)));
        let register = Action::Register { definition: "d", version: 0, first };
        let register = Operation::new("a", register);
        let context = OpContext::new("n", at(1_000));
        apply(&mut slot, &register, context, &mut HistoryBuffer::off()).unwrap();
        let mut record = slot.unwrap();
        change(&mut record);
        moved(&record)
    }

    #[test]
    fn a_job_counts_from_its_due_time() {
        assert_eq!(moved_after(|_| {}), Some(at(5_000)));
    }

    #[test]
    fn a_later_event_counts_instead() {
        assert_eq!(moved_after(|record| record.fence = 7_000_000), Some(at(7_000)));
        let lease = |record: &mut Record| {
            let (run, until) = (Occurrence::from(at(5_000)), at(9_000));
            record.leases.push(Lease::new("n", 1, 1, run, until, OnExpiry::Retry));
        };
        assert_eq!(moved_after(lease), Some(at(9_000)));
        let trigger = Occurrence { scheduled_at: at(8_000), trigger: Some("t".into()) };
        assert_eq!(moved_after(|record| record.triggers.push(trigger)), Some(at(8_000)));
    }

    #[test]
    fn a_job_whose_last_move_is_unknown_stays() {
        assert_eq!(moved_after(|record| record.cursor = None), None, "ended, or run by triggers");
        assert_eq!(moved_after(|record| record.kind = "mail".into()), None, "stored");
        assert_eq!(moved_after(|record| record.deleted_at = Some(at(1))), None, "deleted");
        let pause = Pause { since: at(1), until: None, note: String::new() };
        assert_eq!(moved_after(|record| record.paused = Some(pause)), None, "paused");
        let until = Some(at(9_000));
        let pause = Pause { since: at(1), until, note: String::new() };
        assert_eq!(moved_after(|record| record.paused = Some(pause)), until, "paused until then");
    }
}
