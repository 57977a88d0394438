//! The kinds of stored schedules whose simultaneous runs this node limits. Occurrences beyond a limit
//! are put aside: they are claimed by other nodes, or by this one when a run has ended.

use super::{
    Planner,
    key::SlotKey,
    machine::Limited,
    slot::{Phase, Slot},
    slot_id::SlotId,
};
use crate::time::Time;

impl Planner {
    /// Sets the number of runs for which each limited handler has capacity, for the next tick.
    pub(crate) fn set_kind_room(&mut self, room: Vec<usize>) {
        self.limited.resize_with(room.len(), Limited::default);
        for (limited, room) in self.limited.iter_mut().zip(room) {
            limited.room = room;
        }
    }

    /// `true` for a limited handler that has no capacity for what is due. The kinds of its handler need
    /// not be searched.
    pub(crate) fn is_at_limit(&self, kind: usize) -> bool {
        self.limited.get(kind).is_some_and(|one| one.room == 0 && !one.aside.is_empty())
    }

    /// Reserves capacity for claims without a reply and for keys, and looks again at the jobs for which
    /// there is capacity.
    pub(super) fn take_from_aside(&mut self) {
        if self.limited.is_empty() {
            return;
        }
        let reserved = self.reserved_by_kind();
        for (limited, reserved) in self.limited.iter_mut().zip(reserved) {
            limited.room = limited.room.saturating_sub(reserved);
        }
        for kind in 0..self.limited.len() {
            let mut left = self.limited[kind].room;
            while left > 0
                && let Some((at, _, id)) = self.limited[kind].aside.pop_first()
            {
                let Some(slot) = self.slots.get_mut(id) else { continue };
                let aside = slot.rare.as_mut().map(|rare| &mut rare.aside);
                if aside.and_then(|aside| aside.take_if(|aside| *aside == at)).is_none() {
                    continue;
                }
                if slot.wake_at.is_none() && matches!(slot.phase, Phase::Known(_)) {
                    self.look_again(id);
                    left -= 1;
                }
            }
        }
    }

    /// Puts a job aside that is due since `at`, if its handler has no capacity. Returns whether it has
    /// done so.
    pub(super) fn put_aside(&mut self, id: SlotId, at: Time) -> bool {
        let Some(slot) = self.slots.get_mut(id) else { return false };
        let has_key = slot.key().is_some_and(SlotKey::may_be_held);
        let is_replacing = self.replacing.contains(&id);
        if has_key || is_replacing || !matches!(slot.phase, Phase::Known(_)) {
            return false;
        }
        let Some(limited) = slot.limited().and_then(|kind| self.limited.get_mut(kind)) else {
            return false;
        };
        if limited.room > 0 {
            return false;
        }
        if let Some(before) = slot.rare.get_or_insert_default().aside.replace(at) {
            limited.aside.remove(&(before, slot.rank, id));
        }
        limited.aside.insert((at, slot.rank, id))
    }

    /// Takes capacity for a claim that is sent. A key that was held has it already.
    pub(super) fn take_kind_room(&mut self, id: SlotId, had_key: bool) {
        let kind = self.slots.get(id).and_then(Slot::limited);
        if let Some(limited) = kind.and_then(|kind| self.limited.get_mut(kind)).filter(|_| !had_key)
        {
            limited.room = limited.room.saturating_sub(1);
        }
    }

    /// `true` if a limited handler has capacity, and jobs are aside.
    pub(super) fn has_aside(&self) -> bool {
        self.limited.iter().any(|one| one.room > 0 && !one.aside.is_empty())
    }
}
