//! Stored schedules that have a slot in the planner: a search finds them, they run while they are
//! due soon, and then leave their slots.

use super::{
    Planner, RunUpdate,
    job::slot::{Origin, Phase, Slot},
    slot_id::SlotId,
    wake_up::When,
};
use crate::{
    backend::{Cursor, JobState, Reply},
    stored::Router,
    time::{Time, saturating_add},
};
use std::{sync::Arc, time::Duration};

/// A schedule that is due within this time keeps its slot. It is more than the range of a search.
const SOON: Duration = Duration::from_secs(2);

impl Planner {
    /// Applies a stored schedule that wants attention. Returns whether this node can run it.
    pub(super) fn found_stored(&mut self, state: &JobState, now: Time) -> bool {
        if self.due.leave_to_query(state, now) {
            return true;
        }
        let Some(spec) = self.due.code_of(state, &mut self.effects.events) else { return false };
        if self.turns.shares.leave_to_others(state, spec.settings.late_by_at_most(), now) {
            return false;
        }
        let name: Arc<str> = state.name.as_str().into();
        let mut slot = Slot::new(name, spec, Origin::Stored, self.config.seed());
        slot.agreed = Some(state.generation);
        let Some(id) = self.jobs.insert(slot) else { return false };
        self.learn_stored(id, state, now);
        true
    }

    /// Applies the current state of a stored schedule.
    pub(super) fn learn_stored(&mut self, id: SlotId, state: &JobState, now: Time) {
        let agreed = self.jobs.get(id).and_then(|slot| slot.agreed);
        // Its kind, definition and data are unchanged as long as its generation is.
        if state.unreadable.is_some() || agreed != Some(state.generation) {
            let Some(spec) = self.due.code_of(state, &mut self.effects.events) else {
                return drop(self.free(id));
            };
            let Some(slot) = self.jobs.get_mut(id) else { return };
            (slot.spec, slot.agreed) = (spec, Some(state.generation));
        }
        self.know(id, state, now);
    }

    /// A calendar that this node has read is new, changed or gone: the code for each stored schedule is
    /// chosen again, and what is due is searched.
    pub(super) fn on_calendars(&mut self) {
        let stored = self.jobs.iter().filter(|(_, slot)| slot.is_stored());
        let ids: Vec<SlotId> = stored.map(|(id, _)| id).collect();
        for id in ids {
            if let Some(slot) = self.jobs.get_mut(id) {
                slot.agreed = None;
            }
            self.mark_dirty(id);
        }
        self.due.read_by(When::Next);
    }

    /// The kinds of handlers have changed: schedules with another handler, or without one, leave their
    /// slots, and a search finds those that have one.
    pub(super) fn on_handlers(&mut self, router: &Router) {
        let has_moved = |slot: &Slot| {
            let payload = slot.spec.payload.as_ref().filter(|_| slot.is_stored());
            payload.is_some_and(|payload| router.handler_of(&payload.kind) != Some(payload.handler))
        };
        let moved = self.jobs.iter().filter(|(_, slot)| has_moved(slot)).map(|(id, _)| id);
        for id in moved.collect::<Vec<_>>() {
            match self.jobs.get_mut(id) {
                // The reply is about the handler of before; what it brings is read again.
                Some(slot) if !slot.exchange.is_idle() => {
                    slot.agreed = None;
                    self.mark_dirty(id);
                }
                _ => drop(self.free(id)),
            }
        }
        self.due.forget_broken(&mut self.effects.events);
        self.due.read_by(When::Next);
    }

    /// The present slot of the job of a run.
    pub(super) fn place_of(&self, id: Option<SlotId>, name: &str) -> Option<SlotId> {
        let is_there = |id: &SlotId| self.jobs.get(*id).is_some_and(|slot| !slot.is_removed());
        id.filter(is_there).or_else(|| self.jobs.named(name))
    }

    /// Applies the end of a run whose schedule has no slot any more.
    pub(super) fn on_unplaced_update(&mut self, run: &RunUpdate) {
        match (&run.reply, run.completed) {
            (Reply::Extended(_) | Reply::Completed(_) | Reply::CancelRequested(_), _)
            | (Reply::Accepted, Some(Cursor::Keep | Cursor::To(None))) => {}
            // A query has claimed it, and claims its next occurrence, too.
            (Reply::Accepted, Some(Cursor::To(Some(next))))
                if run.slot.is_none()
                    && self.due.claims_next(next.due_at, saturating_add(self.now, SOON)) =>
            {
                self.due.claim_next(next.due_at, run.window);
            }
            (Reply::Accepted, Some(Cursor::To(Some(next)))) => {
                self.due.read_by(When::At(next.due_at));
            }
            _ if self.resume_finished(&run.name) => {}
            _ => self.due.read_by(When::Next),
        }
    }

    /// Frees the slots of the schedules that are not due soon. A search finds them again.
    pub(super) fn evict_idle(&mut self, now: Time) {
        let soon = saturating_add(now, SOON);
        for id in self.jobs.take_idle() {
            let Some(slot) = self.jobs.get(id).filter(|slot| slot.exchange.is_idle()) else {
                continue;
            };
            let Phase::Known(known) = &slot.phase else { continue };
            match known.wants_attention() {
                Some(at) if at <= soon => continue,
                Some(at) => self.due.read_by(When::At(at)),
                None => {}
            }
            self.free(id);
        }
    }
}
