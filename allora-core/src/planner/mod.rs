//! The planner: computes the next operations of this node from the time and from replies.
//!
//! It keeps the last known state of each job, a queue ordered by wake-up time, and a list of
//! pending registrations and reads. [`Planner::tick`] returns the operations to send now;
//! [`Planner::on_reply`] applies their replies. It reads no clock and awaits nothing, so that every
//! policy can be tested with plain values.

mod ask;
mod congestion_window;
mod decide;
mod reply;
mod request;
mod slot;
#[cfg(test)]
mod tests;
mod working_set;

pub(crate) use reply::RunUpdate;
pub(crate) use request::{Request, Start, Tick};

use crate::{
    backend::{JobState, NotRun},
    error::{Error, ErrorKind, Result},
    event::Event,
    job::{CheckedSchedule, JobSpec},
    time::{Time, saturating_add},
};
use congestion_window::CongestionWindow;
use slot::{Known, Phase, Slot};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use working_set::WorkingSet;

/// The place of a job in the planner.
pub(crate) type SlotId = u32;

/// A job's wake-up time, its rank among those at the same time, and its slot.
type WakeUp = (Time, u32, SlotId);

pub(crate) struct Planner {
    slots: Vec<Slot>,
    by_name: HashMap<Arc<str>, SlotId>,
    /// The wake-up times of the jobs. Entries that their slot does not confirm are stale.
    queue: BinaryHeap<Reverse<WakeUp>>,
    /// Jobs to register, redefine or read, with the next request.
    pending_registrations: VecDeque<SlotId>,
    /// The number of the last tick whose replies are pending or were applied.
    tick: u64,
    /// Something has changed since the last tick.
    is_dirty: bool,
    stored: WorkingSet,
    window: CongestionWindow,
    /// A random number of this node, which ranks the jobs.
    seed: u64,
    /// The next claim id. Ids never repeat: they count up from a random number of 128 bits.
    next_claim_id: u128,
    poll: Duration,
    lost_after: Duration,
}

impl Planner {
    /// `claims`: a random number, the first of this node's claim ids.
    pub(crate) fn new(claims: u128, poll: Duration, lost_after: Duration) -> Self {
        Self {
            next_claim_id: claims,
            is_dirty: false,
            stored: WorkingSet::default(),
            window: CongestionWindow::default(),
            seed: claims as u64,
            slots: Vec::new(),
            by_name: HashMap::new(),
            queue: BinaryHeap::new(),
            pending_registrations: VecDeque::new(),
            tick: 0,
            poll,
            lost_after,
        }
    }

    /// # Errors
    /// `AlreadyExists` if the planner has a job of this name.
    pub(crate) fn add(&mut self, name: Arc<str>, spec: JobSpec) -> Result {
        let id = SlotId::try_from(self.slots.len())
            .map_err(|_| Error::invalid("a scheduler has at most 4 294 967 295 jobs"))?;
        if self.by_name.contains_key(&name) {
            let twice = format!("the job {name:?} is added twice; names are unique");
            return Err(Error::new(ErrorKind::AlreadyExists, twice));
        }
        self.by_name.insert(name.clone(), id);
        self.slots.push(Slot::new(name, spec, self.seed));
        self.enqueue_registration(id);
        Ok(())
    }

    /// Removes a job. Returns whether the planner had it. Its requests and runs continue, and the
    /// name is free.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let Some(&id) = self.by_name.get(name) else { return false };
        let slot = &mut self.slots[id as usize];
        // Stored schedules come and go with the store.
        if slot.stored {
            return false;
        }
        self.by_name.remove(name);
        slot.removed = true;
        // A pending claim may succeed; it is repeated until there is a reply.
        if !slot.asked && slot.claim_id.is_none() {
            slot.phase = Phase::Off;
            slot.wake_at = None;
        }
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Handles a notification about this job.
    pub(crate) fn on_notification(&mut self, name: &str) {
        match self.by_name.get(name) {
            Some(&id) => self.mark_dirty(id),
            None => self.read_by(Time::MIN_UTC),
        }
    }

    /// Marks a job as changed. It is read after the pending reply, if there is one. The same holds
    /// while a claim whose reply was lost waits for its repetition: a read before would discard a
    /// claim that may have succeeded.
    fn mark_dirty(&mut self, id: SlotId) {
        let slot = &mut self.slots[id as usize];
        if slot.asked || slot.claim_id.is_some() {
            slot.is_dirty = true;
        } else if matches!(slot.phase, Phase::Known(_) | Phase::Stale) {
            self.read_soon(id);
        }
    }

    /// Applies the current state of one job.
    pub(crate) fn learn(
        &mut self,
        id: SlotId,
        state: &JobState,
        now: Time,
        events: &mut Vec<Event>,
    ) {
        if self.slots[id as usize].stored {
            return self.learn_stored(id, state, now, events);
        }
        let slot = &mut self.slots[id as usize];
        let name = || slot.name.clone();
        let mut off = |reason: Event| {
            events.push(reason);
            Phase::Off
        };
        if matches!(slot.phase, Phase::Off) {
            return;
        }
        let agreed = slot.agreed.map(|generation| generation == state.generation);
        let was_redefining = matches!(slot.phase, Phase::Redefine { .. });
        let mine = match agreed {
            Some(true) => Ok(true),
            _ => CheckedSchedule::definition(&slot.spec).map(|mine| mine == state.definition),
        };
        slot.phase = if let Some(reason) = &state.unreadable {
            let reason = format!("its record in the store cannot be read: {reason}");
            off(Event::JobInvalid { name: name(), reason })
        } else if !state.kind.is_empty() {
            let reason = format!(
                "a stored schedule of kind {:?} has this name; delete that, or choose another name",
                state.kind
            );
            off(Event::JobInvalid { name: name(), reason })
        } else if let Err(fault) = &mine {
            off(Event::JobInvalid { name: name(), reason: fault.to_string() })
        } else if mine == Ok(true) {
            if was_redefining {
                events.push(Event::Redefined { name: name() });
            }
            slot.agreed = Some(state.generation);
            Phase::Known(Known::of(state, now))
        } else if agreed.is_some() || state.version > slot.spec.settings.version {
            off(Event::DefinitionConflict { name: name() })
        } else {
            let after = state.last_started.map_or(now, |last| last.max(now));
            let (generation, started) = (state.generation, state.counters.started);
            let cursor =
                state.cursor.filter(|cursor| state.last_started < Some(cursor.scheduled_at));
            Phase::Redefine { generation, after, cursor, started }
        };
        match &slot.phase {
            Phase::Known(known) => {
                let wake_at = known.wants_attention();
                let paused = known.paused && wake_at.is_none();
                if paused {
                    self.read_at(id, saturating_add(now, self.poll));
                } else {
                    self.wake(id, wake_at);
                }
            }
            Phase::Redefine { .. } => self.enqueue_registration(id),
            _ => slot.wake_at = None,
        }
    }

    /// Applies a due record that a search has found in the store.
    pub(crate) fn found(&mut self, state: &JobState, now: Time, events: &mut Vec<Event>) {
        let Some(&id) = self.by_name.get(state.name.as_str()) else {
            return self.found_stored(state, now, events);
        };
        if matches!(self.slots[id as usize].phase, Phase::Known(_)) {
            match self.slots[id as usize].ended_in == self.tick {
                // A run has ended since this was requested: the state may be older.
                true => self.mark_dirty(id),
                false => self.learn(id, state, now, events),
            }
        }
    }

    /// `true` if something has changed since the last tick.
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    fn wake(&mut self, id: SlotId, at: Option<Time>) {
        if at.is_some() && self.slots[id as usize].wake_at == at {
            return;
        }
        self.is_dirty |= at.is_some();
        let slot = &mut self.slots[id as usize];
        slot.wake_at = at;
        if slot.stored && !std::mem::replace(&mut slot.is_idle, true) {
            self.stored.idle.push(id);
        }
        let rank = slot.rank;
        self.queue.extend(at.map(|at| Reverse((at, rank, id))));
    }

    fn read_at(&mut self, id: SlotId, at: Time) {
        self.slots[id as usize].phase = Phase::Stale;
        self.wake(id, Some(at));
    }

    fn read_soon(&mut self, id: SlotId) {
        let slot = &mut self.slots[id as usize];
        slot.phase = Phase::Stale;
        slot.wake_at = None;
        self.enqueue_registration(id);
    }

    fn enqueue_registration(&mut self, id: SlotId) {
        let listed = &mut self.slots[id as usize].listed;
        if !std::mem::replace(listed, true) {
            self.is_dirty = true;
            self.pending_registrations.push_back(id);
        }
    }
}

fn not_run(name: Arc<str>, first: Time, range: &NotRun) -> Event {
    let (last, count, outcome) = (range.last, range.count, range.outcome());
    Event::OccurrencesMissed { name, first, last, count, outcome }
}
