//! The current state of a record, applied to the job.
//!
//! If a record is absent, either the job was deleted or the store was emptied. The store tells them
//! apart by the fence below which it has removed tombstones. After it was emptied, this node
//! registers the job again. A job that runs at least once begins at the last cursor that this node
//! knows, because that occurrence was not completed. A job that runs at most once begins with its
//! next occurrence, because another node may have run the last one.

use super::{
    FoundRecords, FoundWork, Planner, Search,
    job::adopted::adopted,
    job::known::Known,
    job::slot::{Former, Off, Origin, Phase, Slot},
    places::not_run,
    slot_id::SlotId,
    wake_up::{When, recheck},
};
use crate::{
    backend::{Counters, JobState, NextRun, NotRun, NotRunReason, OnExpiry, Replan},
    event::Event,
    job::{
        CheckedSchedule, Delivery, InvalidNextAt, JobSpec, Overlap, Progress, Redefinition,
        ahead_until, is_code,
    },
    stored::Definition,
    time::{Time, saturating_add},
};
use std::time::Duration;

/// The time after which a node sets its own definition, if a due occurrence waits for a node that can
/// run the stored one.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

impl Planner {
    /// Applies the current state of one job.
    pub(super) fn learn(&mut self, id: SlotId, state: &JobState, now: Time) {
        let is_left =
            self.has_room && is_abandoned(state, now) && !self.turns.others_may_run(state);
        let Some(slot) = self.jobs.get_mut(id) else { return };
        let agreement = match slot.origin {
            Origin::Stored => return self.learn_stored(id, state, now),
            Origin::Code => {
                let is_due = state.due_at.is_some_and(|due_at| due_at <= now);
                agreement(slot, state, now, is_due, is_left)
            }
        };
        // The end of a stored schedule of this name is not the deletion of the job in code.
        if state.unreadable.is_none() && state.kind.is_empty() {
            slot.fence = Some(state.fence);
        }
        match agreement {
            Agreement::Off(off) => self.turn_off(id, off, now),
            Agreement::Same => self.know(id, state, now),
            Agreement::Own => {
                if let Phase::Redefine(former) = &slot.phase {
                    let (name, was_abandoned) = (slot.name.clone(), former.is_abandoned);
                    self.effects.events.extend(match former.missed {
                        Some((first, range)) => {
                            Some(not_run(name, slot.spec.kind(), first, &range))
                        }
                        None if *former.own == *former.definition => None,
                        None => Some(Event::Redefined { name, was_abandoned }),
                    });
                }
                slot.restore_own();
                slot.agreed = Some(state.generation);
                self.know(id, state, now);
            }
            Agreement::Adopted(spec) => {
                self.effects.events.push(Event::DefinitionAdopted { name: slot.name.clone() });
                slot.adopt(spec);
                slot.agreed = Some(state.generation);
                self.know(id, state, now);
            }
            Agreement::Redefine(former) => {
                slot.phase = Phase::Redefine(former);
                self.wake(id, Some(When::Next));
            }
        }
    }

    /// Applies a record that this node and the store agree on.
    pub(super) fn know(&mut self, id: SlotId, state: &JobState, now: Time) {
        let mut known = Known::of(state, now);
        self.watch.was_covered(id);
        let Some(slot) = self.jobs.get(id) else { return };
        // The end of a run of this node is seen when it comes.
        let leased = state.leases.iter().find(|lease| lease.on_expiry == OnExpiry::Retry);
        if leased.is_some_and(|lease| !self.ids.is_own(lease.claim_id)) {
            let next = after_lease(slot, &known);
            let next = next.and_then(|next| Some((next, known.due_after_pause(next)?)));
            known.set_after_lease(
                next.map(|(next, due_at)| (next, recheck(due_at, now, self.config.poll))),
            );
        }
        let ahead = ahead_until(&slot.name, &slot.spec, state, now);
        known.is_ahead = ahead.is_some();
        match ahead {
            Some(until) => self.report_ahead(id, until),
            // A fault of the schedule is over when it is asked without one.
            None if !matches!(slot.reported(), None | Some(Off::Invalid(_))) => {
                self.turn_on(id);
            }
            None => {}
        }
        let Some(slot) = self.jobs.get_mut(id) else { return };
        slot.fence = Some(state.fence);
        slot.note_cursor(state.next);
        slot.phase = Phase::Known(known);
        self.look_again(id);
    }

    /// Reports once that a job in code waits for a time of a clock that was ahead. Stored schedules
    /// have no place while they wait; the watcher reports them.
    fn report_ahead(&mut self, id: SlotId, until: Time) {
        let Some(slot) = self.jobs.get_mut(id).filter(|slot| !slot.is_stored()) else { return };
        if !matches!(slot.reported(), Some(Off::Ahead(_))) {
            slot.report(Some(Off::Ahead(until)), &mut self.effects.events);
            self.ahead.waits(id, until);
        }
    }

    /// Sets the wake-up of a job whose state is known.
    pub(super) fn look_again(&mut self, id: SlotId) {
        let Some(slot) = self.jobs.get(id) else { return };
        let Phase::Known(known) = &slot.phase else { return };
        let settings = &slot.spec.settings;
        let replaces =
            settings.overlap == Overlap::Replace && known.leases() > 0 && !known.is_ending();
        let turn = self.turn_of(id, slot);
        let mut at = known.wants_attention().map(|at| saturating_add(at, turn));
        if !slot.is_stored() {
            let recheck_at = slot.recheck_at(known, self.config.poll, self.is_told);
            at = Some(at.map_or(recheck_at, |at| at.min(recheck_at)));
        }
        let at = self.keys.wake_at(id, at.map(When::At), settings.max_key_wait);
        self.jobs.set_replacing(id, replaces);
        self.wake(id, at);
        self.jobs.note_finished(id);
    }

    /// A search begins now.
    pub(super) fn begin_search(&mut self) -> Search {
        self.tick += 1;
        let known = self.jobs.stored() + self.due.broken() + self.turns.shares.passed();
        Search { number: self.tick, known, preferred: self.turns.shares.preferred() }
    }

    /// Applies the reply to a search.
    pub(super) fn on_found(&mut self, found: FoundRecords) -> FoundWork {
        let FoundRecords { states, now, number, is_full, kinds, is_first, is_whole } = found;
        if let Some(kinds) = kinds {
            self.due.on_search(is_full, is_first, kinds);
            let Self { turns, jobs, due, .. } = self;
            let is_new = |state: &&JobState| {
                let name = state.name.as_str();
                !state.kind.is_empty() && jobs.named(name).is_none() && !due.is_broken(name)
            };
            turns.shares.divide(states.iter().filter(is_new), is_full);
        }
        let mut is_new = false;
        for state in &states {
            is_new |= self.found(state, number, now);
        }
        if kinds.is_some() && is_whole && !is_full {
            self.due.end_sweep(&mut self.effects.events);
        }
        FoundWork {
            is_new,
            claimed_at: self.due.claims_found_at(states.len()),
            left_until: self.turns.shares.left_until(),
            is_losing: self.turns.contention.is_losing(),
        }
    }

    /// Applies a due record that the search of this number has found in the store. Returns whether
    /// it shows something new to do.
    pub(super) fn found(&mut self, state: &JobState, search: u64, now: Time) -> bool {
        let Some(id) = self.jobs.named(&state.name) else {
            if self.resume_finished(&state.name) {
                return true;
            }
            return self.found_stored(state, now);
        };
        let Some(slot) = self.jobs.get_mut(id) else { return false };
        let seen = (state.fence, state.due_at, state.generation);
        // Since the search began, a reply or the end of a run may have shown a newer state.
        let has_changed = slot.updated_in().max(slot.replied_in) >= search;
        let is_new = match &slot.phase {
            Phase::Known(known) => (known.fence, known.due_at, known.generation) != seen,
            Phase::New(_) | Phase::Redefine { .. } | Phase::Stale | Phase::Off(_) => false,
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
            Phase::Off(Off::Removed) | Phase::New(_) | Phase::Redefine(_) | Phase::Stale => {
                return false;
            }
            // A state of before must not bring back what a reply has ended.
            Phase::Off(_) if has_changed => return false,
            Phase::Off(_) => {}
        }
        self.learn(id, state, now);
        is_new
    }
}

/// The way in which this node runs a job in code whose record it has read.
enum Agreement {
    /// As before.
    Same,
    /// By its own definition, which the store has.
    Own,
    /// By the stored definition.
    Adopted(JobSpec),
    /// By its own definition, which replaces the stored one.
    Redefine(Box<Former>),
    /// Not at all.
    Off(Off),
}

/// The agreement about this record. A node that starts sets its definition, unless its version is
/// lower. Later it runs the job by the stored definition, if this build can. If no node has run a due
/// occurrence that this node cannot run by that definition, it sets its own after a while.
fn agreement(
    slot: &Slot,
    state: &JobState,
    now: Time,
    is_due: bool,
    is_abandoned: bool,
) -> Agreement {
    if let Some(reason) = &state.unreadable {
        return Agreement::Off(Off::Unreadable(reason.clone()));
    }
    if !state.kind.is_empty() {
        return Agreement::Off(Off::Invalid(format!(
            "a stored schedule of kind {:?} has this name, and this node runs neither of them; \
             delete the schedule, or choose another name",
            state.kind
        )));
    }
    // The definition is unchanged as long as the generation is.
    let is_known = slot.agreed == Some(state.generation);
    if is_known && !slot.is_adopted() {
        return Agreement::Same;
    }
    let definition = match slot.definition() {
        Err(fault) => return Agreement::Off(Off::Invalid(fault.to_string())),
        Ok(definition) => definition,
    };
    let own = slot.own();
    if definition == state.definition {
        let missed = missed(slot, state, now);
        if missed.is_none() && !(was_reset(state) && has_future(slot, state, now)) {
            return Agreement::Own;
        }
        let former = Former::of(state, Box::from(&*definition), false);
        return Agreement::Redefine(Box::new(Former { missed, ..former }));
    }
    let former = |is_abandoned| {
        let own = Box::from(&*definition);
        Agreement::Redefine(Box::new(Former::of(state, own, is_abandoned)))
    };
    let left = |reason| match is_abandoned {
        true => former(true),
        false => Agreement::Off(Off::Conflict(reason)),
    };
    if slot.agreed.is_none() && state.version <= own.settings.version {
        return former(false);
    }
    if own.settings.delivery == Delivery::AtMostOnce && is_due && state.attempts > 0 {
        return left(
            "its occurrence waits for another attempt, and this build runs it at most once",
        );
    }
    if is_known {
        return Agreement::Same;
    }
    match adopted(&slot.name, own, &state.definition) {
        Some(spec) => Agreement::Adopted(spec),
        None => left(
            "the store has another definition, with words or a schedule that this build does not \
             know",
        ),
    }
}

/// The only occurrence of a job that was registered too late for it: it is recorded as missed.
fn missed(slot: &Slot, state: &JobState, now: Time) -> Option<(Time, NotRun)> {
    let is_new = state.next.is_none()
        && state.last_started.is_none()
        && state.counters == Counters::default();
    let passed = || CheckedSchedule::of(&slot.name, slot.own()).passed(now);
    let at = is_new.then(passed).flatten()?;
    let reason = NotRunReason::CatchUp;
    Some((at, NotRun { count: Some(1), last: at, reason }))
}

/// True if an operator has reset a job whose times only its nodes know. None of them has set its cursor
/// since.
fn was_reset(state: &JobState) -> bool {
    state.next.is_none() && state.generation == state.incarnation && is_code(&state.definition)
}

/// `true` if this node's schedule has an occurrence after the present, and after the last one that was
/// started.
fn has_future(slot: &Slot, state: &JobState, now: Time) -> bool {
    let after = state.last_started.map_or(now, |last| last.max(now));
    // A fault of the schedule is reported when the job is planned.
    CheckedSchedule::of(&slot.name, slot.own())
        .following(after, state.counters.started)
        .is_ok_and(|next| next.is_some())
}

/// `true` if the head has been due for [`ABANDONED_AFTER`], and nothing keeps a node from running it.
fn is_abandoned(state: &JobState, now: Time) -> bool {
    !state.is_paused(now)
        && state.leases.iter().all(|lease| lease.until <= now)
        && state.due_at.is_some_and(|due_at| saturating_add(due_at, ABANDONED_AFTER) <= now)
}

impl Former {
    fn of(state: &JobState, own: Box<str>, is_abandoned: bool) -> Self {
        Self {
            generation: state.generation,
            version: state.version,
            definition: state.definition.clone(),
            own,
            progress: Progress::of(state),
            is_abandoned,
            was_reset: was_reset(state),
            missed: None,
        }
    }

    /// The cursor under this node's definition.
    pub(super) fn plan(
        &self,
        name: &str,
        new: CheckedSchedule<'_>,
        now: Time,
    ) -> Result<Replan, InvalidNextAt> {
        if self.missed.is_some() {
            return Ok(Replan { expected: None, not_run: self.missed, then: None });
        }
        let [former, own] =
            [&*self.definition, &*self.own].map(|text| Definition::parse(name, text).ok());
        let same_schedule = match (&former, &own) {
            (Some(former), Some(own)) => {
                former.schedule() == own.schedule() && former.settings().start == new.start()
            }
            // Texts that only their code can read. After a reset the job goes on from now.
            (None, None) => {
                !self.was_reset && self.definition.split(';').next() == self.own.split(';').next()
            }
            _ => false,
        };
        let former = former.map(|former| former.bare());
        let redefinition = Redefinition {
            former: former.as_ref().map(|spec| CheckedSchedule::of(name, spec)),
            new,
            same_schedule,
            skip: false,
            progress: self.progress,
            now,
        };
        redefinition.plan()
    }
}

/// The occurrence that is offered after the leased one, if its run is completed.
fn after_lease(slot: &Slot, known: &Known) -> Option<NextRun> {
    known.open_cursor().or_else(|| {
        let started = known.cursor?.scheduled_at;
        let schedule = CheckedSchedule::of(&slot.name, &slot.spec);
        // A fault of the schedule is reported when the occurrence is planned.
        (!schedule.follows_end()).then(|| schedule.following(started, known.started).ok()?)?
    })
}
