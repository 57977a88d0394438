//! Endings that nobody has heard the outcome of.
//!
//! A try that is overtaken, or whose caller waits no longer, can be carried out all the same, by who
//! overtakes it; and when the next try looks, the record may remember a later ending only. But a
//! run that was there goes by its own ending, or is given up, and that is counted.

use super::change::Slot;
use allora_core::backend::{Ending, Settled};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many runs are remembered. Of a run that is forgotten, a repeated ending may be answered as
/// if others had taken it over.
const MOST: usize = 65_536;

/// What a record says about how holds have gone that nobody ended.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Life {
    incarnation: i64,
    given_up: u64,
    /// Whether the run is there that is to be ended.
    is_held: bool,
}

impl Life {
    pub(crate) fn of(slot: &Slot<'_>, ending: &Ending<'_>) -> Option<Self> {
        let Slot::Sound(Some(record)) = slot else { return None };
        Some(Self {
            incarnation: record.incarnation,
            given_up: record.counters.abandoned + record.counters.lost,
            is_held: record.holds.iter().any(|hold| hold.fence == ending.fence),
        })
    }
}

/// Of runs that are to be ended or extended here, by name and fence, the life in which they were
/// there.
#[derive(Default)]
pub(crate) struct Unheard(Mutex<HashMap<(String, i64), Life>>);

impl Unheard {
    /// What came of an ending, also if it had come about before.
    pub(crate) fn judge(
        &self,
        ending: &Ending<'_>,
        life: Option<Life>,
        settled: Settled,
    ) -> Settled {
        let Some(life) = life else { return settled };
        let mut runs = self.runs();
        let run = (ending.name.to_owned(), ending.fence);
        if life.is_held {
            if runs.len() >= MOST {
                runs.clear();
            }
            runs.insert(run, life);
            return settled;
        }
        let as_before = runs.get(&run) == Some(&Life { is_held: true, ..life });
        if settled == Settled::Lost && as_before { Settled::Done } else { settled }
    }

    /// These have been heard; what was ended will not be asked for again.
    pub(crate) fn forget<'a>(&self, heard: impl Iterator<Item = (&'a Ending<'a>, &'a Settled)>) {
        let mut runs = self.runs();
        for (ending, settled) in heard {
            if matches!(settled, Settled::Done | Settled::Lost | Settled::Removed) {
                runs.remove(&(ending.name.to_owned(), ending.fence));
            }
        }
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<(String, i64), Life>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::backend::{Cursor, End, Ended};

    #[test]
    fn a_run_that_went_without_being_given_up_was_ended_here() {
        let end = End::Finish { then: Cursor::Keep, outcome: Ended::Ran };
        let ending = Ending::new("job", 7, end);
        let life = |given_up, is_held| Some(Life { incarnation: 1, given_up, is_held });
        let lost = |before, now| {
            let unheard = Unheard::default();
            unheard.judge(&ending, before, Settled::Done);
            unheard.judge(&ending, now, Settled::Lost)
        };
        assert_eq!(lost(life(3, true), life(3, false)), Settled::Done);
        assert_eq!(lost(life(3, true), life(4, false)), Settled::Lost, "somebody took it over");
        assert_eq!(lost(life(3, false), life(3, false)), Settled::Lost, "it never was there");
        assert_eq!(lost(None, None), Settled::Lost);
        let again = Some(Life { incarnation: 2, given_up: 3, is_held: false });
        assert_eq!(lost(life(3, true), again), Settled::Lost, "the name came back");
    }

    #[test]
    fn what_was_heard_is_forgotten_and_an_extension_leaves_its_run() {
        let ending = Ending::new("job", 7, End::Release);
        let held = Some(Life { incarnation: 1, given_up: 0, is_held: true });
        let unheard = Unheard::default();
        unheard.judge(&ending, held, Settled::Done);
        unheard.forget([(&ending, &Settled::Refused)].into_iter());
        assert_eq!(unheard.runs().len(), 1);
        unheard.forget([(&ending, &Settled::Done)].into_iter());
        assert!(unheard.runs().is_empty());
    }
}
