//! The times at which runs are looked at, in a queue: looking costs as much as is due, and not as
//! much as there are runs.

use super::active_run::RunId;
use std::{cmp::Reverse, collections::BinaryHeap, time::Instant};

/// At most one time for each run.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    /// The time of each run: its place is the run's id, which is small.
    times: Vec<Option<Instant>>,
    /// The number of runs that have a time.
    timed: usize,
    /// Entries that are not in `times` are stale.
    queue: BinaryHeap<Reverse<(Instant, RunId)>>,
}

impl TimerQueue {
    /// Sets the time of a run. Returns `true` if it is the first of all.
    pub(crate) fn set(&mut self, id: RunId, at: Instant) -> bool {
        let is_first = self.first().is_none_or(|first| at < first);
        if self.times.len() <= id {
            self.times.resize(id + 1, None);
        }
        let before = self.times[id].replace(at);
        self.timed += usize::from(before.is_none());
        if before != Some(at) {
            self.queue.push(Reverse((at, id)));
            self.compact();
        }
        is_first
    }

    /// Sets the time of a run, unless it has an earlier one. Returns `true` if it is the first of
    /// all.
    pub(crate) fn set_by(&mut self, id: RunId, at: Instant) -> bool {
        let is_earlier = self.of(id).is_none_or(|set| at < set);
        is_earlier && self.set(id, at)
    }

    /// The first time of all.
    pub(crate) fn first(&mut self) -> Option<Instant> {
        while let Some(Reverse((at, id))) = self.queue.peek() {
            if self.of(*id) == Some(*at) {
                return Some(*at);
            }
            self.queue.pop();
        }
        None
    }

    /// Removes the runs whose time has come.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<RunId> {
        let mut due = Vec::new();
        while self.first().is_some_and(|at| at <= now)
            && let Some(Reverse((_, id))) = self.queue.pop()
        {
            self.times[id] = None;
            self.timed -= 1;
            due.push(id);
        }
        due
    }

    fn of(&self, id: RunId) -> Option<Instant> {
        self.times.get(id).copied().flatten()
    }

    /// Removes stale entries when most are.
    fn compact(&mut self) {
        if self.queue.len() > 2 * self.timed + 1_024 {
            let times = self.times.iter().enumerate();
            self.queue = times.filter_map(|(id, at)| Some(Reverse(((*at)?, id)))).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn start() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "an `Instant` cannot be made from nothing")]
        Instant::now()
    }

    #[test]
    fn five_thousand_runs_are_looked_at_when_they_are_due() {
        let (start, mut timers) = (start(), TimerQueue::default());
        let ms = |ms: u64| start + Duration::from_millis(ms);
        for id in 0..5_000 {
            timers.set(id, ms(2 * id as u64));
        }
        // Each is due every ten seconds.
        let mut looks = 0;
        for now in 0..30_000 {
            for id in timers.take_due(ms(now)) {
                looks += 1;
                timers.set(id, ms(now + 10_000));
            }
        }
        assert_eq!(looks, 15_000);
        assert!(timers.queue.len() <= 5_000);
    }

    #[test]
    fn the_last_time_of_a_run_counts_and_earlier_ones_leave_nothing() {
        let (start, mut timers) = (start(), TimerQueue::default());
        let ms = |ms: u64| start + Duration::from_millis(ms);
        assert!(timers.set(1, ms(500)));
        assert!(!timers.set(2, ms(600)));
        assert!(!timers.set_by(2, ms(700)), "the earlier time is kept");
        for n in 0..100_000 {
            timers.set(1, ms(1_000 + n));
        }
        assert!(timers.queue.len() < 2_000, "{}", timers.queue.len());
        assert_eq!(timers.first(), Some(ms(600)));
        assert_eq!(timers.take_due(ms(100_998)), [2]);
        assert_eq!(timers.take_due(ms(100_999)), [1]);
        assert_eq!((timers.first(), timers.timed), (None, 0));
    }
}
