//! How the runs of other nodes are shown to a node.

use crate::keys::plain;
use allora_core::{Time, record::Record, time::saturating_add};
use std::{collections::HashSet, time::Duration};

/// When to look again at a run that is overdue by our clock while its node lives.
const RECHECK: Duration = Duration::from_secs(5);

/// When to look again, at the latest, at any run of another node: its end is by another clock.
const LATEST: Duration = Duration::from_secs(15);

/// How the runs of other nodes are shown to a node: their ends are by other clocks, so that only
/// their nodes' marks say whether they live.
#[derive(Default)]
pub(crate) struct Seen {
    /// Fence, the end as it is, the end as it was shown.
    pub(crate) ends: Vec<(i64, Time, Time)>,
    /// The nodes that were taken for dead: the write must compare that they are.
    pub(crate) dead: Vec<String>,
}

impl Seen {
    pub(crate) fn of(
        record: &mut Record,
        node: &str,
        now: Time,
        alive: Option<&HashSet<Vec<u8>>>,
    ) -> Self {
        let mut seen = Self::default();
        for hold in record.holds.iter_mut().filter(|hold| hold.node != node) {
            let dead = alive.is_some_and(|alive| !alive.contains(plain(&hold.node).as_bytes()));
            let shown = if dead {
                hold.until.min(now)
            } else {
                hold.until.clamp(saturating_add(now, RECHECK), saturating_add(now, LATEST))
            };
            if dead && !seen.dead.contains(&hold.node) {
                seen.dead.push(hold.node.clone());
            }
            seen.ends.push((hold.fence, hold.until, shown));
            hold.until = shown;
        }
        seen
    }

    /// What was only shown is not written.
    pub(crate) fn put_back(&self, record: &mut Record) {
        for hold in &mut record.holds {
            let end = self.ends.iter().find(|(fence, ..)| *fence == hold.fence);
            if let Some((_, until, shown)) = end
                && hold.until == *shown
            {
                hold.until = *until;
            }
        }
    }
}
