//! The jobs of this node: their slots and names, and the queues of the times at which they are
//! looked at.
//!
//! A job in code has no slot once its schedule has ended and nothing of it waits. Most such jobs
//! ran once and never will again. Their code is kept nevertheless, because a trigger may run it.

use super::{
    job::slot::{Origin, Phase, Slot},
    slot_id::SlotId,
    slots::{SPARE, Slots},
    wake_up::{WakeUp, When},
};
use crate::{job::JobSpec, time::Time};
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap},
    mem,
    sync::Arc,
};

type Queue = BinaryHeap<Reverse<WakeUp>>;

#[derive(Default)]
pub(super) struct Jobs {
    slots: Slots,
    by_name: HashMap<Arc<str>, SlotId>,
    /// The jobs whose schedules have ended. They are not in `by_name`.
    finished: HashMap<Arc<str>, Finished>,
    /// The jobs whose schedules may have ended since the last tick.
    ending: Vec<SlotId>,
    /// The number of stored schedules in `by_name`.
    stored: usize,
    /// The stored schedules whose next time has changed, and that may be evicted.
    idle: Vec<SlotId>,
    /// The wake-up times of the jobs. Entries that their slot does not confirm are stale.
    queue: Queue,
    /// As `queue`, of the jobs whose operations fail.
    suspects: Queue,
    /// The jobs whose due occurrences are not all found yet.
    walking: Vec<SlotId>,
    /// The number of these jobs after the last tick, which share a slice.
    share_slice: usize,
    /// The jobs whose active runs their next occurrence replaces.
    replacing: BTreeSet<SlotId>,
}

/// A part of the [slot](Slot) of a job whose schedule has ended.
struct Finished {
    spec: JobSpec,
    agreed: Option<i64>,
    fence: Option<i64>,
}

impl Jobs {
    /// Makes room for so many more jobs at once: tables that grow step by step leave gaps in the memory
    /// of the process.
    pub(super) fn reserve(&mut self, jobs: usize) {
        self.slots.reserve(jobs);
        self.by_name.reserve(jobs);
        self.queue.reserve(jobs);
    }

    /// The job, unless it was removed.
    pub(super) fn get(&self, id: SlotId) -> Option<&Slot> {
        self.slots.get(id)
    }

    pub(super) fn get_mut(&mut self, id: SlotId) -> Option<&mut Slot> {
        self.slots.get_mut(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        self.slots.iter()
    }

    pub(super) fn named(&self, name: &str) -> Option<SlotId> {
        self.by_name.get(name).copied()
    }

    /// The number of stored schedules with a slot.
    pub(super) fn stored(&self) -> usize {
        self.stored
    }

    /// Adds a job; `None` if there is no place left.
    pub(super) fn insert(&mut self, slot: Slot) -> Option<SlotId> {
        let (name, is_stored) = (slot.name.clone(), slot.is_stored());
        let id = self.slots.insert(slot)?;
        self.stored += usize::from(is_stored);
        self.by_name.insert(name, id);
        Some(id)
    }

    /// Makes the name of a job free. Its slot stays.
    pub(super) fn free_name(&mut self, id: SlotId) {
        if let Some(slot) = self.slots.get(id)
            && self.by_name.get(&slot.name) == Some(&id)
        {
            self.by_name.remove(&slot.name);
            self.stored -= usize::from(slot.is_stored());
        }
    }

    pub(super) fn remove(&mut self, id: SlotId) -> Option<Slot> {
        self.free_name(id);
        self.replacing.remove(&id);
        self.slots.remove(id)
    }

    /// Sets the time at which the job is looked at next.
    pub(super) fn wake(
        &mut self,
        id: SlotId,
        at: Option<When>,
        is_failing: impl Fn(SlotId) -> bool,
    ) {
        let Some(slot) = self.slots.get_mut(id).filter(|slot| !slot.is_removed()) else { return };
        if slot.is_stored() {
            self.idle.push(id);
        }
        // Nothing else is asked until a pending operation has its reply, which sets the time.
        if !slot.exchange.is_idle() || slot.wake_at == at {
            return;
        }
        slot.wake_at = at;
        let rank = slot.rank;
        if let Some(at) = at {
            let queue = if is_failing(id) { &mut self.suspects } else { &mut self.queue };
            queue.push(Reverse((at, rank, id)));
            self.compact(is_failing);
        }
    }

    /// Removes stale entries when most are.
    fn compact(&mut self, is_failing: impl Fn(SlotId) -> bool) {
        if self.queue.len().max(self.suspects.len()) > 2 * self.slots.len() + 1_024 {
            let entry = |(id, slot): (SlotId, &Slot)| Some(Reverse((slot.wake_at?, slot.rank, id)));
            let entries = self.slots.iter().filter_map(entry);
            (self.suspects, self.queue) = entries.partition(|wake_up| is_failing(wake_up.0.2));
        }
    }

    fn confirms(&self, (at, _, id): WakeUp) -> bool {
        self.slots.get(id).is_some_and(|slot| slot.wake_at == Some(at))
    }

    /// The first wake-up of a job whose operations do not fail.
    pub(super) fn next_up(&mut self, is_failing: impl Fn(SlotId) -> bool) -> Option<WakeUp> {
        while let Some(Reverse(wake_up)) = self.queue.peek().copied() {
            let is_up = self.confirms(wake_up);
            if is_up && !is_failing(wake_up.2) {
                return Some(wake_up);
            }
            self.queue.pop();
            self.suspects.extend(is_up.then_some(Reverse(wake_up)));
        }
        None
    }

    /// Removes the wake-up that [`next_up`](Self::next_up) has returned.
    pub(super) fn pop_up(&mut self) {
        self.queue.pop();
    }

    /// Puts a wake-up back that was removed.
    pub(super) fn put_back(&mut self, wake_up: WakeUp) {
        self.queue.push(Reverse(wake_up));
    }

    /// The first wake-up of a job whose operations fail.
    pub(super) fn next_suspect(&mut self) -> Option<WakeUp> {
        while let Some(Reverse(wake_up)) = self.suspects.peek().copied() {
            if self.confirms(wake_up) {
                return Some(wake_up);
            }
            self.suspects.pop();
        }
        None
    }

    /// Removes the wake-ups that are due of the jobs whose operations fail.
    pub(super) fn take_suspects(&mut self, now: Time) -> Vec<WakeUp> {
        let mut due = Vec::new();
        while let Some(wake_up) = self.next_suspect().filter(|(at, ..)| at.is_due(now)) {
            self.suspects.pop();
            due.push(wake_up);
        }
        due
    }

    /// Puts wake-ups back that were removed.
    pub(super) fn put_suspects_back(&mut self, wake_ups: impl IntoIterator<Item = WakeUp>) {
        self.suspects.extend(wake_ups.into_iter().map(Reverse));
    }

    /// Notes that the due occurrences of a job are not all found yet.
    pub(super) fn walks(&mut self, id: SlotId) {
        self.walking.push(id);
    }

    /// The number of jobs that share the time for this.
    pub(super) fn share_slice(&self) -> usize {
        self.share_slice
    }

    /// The jobs whose due occurrences are not all found yet.
    pub(super) fn take_walking(&mut self) -> Vec<SlotId> {
        self.share_slice = self.walking.len();
        mem::take(&mut self.walking)
    }

    /// Sets whether the next occurrence of the job replaces its active runs.
    pub(super) fn set_replacing(&mut self, id: SlotId, is_replacing: bool) {
        match is_replacing {
            true => self.replacing.insert(id),
            false => self.replacing.remove(&id),
        };
    }

    pub(super) fn is_replacing(&self, id: SlotId) -> bool {
        self.replacing.contains(&id)
    }

    pub(super) fn replacing(&self) -> impl Iterator<Item = SlotId> {
        self.replacing.iter().copied()
    }

    pub(super) fn take_idle(&mut self) -> Vec<SlotId> {
        mem::take(&mut self.idle)
    }

    /// `true` if `name` is a job in code whose schedule has ended.
    pub(super) fn has_finished(&self, name: &str) -> bool {
        self.finished.contains_key(name)
    }

    /// Notes the job if its schedule has ended. Its slot is freed when the present work is done.
    pub(super) fn note_finished(&mut self, id: SlotId) {
        if self.slots.get(id).is_some_and(Slot::is_finished) {
            self.ending.push(id);
        }
    }

    /// The jobs whose schedules may have ended.
    pub(super) fn take_ending(&mut self) -> Vec<SlotId> {
        mem::take(&mut self.ending)
    }

    /// Keeps the code of a job whose slot was removed because its schedule has ended.
    pub(super) fn finish(&mut self, slot: Slot) {
        let Slot { name, spec, agreed, fence, .. } = slot;
        self.finished.insert(name, Finished { spec, agreed, fence });
    }

    pub(super) fn trim(&mut self) {
        if self.by_name.capacity() > 4 * self.by_name.len() + SPARE {
            self.by_name.shrink_to(2 * self.by_name.len());
        }
    }

    /// Gives a job whose schedule has ended a slot again, to be read.
    pub(super) fn resume(&mut self, name: &str, seed: u64) -> Option<SlotId> {
        let (name, job) = self.finished.remove_entry(name)?;
        let Finished { spec, agreed, fence } = job;
        let slot = Slot::new(name, spec, Origin::Code, seed);
        self.insert(Slot { phase: Phase::Stale, agreed, fence, ..slot })
    }

    /// Removes a job in code whose schedule has ended.
    pub(super) fn remove_finished(&mut self, name: &str) -> bool {
        self.finished.remove(name).is_some()
    }

    /// The jobs in code: their names, and the generations of the definitions that the node and the
    /// store agree on.
    pub(super) fn in_code(&self) -> impl Iterator<Item = (&Arc<str>, Option<i64>)> {
        let slots = self.slots.iter().map(|(_, slot)| slot);
        let slots = slots.filter(|slot| slot.is_in_code()).map(|slot| (&slot.name, slot.agreed));
        slots.chain(self.finished.iter().map(|(name, job)| (name, job.agreed)))
    }

    /// The sizes of the tables of slots, of names and of wake-ups; and the number of slots.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 4] {
        let (slots, names) = (self.slots.capacity(), self.by_name.capacity());
        [slots, names, self.queue.len(), self.slots.len()]
    }
}
