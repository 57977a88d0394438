//! How much of what is due a node asks for at once, and where it begins.
//!
//! Of nodes that find the same due at the same time, one would win all of it, and the others would
//! have asked in vain and do so again. A node that loses therefore asks for less at once, and begins
//! at a place of its own among what is due; where it loses nothing, it asks for more again, the
//! earliest first. As a sender on a shared line does: halved when others are in the way, doubled
//! when nobody is (V. Jacobson, "Congestion avoidance and control", 1988, in its idea).

use super::{SlotId, slot::Slot};
use crate::time::Time;

/// How many plans one request carries at most.
pub(super) const BATCH: usize = 1_000;

/// However many others there are, so much is asked for at once: a round trip has its price, too.
const LEAST: usize = 125;

/// Fewer answers say nothing about others.
const SAMPLE: usize = 16;

pub(super) struct Share {
    size: usize,
    won: usize,
    lost: usize,
}

impl Default for Share {
    fn default() -> Self {
        Self { size: BATCH, won: 0, lost: 0 }
    }
}

impl Share {
    /// What became of a take.
    pub(super) fn note(&mut self, is_won: bool) {
        *(if is_won { &mut self.won } else { &mut self.lost }) += 1;
    }

    /// How many takes to ask for now, with room for so many.
    pub(super) fn size(&mut self, room: usize) -> usize {
        let answers = self.won + self.lost;
        if answers >= SAMPLE {
            if self.lost * 4 > answers {
                self.size = (self.size / 2).max(LEAST);
            } else if self.lost * 16 < answers {
                self.size = (self.size * 2).min(BATCH);
            }
            (self.won, self.lost) = (0, 0);
        }
        self.size.min(room)
    }

    /// Among how many of what is due to choose `size`.
    pub(super) fn choice(&self, size: usize) -> usize {
        if self.size < BATCH { BATCH } else { size }
    }

    /// The order in which this node asks for what is due.
    pub(super) fn order(&self, due: &mut [(Time, SlotId)], slots: &[Slot]) {
        if self.size < BATCH {
            due.sort_by_key(|(_, id)| slots[*id as usize].rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(share: &mut Share, won: usize, lost: usize) -> usize {
        (0..won).for_each(|_| share.note(true));
        (0..lost).for_each(|_| share.note(false));
        share.size(usize::MAX)
    }

    #[test]
    fn who_loses_asks_for_less_and_who_wins_for_more() {
        let mut share = Share::default();
        assert_eq!(told(&mut share, 1_000, 0), BATCH);
        assert_eq!(share.choice(BATCH), BATCH);
        assert_eq!(told(&mut share, 700, 300), 500);
        assert_eq!(share.choice(500), BATCH, "it chooses among more than it asks for");
        assert_eq!(told(&mut share, 100, 400), 250);
        assert_eq!(told(&mut share, 200, 50), 250, "now and then a loss is no reason");
        assert_eq!(told(&mut share, 0, 3), 250, "nor are three");
        for _ in 0..9 {
            told(&mut share, 0, 100);
        }
        assert_eq!(share.size(usize::MAX), LEAST);
        assert_eq!(share.size(7), 7, "never more than there is room for");
        for size in [250, 500, 1_000, 1_000] {
            assert_eq!(told(&mut share, 100, 0), size);
        }
    }
}
