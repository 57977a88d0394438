//! The place in the due index at which the next query that claims begins.

use crate::encoding::IndexPlace;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of queries that begin behind the one before, until one begins at the start.
const SWEEP: u32 = 16;

/// The place in the due index behind which the next query begins: what it has claimed stays in its
/// place until it is completed, and must not be read again each time. A query that claims less than it
/// could begins at the start as well, and so does each [`SWEEP`]th one, for records that have come to
/// an earlier place meanwhile.
#[derive(Default)]
pub(crate) struct Frontier(Mutex<Option<Reached>>);

/// The last place that queries for a kind have claimed.
struct Reached {
    kind: String,
    place: IndexPlace,
    /// The number of queries since one began at the start.
    queries: u32,
}

impl Frontier {
    fn locked(&self) -> MutexGuard<'_, Option<Reached>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the place: it is one of another database.
    pub(crate) fn clear(&self) {
        *self.locked() = None;
    }

    /// The place behind which a query for these kinds begins; `None` for the start. The rows of several
    /// kinds have no common order.
    pub(crate) fn of(&self, kinds: &[&str]) -> Option<IndexPlace> {
        let [kind] = kinds else { return None };
        let reached = self.locked();
        let reached = reached.as_ref().filter(|reached| reached.kind == *kind)?;
        Some(reached.place).filter(|_| reached.queries < SWEEP)
    }

    /// Notes the last place that a query has claimed, or that it claimed less than it could.
    pub(crate) fn reached(
        &self,
        kinds: &[&str],
        began: Option<IndexPlace>,
        place: Option<IndexPlace>,
    ) {
        let mut reached = self.locked();
        let before = reached.as_ref().map_or(0, |reached| reached.queries);
        let queries = if began.is_some() { before + 1 } else { 1 };
        *reached = match (kinds, place) {
            ([kind], Some(place)) => Some(Reached { kind: (*kind).to_owned(), place, queries }),
            _ => None,
        };
    }
}
