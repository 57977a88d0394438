//! The jobs of this node in a slab. A place that is used again has another generation, so a late
//! reply about the earlier job finds nothing.

use super::{job::slot::Slot, slot_id::SlotId};

/// The number of free places that are kept, beside three for each place in use: stored schedules come
/// and go.
pub(super) const SPARE: usize = 4_096;

#[derive(Default)]
pub(super) struct Slots {
    places: Vec<Place>,
    /// Places that were free, of which some may be used again, or gone.
    free: Vec<u32>,
    /// The number of jobs.
    len: usize,
    /// The generation of new places: no place that is gone had it.
    generation: u32,
}

struct Place {
    /// The number of jobs that have left this place.
    generation: u32,
    slot: Option<Slot>,
}

impl Slots {
    pub(super) fn reserve(&mut self, jobs: usize) {
        self.places.reserve(jobs);
    }

    /// Adds a job; `None` if there is no place left.
    pub(super) fn insert(&mut self, slot: Slot) -> Option<SlotId> {
        let index = loop {
            let Some(index) = self.free.pop() else {
                let index = u32::try_from(self.places.len()).ok()?;
                self.places.push(Place { generation: self.generation, slot: None });
                break index;
            };
            if self.places.get(index as usize).is_some_and(|place| place.slot.is_none()) {
                break index;
            }
        };
        let place = self.places.get_mut(index as usize)?;
        place.slot = Some(slot);
        self.len += 1;
        Some(SlotId { index, generation: place.generation })
    }

    /// The job, unless it was removed.
    pub(super) fn get(&self, id: SlotId) -> Option<&Slot> {
        let place = self.places.get(id.index as usize)?;
        place.slot.as_ref().filter(|_| place.generation == id.generation)
    }

    pub(super) fn get_mut(&mut self, id: SlotId) -> Option<&mut Slot> {
        let place = self.places.get_mut(id.index as usize)?;
        place.slot.as_mut().filter(|_| place.generation == id.generation)
    }

    pub(super) fn remove(&mut self, id: SlotId) -> Option<Slot> {
        self.get(id)?;
        let place = self.places.get_mut(id.index as usize)?;
        place.generation = place.generation.wrapping_add(1);
        let slot = place.slot.take();
        self.free.push(id.index);
        self.len -= 1;
        self.trim();
        slot
    }

    /// Gives up free places at the end, because many jobs at one time must not cost memory forever.
    fn trim(&mut self) {
        while let Some(Place { generation, slot: None }) = self.places.last() {
            self.generation = self.generation.max(*generation);
            self.places.pop();
        }
        if self.places.capacity() > 4 * self.places.len() + SPARE {
            self.places.shrink_to(2 * self.places.len());
            let places = &self.places;
            self.free.retain(|index| (*index as usize) < places.len());
            self.free.shrink_to(self.places.len());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.places.capacity()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        self.places.iter().zip(0..).filter_map(|(place, index)| {
            Some((SlotId { index, generation: place.generation }, place.slot.as_ref()?))
        })
    }
}
