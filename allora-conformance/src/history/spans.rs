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
        self.parts(within).find(|(from, to)| *to - *from > bound)
    }

    /// The parts of `within` that are in a span.
    pub(super) fn parts(&self, within: (Time, Time)) -> impl Iterator<Item = (Time, Time)> {
        let first = self.closed.partition_point(|(_, to)| *to <= within.0);
        let cut = self.closed[first..].iter().take_while(move |(from, _)| *from < within.1);
        cut.map(move |(from, to)| ((*from).max(within.0), (*to).min(within.1)))
    }

    /// The times that are in a span of both.
    pub(super) fn and(&self, other: &Self) -> Self {
        let both = self.closed.iter().flat_map(|span| other.parts(*span));
        Self { open: None, closed: both.collect() }
    }

    pub(super) fn covers(&self, (from, to): (Time, Time)) -> bool {
        let first = self.closed.partition_point(|span| span.1 < to);
        self.closed.get(first).is_some_and(|span| span.0 <= from)
    }
}
