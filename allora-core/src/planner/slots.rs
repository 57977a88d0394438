//! The jobs of this node, in a slab: a place that is used again has another generation.

use super::{slot::Slot, slot_id::SlotId};

#[derive(Default)]
pub(super) struct Slots {
    places: Vec<Place>,
    free: Vec<u32>,
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
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.places.len()).ok()?;
                self.places.push(Place { generation: 0, slot: None });
                index
            }
        };
        let place = self.places.get_mut(index as usize)?;
        place.slot = Some(slot);
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
        self.free.push(id.index);
        place.slot.take()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        self.places.iter().zip(0..).filter_map(|(place, index)| {
            Some((SlotId { index, generation: place.generation }, place.slot.as_ref()?))
        })
    }
}
