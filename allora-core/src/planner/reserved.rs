//! The capacity that requests reserve because a run may follow: claims and keys on their way, or without a
//! reply, and what queries claim.
//!
//! A request whose reply was lost may stay unresolved for as long as its lease, and there may be many: one
//! shard of the store hangs. So all that is unresolved reserves at most half of the capacity. What it wins
//! while there is no room for it is released.

use super::{
    Planner,
    capacity::Reserved,
    key::KeyState,
    slot::{Phase, Slot},
    slot_id::SlotId,
};

impl Planner {
    /// Sets the capacity of the node, of which unresolved requests reserve at most half, and that of each
    /// limited handler. Those of jobs that run on every node reserve none: half is left to the others.
    pub(crate) fn with_capacity(mut self, runs: usize, kinds: Vec<usize>) -> Self {
        let share = if self.every_node.is_some() { 0 } else { runs / 2 };
        (self.capacity.most_unresolved, self.capacity.kind_limits) = (share, kinds);
        self
    }

    /// Sets the number of further runs for which there is capacity, in all and for each limited handler,
    /// when replies are applied.
    pub(crate) fn set_room(&mut self, room: usize, kind_room: Vec<usize>) {
        (self.capacity.room, self.capacity.kind_room) = (room, kind_room);
    }

    /// The number of runs for which capacity is reserved.
    pub(crate) fn reserved(&self) -> usize {
        self.reservations().within(self.capacity.most_unresolved)
    }

    fn reservations(&self) -> Reserved {
        let mut reserved = self.reserved_by_queries();
        reserved.firm += self.claiming.len();
        reserved.unresolved += self.repeating.len() + self.unresolved.len();
        for (_, is_unresolved) in self.reserved_by_keys() {
            *(if is_unresolved { &mut reserved.unresolved } else { &mut reserved.firm }) += 1;
        }
        reserved
    }

    /// The capacity that queries and what they have claimed have reserved.
    fn reserved_by_queries(&self) -> Reserved {
        let claims = &self.due_claims;
        let asked = claims.asked.as_ref().filter(|asked| !asked.is_doubtful());
        let asked = asked.map_or(0, |asked| asked.request.limit);
        let claimed = claims.unplanned.len() + claims.sent;
        match self.failing.contains(SlotId::NONE) {
            true => Reserved { firm: asked, unresolved: claimed },
            false => Reserved { firm: asked + claimed, unresolved: 0 },
        }
    }

    /// The jobs whose keys are held, or may be held because a reply was lost (`true`), while nothing is
    /// asked about them.
    fn reserved_by_keys(&self) -> impl Iterator<Item = (SlotId, bool)> {
        self.keyed.iter().filter_map(|id| {
            let slot = self.slots.get(*id).filter(|slot| slot.exchange.is_idle())?;
            match slot.key()?.state {
                KeyState::Granted { .. } => Some((*id, false)),
                KeyState::Asked => Some((*id, true)),
                KeyState::Busy { .. } => None,
            }
        })
    }

    /// The capacity that is reserved in each limited handler.
    pub(super) fn reserved_by_kind(&self) -> Vec<usize> {
        let mut reserved = vec![Reserved::default(); self.limited.len()];
        let firm = self.claiming.iter().map(|id| (*id, false));
        let unresolved = self.repeating.iter().chain(&self.unresolved).map(|id| (*id, true));
        for (id, is_unresolved) in firm.chain(unresolved).chain(self.reserved_by_keys()) {
            let kind = self.slots.get(id).and_then(Slot::limited);
            let Some(of_kind) = kind.and_then(|kind| reserved.get_mut(kind)) else { continue };
            *(if is_unresolved { &mut of_kind.unresolved } else { &mut of_kind.firm }) += 1;
        }
        let most = |kind: usize| self.capacity.kind_limits.get(kind).map_or(usize::MAX, |n| n / 2);
        reserved.iter().enumerate().map(|(kind, one)| one.within(most(kind))).collect()
    }

    /// `true` if there is capacity now for what an unresolved request has won about this job, beside all
    /// that is reserved firmly.
    pub(super) fn has_room_for(&self, id: SlotId) -> bool {
        if self.capacity.room <= self.reservations().firm {
            return false;
        }
        let kind_of = |id: SlotId| self.slots.get(id).and_then(Slot::limited);
        let Some(kind) = kind_of(id) else { return true };
        let by_keys = self.reserved_by_keys().filter(|(_, is_unresolved)| !is_unresolved);
        let firm = self.claiming.iter().copied().chain(by_keys.map(|(id, _)| id));
        let firm = firm.filter(|id| kind_of(*id) == Some(kind)).count();
        self.capacity.kind_room.get(kind).is_none_or(|room| *room > firm)
    }

    /// Takes capacity for a run that begins.
    pub(super) fn take_room(&mut self, id: SlotId) {
        let kind = self.slots.get(id).and_then(Slot::limited);
        self.capacity.take(kind);
    }

    /// `true` if the next operation on this job may be one that needs capacity. One with a key has it, and
    /// one that replaces a run waits for none.
    pub(super) fn needs_room(&self, id: SlotId) -> bool {
        let needs_room = |slot: &Slot| {
            matches!(slot.phase, Phase::Known(_))
                && !slot.key().is_some_and(|key| key.may_be_held())
        };
        self.slots.get(id).is_some_and(needs_room) && !self.replacing.contains(&id)
    }
}
