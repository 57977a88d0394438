//! The jobs of the planner as they enter and leave it, are switched off and on, and are woken.

use super::{
    Planner,
    job::slot::{Off, Origin, Phase, Slot},
    slot_id::SlotId,
    wake_up::{MINUTE, When},
};
use crate::{
    backend::{NotRun, Outcome},
    condition::Condition,
    error::{Error, ErrorKind, Result},
    event::Event,
    job::{CheckedSchedule, JobSpec},
    name::is_key_record,
    time::{Time, saturating_add},
};
use std::{collections::HashSet, sync::Arc};

impl Planner {
    pub(super) fn add_or_report(&mut self, name: Arc<str>, spec: JobSpec) {
        if let Err(error) = self.add(name.clone(), spec) {
            let invalid = Condition::JobInvalid { job: name, reason: error.chain() };
            self.effects.events.push(Event::Began(invalid));
        }
    }

    /// Adds a job in code. A stored schedule of this name leaves its place to it: the record tells
    /// which of them the store has, and this node runs no other.
    ///
    /// # Errors
    /// `AlreadyExists` if the planner has a job in code of this name.
    pub(super) fn add(&mut self, name: Arc<str>, spec: JobSpec) -> Result {
        // `None` if its schedule is faulty.
        let definition = CheckedSchedule::definition(&spec).ok().map(String::into_boxed_str);
        let placed = self.jobs.named(&name);
        let is_stored = |id| self.jobs.get(id).is_some_and(Slot::is_stored);
        if self.jobs.has_finished(&name) || placed.is_some_and(|id| !is_stored(id)) {
            let twice = format!("the job {name:?} is added twice; names are unique");
            return Err(Error::new(ErrorKind::AlreadyExists, twice));
        }
        if let Some(id) = placed {
            self.leave_place(id);
        }
        let mut slot = Slot::new(name.clone(), spec, Origin::Code, self.config.seed());
        slot.phase = Phase::New(definition);
        let id = self.jobs.insert(slot);
        let id = id.ok_or_else(|| Error::invalid("a scheduler has at most 4 294 967 295 jobs"))?;
        self.watch.job_added(&name);
        self.ahead.read_first(id);
        self.wake(id, Some(When::Next));
        Ok(())
    }

    /// Removes a job. Returns whether the planner had it. Its requests and runs continue, and the name
    /// is free.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let in_code = |id: &SlotId| self.jobs.get(*id).is_some_and(|slot| !slot.is_stored());
        // Stored schedules come and go with the store.
        let placed = self.jobs.named(name).filter(in_code);
        if let Some(id) = placed {
            self.leave_place(id);
        }
        let is_removed = placed.is_some() || self.jobs.remove_finished(name);
        if is_removed {
            self.watch.job_removed(name);
        }
        is_removed
    }

    /// Makes a name free. Requests and runs of its job continue.
    fn leave_place(&mut self, id: SlotId) {
        self.jobs.free_name(id);
        let Some(slot) = self.jobs.get_mut(id) else { return };
        (slot.phase, slot.wake_at) = (Phase::Off(Off::Removed), None);
        self.ahead.remove(id);
        self.free_removed(id);
    }

    /// Frees the slot of a removed job, unless a claim of it may succeed: that is repeated until
    /// there is a reply.
    pub(super) fn free_removed(&mut self, id: SlotId) {
        if self.jobs.get(id).is_some_and(|slot| slot.is_removed() && slot.exchange.is_idle()) {
            self.free(id);
        }
    }

    /// Frees the slot of a job about which nothing is asked.
    pub(super) fn free(&mut self, id: SlotId) -> Option<Slot> {
        self.keys.release(id, &mut self.effects);
        self.outbox.answered(Some(id));
        self.ahead.remove(id);
        self.watch.was_covered(id);
        self.jobs.remove(id)
    }

    /// Frees the slots of the jobs whose schedules have ended.
    pub(super) fn free_finished(&mut self) {
        for id in self.jobs.take_ending() {
            let is_finished = self.jobs.get(id).is_some_and(Slot::is_finished)
                && self.keys.get(id).is_none()
                && !self.outbox.is_failing(Some(id))
                && !self.ahead.waits_for(id);
            if is_finished && let Some(slot) = self.free(id) {
                self.jobs.finish(slot);
            }
        }
        self.jobs.trim();
    }

    /// Gives a job whose schedule has ended a slot again, to be read now. Returns `false` if there is
    /// none of this name.
    pub(super) fn resume_finished(&mut self, name: &str) -> bool {
        let Some(id) = self.jobs.resume(name, self.config.seed()) else { return false };
        self.wake(id, Some(When::Next));
        true
    }

    /// Handles a notification about this record.
    pub(super) fn on_notification(&mut self, name: &str) {
        if is_key_record(name) {
            return self.on_key_free(Some(name));
        }
        match self.jobs.named(name) {
            Some(id) => self.mark_dirty(id),
            None if self.resume_finished(name) => {}
            None => self.due.read_by(When::Next),
        }
    }

    /// Reads every job again: the store's clock was set back, so that times that are known may be of
    /// a clock that was ahead.
    pub(super) fn on_clock_set_back(&mut self) {
        self.outbox.clock_was_set_back();
        self.watch.forget_mark();
        self.keys.ask_now();
        let ids: Vec<SlotId> = self.jobs.iter().map(|(id, _)| id).collect();
        let in_code = self.jobs.iter().filter(|(_, slot)| slot.is_in_code());
        self.ahead.read_again(in_code.map(|(id, _)| id));
        ids.into_iter().for_each(|id| self.mark_dirty(id));
    }

    /// Marks a job as changed. It is read after the pending reply, if there is one. The same holds
    /// while a claim whose reply was lost waits for its repetition: a read before would discard a
    /// claim that may have succeeded.
    pub(super) fn mark_dirty(&mut self, id: SlotId) {
        let Some(slot) = self.jobs.get_mut(id) else { return };
        if slot.exchange.note_newer() {
            return;
        }
        match slot.phase {
            Phase::Known(_) | Phase::Stale => self.read_at(id, When::Next),
            // A registration shows the record, too.
            Phase::New(_) | Phase::Redefine(_) | Phase::Off(_) => self.wake(id, Some(When::Next)),
        }
    }

    /// Sets the time at which the job is looked at next. A job whose operations fail waits longer.
    pub(super) fn wake(&mut self, id: SlotId, at: Option<When>) {
        let at = at.map(|at| self.outbox.delay(Some(id), at));
        self.jobs.wake(id, at, |id| self.outbox.is_failing(Some(id)));
    }

    pub(super) fn read_at(&mut self, id: SlotId, at: When) {
        if let Some(slot) = self.jobs.get_mut(id).filter(|slot| !slot.is_removed()) {
            slot.phase = Phase::Stale;
            self.wake(id, Some(at));
        }
    }

    /// Sends nothing about these jobs until an update of one of their runs has a reply, or this time
    /// comes.
    pub(super) fn hold(&mut self, names: &HashSet<Arc<str>>, until: Time) {
        for name in names {
            let Some(id) = self.jobs.named(name) else { continue };
            let Some(slot) = self.jobs.get(id).filter(|slot| !slot.exchange.is_asked()) else {
                continue;
            };
            let is_idle = slot.exchange.is_idle();
            self.outbox.hold(id, until);
            if is_idle {
                self.wake(id, Some(When::At(until)));
            }
        }
    }

    /// Stops running a job for a reason, until it is looked at again.
    pub(super) fn turn_off(&mut self, id: SlotId, off: Off, now: Time) {
        let recheck_at = self.off_until(id, &off, now);
        let Some(slot) = self.jobs.get_mut(id) else { return };
        slot.report(Some(off.clone()), &mut self.effects.events);
        if off == Off::Deleted {
            slot.note_cursor(None);
        }
        slot.phase = Phase::Off(off);
        self.keys.release(id, &mut self.effects);
        self.wake(id, Some(When::At(recheck_at)));
    }

    /// The time at which a job that is off is looked at again.
    fn off_until(&self, id: SlotId, off: &Off, now: Time) -> Time {
        let soonest = saturating_add(now, MINUTE);
        let Some(slot) = self.jobs.get(id).filter(|_| *off == Off::Deleted) else {
            return soonest;
        };
        let next = CheckedSchedule::of(&slot.name, &slot.spec).following(now, 0);
        let latest = saturating_add(now, crate::record::TOMBSTONE / 2);
        next.map_or(soonest, |next| next.map_or(latest, |next| next.due_at.clamp(soonest, latest)))
    }

    /// Reports that a job runs again that was off.
    pub(super) fn turn_on(&mut self, id: SlotId) {
        self.ahead.resumes(id);
        if let Some(slot) = self.jobs.get_mut(id) {
            slot.report(None, &mut self.effects.events);
        }
    }
}

pub(super) fn not_run(name: Arc<str>, kind: Arc<str>, first: Time, range: &NotRun) -> Event {
    let NotRun { last, count, reason } = *range;
    match range.outcome() {
        Outcome::Skipped => Event::OccurrencesSkipped { name, kind, first, last, count, reason },
        _ => Event::OccurrencesMissed { name, kind, first, last, count, reason },
    }
}
