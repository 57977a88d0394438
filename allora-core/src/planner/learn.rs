//! The current state of a record, applied to the job.

use super::{
    Planner,
    known::Known,
    slot::{Off, Origin, Phase, Slot},
    slot_id::SlotId,
    wake_up::{NOW, recheck},
};
use crate::{
    backend::{JobState, NextRun, OnExpiry},
    event::Event,
    job::CheckedSchedule,
    time::Time,
};

impl Planner {
    /// Applies the current state of one job.
    pub(super) fn learn(
        &mut self,
        id: SlotId,
        state: &JobState,
        now: Time,
        events: &mut Vec<Event>,
    ) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        let disagreement = match &slot.origin {
            Origin::Stored => return self.learn_stored(id, state, now, events),
            Origin::Code(Ok(definition)) => disagreement(slot, definition, state, now),
            Origin::Code(Err(fault)) => Some(Phase::Off(Off::Invalid(fault.to_string()))),
        };
        if state.unreadable.is_none() {
            slot.fence = Some(state.fence);
        }
        match disagreement {
            Some(Phase::Off(off)) => self.turn_off(id, off, now, events),
            None => {
                let was_redefining = matches!(slot.phase, Phase::Redefine { .. });
                events.extend(was_redefining.then(|| Event::Redefined { name: slot.name.clone() }));
                slot.agreed = Some(state.generation);
                self.know(id, state, now, events);
            }
            Some(phase) => {
                slot.phase = phase;
                self.wake(id, Some(NOW));
            }
        }
    }

    /// Applies a record that this node and the store agree on.
    pub(super) fn know(
        &mut self,
        id: SlotId,
        state: &JobState,
        now: Time,
        events: &mut Vec<Event>,
    ) {
        let mut known = Known::of(state, now);
        let Some(slot) = self.slots.get(id) else { return };
        let is_own = |claim_id: u128| {
            let drawn = self.next_claim_id.wrapping_sub(self.first_claim_id);
            claim_id.wrapping_sub(self.first_claim_id) < drawn
        };
        // The end of a run of this node is seen when it comes.
        let leased = state.leases.iter().find(|lease| lease.on_expiry == OnExpiry::Retry);
        if leased.is_some_and(|lease| !is_own(lease.claim_id)) && !known.paused {
            known.after_lease =
                after_lease(slot, &known).map(|next| (next, recheck(next.due_at, now, self.poll)));
        }
        // A fault of the schedule is over when it is asked without one.
        if !matches!(slot.reported.as_deref(), None | Some(Off::Invalid(_))) {
            self.turn_on(id, events);
        }
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.phase = Phase::Known(known);
        self.look_again(id);
    }

    /// Sets the wake-up of a job whose state is known.
    pub(super) fn look_again(&mut self, id: SlotId) {
        let Some(slot) = self.slots.get(id) else { return };
        let Phase::Known(known) = &slot.phase else { return };
        let mut at = known.wants_attention();
        if !slot.is_stored() {
            let recheck_at = known.recheck_at(self.poll);
            at = Some(at.map_or(recheck_at, |at| at.min(recheck_at)));
        }
        self.wake(id, at);
    }

    /// Returns the number of a search that begins now.
    pub(crate) fn begin_search(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// Applies a due record that the search of this number has found in the store. Returns whether
    /// it shows something new to do.
    pub(crate) fn found(
        &mut self,
        state: &JobState,
        search: u64,
        now: Time,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(&id) = self.by_name.get(state.name.as_str()) else {
            return self.found_stored(state, now, events);
        };
        let Some(slot) = self.slots.get_mut(id) else { return false };
        let seen = (state.fence, state.due_at, state.generation);
        // Since the search began, a reply or the end of a run may have shown a newer state.
        let has_changed = slot.updated_in.max(slot.replied_in) >= search;
        let is_new = match &slot.phase {
            Phase::Known(known) => (known.fence, known.due_at, known.generation) != seen,
            Phase::New | Phase::Redefine { .. } | Phase::Stale | Phase::Off(_) => false,
        };
        if let Phase::Known(known) = &slot.phase
            && (!slot.exchange.is_idle() || has_changed)
            && (!is_new || known.fence > state.fence)
        {
            return false;
        }
        if slot.exchange.note_newer() {
            return true;
        }
        match &slot.phase {
            Phase::Known(_) if has_changed => {
                self.mark_dirty(id);
                return true;
            }
            Phase::Known(_) => {}
            Phase::Off(Off::Removed) | Phase::New | Phase::Redefine { .. } | Phase::Stale => {
                return false;
            }
            // A state of before must not bring back what a reply has ended.
            Phase::Off(_) if has_changed => return false,
            Phase::Off(_) => {}
        }
        self.learn(id, state, now, events);
        is_new
    }
}

/// The reason why a job in code with this definition cannot be run as the store has it; `None` if
/// the definitions agree.
fn disagreement(slot: &Slot, definition: &str, state: &JobState, now: Time) -> Option<Phase> {
    if let Some(reason) = &state.unreadable {
        return Some(Phase::Off(Off::Unreadable(reason.clone())));
    }
    if !state.kind.is_empty() {
        return Some(Phase::Off(Off::Invalid(format!(
            "a stored schedule of kind {:?} has this name; delete that, or choose another name",
            state.kind
        ))));
    }
    if slot.agreed == Some(state.generation) || definition == state.definition {
        return None;
    }
    if slot.agreed.is_some() || state.version > slot.spec.settings.version {
        return Some(Phase::Off(Off::Conflict));
    }
    Some(Phase::Redefine {
        generation: state.generation,
        after: state.last_started.map_or(now, |last| last.max(now)),
        cursor: state.cursor.filter(|cursor| state.last_started < Some(cursor.scheduled_at)),
        started: state.counters.started,
    })
}

/// The occurrence that is offered after the leased one, if its run is completed.
fn after_lease(slot: &Slot, known: &Known) -> Option<NextRun> {
    known.open_cursor().or_else(|| {
        let started = known.cursor?.scheduled_at;
        // A fault of the schedule is reported when the occurrence is planned.
        CheckedSchedule::of(&slot.name, &slot.spec).following(started, known.started).ok()?
    })
}
