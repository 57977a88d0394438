//! The capacity that requests reserve because a run may follow: claims and keys that are on their
//! way or have no reply, and what queries claim.
//!
//! If one shard of the store hangs, many requests may stay unresolved for as long as their leases.
//! So all that is unresolved reserves at most half of the capacity. If such a claim turns out to
//! have won and there is no room for its run, it is released.

use super::{
    Planner,
    capacity::Reserved,
    job::slot::{Phase, Slot},
    slot_id::SlotId,
    wake_up::When,
};

impl Planner {
    pub(super) fn reservations(&self) -> Reserved {
        let mut reserved = self.due.reserved(self.outbox.is_failing(None));
        let claims = self.outbox.reserved();
        reserved.firm += claims.firm;
        reserved.unresolved += claims.unresolved;
        self.reserved_by_keys().for_each(|(_, is_unresolved)| reserved.add(is_unresolved));
        reserved
    }

    /// The jobs whose keys are held, or may be held because a reply was lost (`true`), while nothing is
    /// asked about them.
    fn reserved_by_keys(&self) -> impl Iterator<Item = (SlotId, bool)> {
        self.keys.reserved(|id| self.jobs.get(id).is_some_and(|slot| slot.exchange.is_idle()))
    }

    /// The limited handler of a job.
    pub(super) fn kind_of(&self, id: SlotId) -> Option<usize> {
        self.jobs.get(id).and_then(Slot::limited)
    }

    /// Reserves capacity of the limited handlers for claims without a reply and for keys, and looks
    /// again at the jobs for which there is capacity.
    pub(super) fn take_from_aside(&mut self) {
        if self.capacity.kinds() == 0 {
            return;
        }
        let mut reserved = vec![Reserved::default(); self.capacity.kinds()];
        for (id, is_unresolved) in self.outbox.claims().chain(self.reserved_by_keys()) {
            let of_kind = self.kind_of(id).and_then(|kind| reserved.get_mut(kind));
            of_kind.into_iter().for_each(|reserved| reserved.add(is_unresolved));
        }
        self.capacity.reserve_kinds(&reserved);
        let mut taken = Vec::new();
        let jobs = &mut self.jobs;
        self.capacity.take_from_aside(|(at, _, id)| {
            let Some(slot) = jobs.get_mut(id) else { return false };
            let aside = slot.rare.as_mut().map(|rare| &mut rare.aside);
            let is_aside = aside.and_then(|aside| aside.take_if(|aside| *aside == at)).is_some();
            let looks = is_aside && slot.wake_at.is_none() && matches!(slot.phase, Phase::Known(_));
            taken.extend(looks.then_some(id));
            looks
        });
        taken.into_iter().for_each(|id| self.look_again(id));
    }

    /// Puts a job aside that is due since `at`, if its handler has no capacity. Returns whether it has
    /// done so.
    pub(super) fn put_aside(&mut self, id: SlotId, at: When) -> bool {
        let Some(kind) = self.kind_of(id).filter(|kind| !self.capacity.has_kind_room(*kind)) else {
            return false;
        };
        if !self.needs_room(id) {
            return false;
        }
        let Some(slot) = self.jobs.get_mut(id) else { return false };
        let rank = slot.rank;
        let before = slot.rare.get_or_insert_default().aside.replace(at);
        self.capacity.put_aside(kind, (at, rank, id), before.map(|before| (before, rank, id)))
    }

    /// `true` if there is capacity now for what an unresolved request has won about this job, beside
    /// all that is reserved firmly.
    pub(super) fn has_room_for(&self, id: Option<SlotId>) -> bool {
        let kind = id.and_then(|id| self.kind_of(id));
        let of_kind = kind.map(|kind| {
            let all = self.outbox.claims().chain(self.reserved_by_keys());
            let firm = all.filter(|(_, is_unresolved)| !is_unresolved);
            (kind, firm.filter(|(id, _)| self.kind_of(*id) == Some(kind)).count())
        });
        self.capacity.exceeds(self.reservations().firm, of_kind)
    }

    /// Takes capacity for a run that begins.
    pub(super) fn take_room(&mut self, id: Option<SlotId>) {
        self.capacity.take(id.and_then(|id| self.kind_of(id)));
    }

    /// `true` if the next operation on this job may be one that needs capacity. One with a key has it,
    /// and one that replaces a run waits for none.
    pub(super) fn needs_room(&self, id: SlotId) -> bool {
        let is_known = self.jobs.get(id).is_some_and(|slot| matches!(slot.phase, Phase::Known(_)));
        is_known && !self.keys.may_hold(id) && !self.jobs.is_replacing(id)
    }
}
