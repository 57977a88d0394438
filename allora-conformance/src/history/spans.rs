//! Spans of time in which something holds.

use allora_core::Time;
use chrono::TimeDelta;

/// Times in which something holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    pub(super) open: Option<Time>,
    pub(super) closed: Vec<(Time, Time)>,
}

impl Spans {
    pub(super) fn set(&mut self, at: Time, holds: bool) {
        match (self.open, holds) {
            (None, true) => self.open = Some(at),
            (Some(since), false) => {
                self.open = None;
                self.closed.push((since, at));
            }
            _ => {}
        }
    }

    /// The part of `within` that is in one span and longer than `bound`.
    pub(super) fn longer(&self, within: (Time, Time), bound: TimeDelta) -> Option<(Time, Time)> {
        let first = self.closed.partition_point(|(_, to)| *to <= within.0);
        let cut = self.closed[first..].iter().take_while(|(from, _)| *from < within.1);
        let mut cut = cut.map(|(from, to)| ((*from).max(within.0), (*to).min(within.1)));
        cut.find(|(from, to)| *to - *from > bound)
    }

    pub(super) fn covers(&self, (from, to): (Time, Time)) -> bool {
        let first = self.closed.partition_point(|span| span.1 < to);
        self.closed.get(first).is_some_and(|span| span.0 <= from)
    }
}
