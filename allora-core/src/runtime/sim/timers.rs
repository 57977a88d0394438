//! The timers: a heap by time. The entry of a dropped timer stays in the heap until such entries
//! are the greater part.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    task::Waker,
};

#[derive(Debug, Default)]
pub(super) struct Timers {
    slots: Vec<Option<Timer>>,
    free: Vec<usize>,
    heap: BinaryHeap<Reverse<Entry>>,
    /// The number of heap entries without a timer.
    stale: usize,
    serial: u64,
}

#[derive(Debug)]
struct Timer {
    serial: u64,
    node: usize,
    /// On the node's monotonic clock.
    at: u64,
    /// `true` if the heap has its entry. A timer has at most one.
    queued: bool,
    waker: Option<Waker>,
}

/// Ordered by time, and for equal times by age, so that the order is reproducible.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    due: u64,
    serial: u64,
    slot: usize,
}

impl Timers {
    /// A new timer, by its slot.
    pub(super) fn arm(&mut self, node: usize, at: u64, due: u64, waker: Waker) -> usize {
        self.serial += 1;
        let timer = Timer { serial: self.serial, node, at, queued: true, waker: Some(waker) };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        self.slots[slot] = Some(timer);
        self.heap.push(Reverse(Entry { due, serial: self.serial, slot }));
        slot
    }

    /// Sets the waker of a timer and returns the previous one, which the caller drops without a
    /// lock: wakers may run user code.
    pub(super) fn renew(&mut self, slot: usize, due: u64, waker: &Waker) -> Option<Waker> {
        let timer = self.slots[slot].as_mut()?;
        if !timer.queued {
            timer.queued = true;
            self.heap.push(Reverse(Entry { due, serial: timer.serial, slot }));
        }
        match &timer.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => timer.waker.replace(waker.clone()),
        }
    }

    /// Removes a timer and returns its waker, which the caller drops.
    pub(super) fn disarm(&mut self, slot: usize) -> Option<Waker> {
        let timer = self.slots[slot].take()?;
        self.free.push(slot);
        if timer.queued {
            self.stale += 1;
            if self.stale > 64 && self.stale > self.heap.len() / 2 {
                let slots = &self.slots;
                self.heap.retain(|Reverse(entry)| entry.of(slots).is_some());
                self.stale = 0;
            }
        }
        timer.waker
    }

    /// The time of the next timer. `due` returns the time of a timer of a node, or `None` if the
    /// node is paused: such timers leave the heap until [`requeue`](Self::requeue).
    pub(super) fn next_due(&mut self, due: impl Fn(usize, u64) -> Option<u64>) -> Option<u64> {
        loop {
            let mut top = self.heap.peek_mut()?;
            let Some(timer) = top.0.of_mut(&mut self.slots) else {
                self.stale -= 1;
                PeekMut::pop(top);
                continue;
            };
            match due(timer.node, timer.at) {
                None => {
                    timer.queued = false;
                    PeekMut::pop(top);
                }
                Some(due) if due > top.0.due => top.0.due = due,
                Some(due) => return Some(due),
            }
        }
    }

    /// Fires the timer that [`next_due`](Self::next_due) has found. Returns its number and its
    /// waker.
    pub(super) fn fire(&mut self) -> Option<(u64, Option<Waker>)> {
        let Reverse(entry) = self.heap.pop()?;
        let timer = entry.of_mut(&mut self.slots)?;
        timer.queued = false;
        Some((timer.serial, timer.waker.take()))
    }

    /// Returns the timers of a node that continues to the heap.
    pub(super) fn requeue(&mut self, node: usize, due: impl Fn(u64) -> u64) {
        for (slot, timer) in self.slots.iter_mut().enumerate() {
            if let Some(timer) = timer.as_mut().filter(|timer| timer.node == node && !timer.queued)
            {
                timer.queued = true;
                self.heap.push(Reverse(Entry { due: due(timer.at), serial: timer.serial, slot }));
            }
        }
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> (usize, usize) {
        (self.heap.len(), self.slots.len())
    }
}

impl Entry {
    fn of<'t>(&self, slots: &'t [Option<Timer>]) -> Option<&'t Timer> {
        slots[self.slot].as_ref().filter(|timer| timer.serial == self.serial)
    }

    fn of_mut<'t>(&self, slots: &'t mut [Option<Timer>]) -> Option<&'t mut Timer> {
        slots[self.slot].as_mut().filter(|timer| timer.serial == self.serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(timers: &mut Timers, at: u64) -> usize {
        timers.arm(0, at, at, Waker::noop().clone())
    }

    fn fired(timers: &mut Timers) -> Vec<u64> {
        std::iter::from_fn(|| {
            let due = timers.next_due(|_, at| Some(at))?;
            timers.fire().map(|_| due)
        })
        .collect()
    }

    #[test]
    fn timers_fire_by_time_and_dropped_ones_do_not() {
        let mut timers = Timers::default();
        let slots = [3, 1, 2].map(|at| arm(&mut timers, at));
        timers.disarm(slots[1]);
        assert_eq!(fired(&mut timers), [2, 3]);
    }

    #[test]
    fn dropped_timers_do_not_pile_up() {
        let mut timers = Timers::default();
        for at in 0..10_000 {
            let slot = arm(&mut timers, 1_000_000 + at);
            timers.disarm(slot);
        }
        let (heap, slots) = timers.entries();
        assert!(heap <= 130 && slots == 1, "{heap} entries, {slots} slots");
        assert_eq!(fired(&mut timers), [0_u64; 0]);
    }

    #[test]
    fn the_timers_of_a_node_that_stands_still_wait_until_it_goes_on() {
        let mut timers = Timers::default();
        arm(&mut timers, 1);
        assert_eq!(timers.next_due(|_, _| None), None);
        timers.requeue(0, |at| at + 5);
        assert_eq!(timers.next_due(|_, at| Some(at + 5)), Some(6));
    }

    #[test]
    fn a_timer_that_is_due_later_than_thought_is_put_off() {
        let mut timers = Timers::default();
        arm(&mut timers, 1);
        arm(&mut timers, 3);
        let later = |_, at| Some(if at == 1 { 4 } else { at });
        assert_eq!(timers.next_due(later), Some(3));
    }
}
