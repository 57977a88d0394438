//! What this node does next: pure, fed with the time and with answers.
//!
//! The planner keeps what the node knows of each job, a queue ordered by when each wants
//! attention, and a list of errands (registrations, looks). [`Planner::turn`] says what to ask the
//! store now; [`Planner::answered`] takes in what the store said. It reads no clock and awaits
//! nothing, so that every policy is tested by values.

mod answer;
mod ask;
mod decide;
mod intent;
mod share;
mod slot;
mod stocks;
#[cfg(test)]
mod tests;

pub(crate) use decide::Powers;
pub(crate) use intent::{Intent, Start, Turn};

use crate::{
    backend::{Outcome, State},
    error::{Error, Kind, Result},
    event::Event,
    job::{Entry, Timetable},
    time::{Time, saturating_add},
};
use share::Share;
use slot::{Known, Phase, Slot};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use stocks::Stocks;

/// The place of a job in the planner.
pub(crate) type SlotId = u32;

/// When a job wants attention, its rank among those that do at that instant, its place.
type WakeUp = (Time, u32, SlotId);

pub(crate) struct Planner {
    slots: Vec<Slot>,
    by_name: HashMap<Arc<str>, SlotId>,
    /// When each job wants attention; entries that their slot does not confirm are stale.
    queue: BinaryHeap<Reverse<WakeUp>>,
    /// Jobs to be registered, redefined or looked at, whenever there is a request.
    errands: VecDeque<SlotId>,
    /// The number of the turn whose answers are awaited or were taken in last.
    turn: u64,
    /// Something wants attention that the last turn did not know of.
    roused: bool,
    stored: Stocks,
    share: Share,
    /// This node's own, a random one: ranks the jobs.
    seed: u64,
    /// Never repeated: it began at a random number of 128 bits, and counts.
    next_claim: u128,
    poll: Duration,
    powers: Powers,
}

impl Planner {
    /// `claims`: a random number; those that follow it are the claims of this node's takes.
    pub(crate) fn new(claims: u128, poll: Duration, powers: Powers) -> Self {
        Self {
            next_claim: claims,
            roused: false,
            stored: Stocks::default(),
            share: Share::default(),
            seed: claims as u64,
            slots: Vec::new(),
            by_name: HashMap::new(),
            queue: BinaryHeap::new(),
            errands: VecDeque::new(),
            turn: 0,
            poll,
            powers,
        }
    }

    /// # Errors
    /// `AlreadyExists` if the planner has a job of this name.
    pub(crate) fn add(&mut self, name: Arc<str>, entry: Entry) -> Result {
        let id = SlotId::try_from(self.slots.len())
            .map_err(|_| Error::invalid("a scheduler has at most 4 294 967 295 jobs"))?;
        if self.by_name.contains_key(&name) {
            let twice = format!("the job {name:?} is added twice; names are unique");
            return Err(Error::new(Kind::AlreadyExists, twice));
        }
        self.by_name.insert(name.clone(), id);
        self.slots.push(Slot::new(name, entry, self.seed));
        self.run_errand(id);
        Ok(())
    }

    /// Leaves a job alone from now on; answers whether the planner had it. What is under way goes
    /// its way, and the name is free.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let Some(&id) = self.by_name.get(name) else { return false };
        let slot = &mut self.slots[id as usize];
        // Stored schedules come and go with the store.
        if slot.stored {
            return false;
        }
        self.by_name.remove(name);
        slot.removed = true;
        // What is asked for may be won, and is asked again until there is an answer.
        if !slot.asked && slot.claim.is_none() {
            slot.phase = Phase::Off;
            slot.wake_at = None;
        }
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Word from the store about this job.
    pub(crate) fn heard_of(&mut self, name: &str) {
        match self.by_name.get(name) {
            Some(&id) => self.hear(id),
            None => self.look_for(Time::MIN_UTC),
        }
    }

    /// There is word of this job: looks at it, after the answer that is awaited, if one is. So it
    /// is while a take whose answer was lost waits to be asked again: whoever looks first forgets
    /// what it may have won.
    fn hear(&mut self, id: SlotId) {
        let slot = &mut self.slots[id as usize];
        if slot.asked || slot.claim.is_some() {
            slot.heard = true;
        } else if matches!(slot.phase, Phase::Known(_) | Phase::Stale) {
            self.look_soon(id);
        }
    }

    /// The truth about one job.
    pub(crate) fn learn(&mut self, id: SlotId, state: &State, now: Time, events: &mut Vec<Event>) {
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
        let agreed = slot.agreed.map(|edition| edition == state.edition);
        let was_redefining = matches!(slot.phase, Phase::Redefine { .. });
        let mine = match agreed {
            Some(true) => Ok(true),
            _ => Timetable::definition(&slot.entry).map(|mine| mine == state.definition),
        };
        slot.phase = if let Some(reason) = &state.parked {
            let reason = format!("its record in the store cannot be read: {reason}");
            off(Event::Unplannable { name: name(), reason })
        } else if !state.kind.is_empty() {
            let reason = format!(
                "a stored schedule of kind {:?} has this name; delete that, or choose another name",
                state.kind
            );
            off(Event::Unplannable { name: name(), reason })
        } else if let Err(fault) = &mine {
            off(Event::Unplannable { name: name(), reason: fault.to_string() })
        } else if mine == Ok(true) {
            if was_redefining {
                events.push(Event::Redefined { name: name() });
            }
            slot.agreed = Some(state.edition);
            Phase::Known(Known::of(state, now))
        } else if agreed.is_some() || state.version > slot.entry.settings.version {
            off(Event::Outdated { name: name() })
        } else {
            let after = state.last_started.map_or(now, |last| last.max(now));
            let (edition, started) = (state.edition, state.counters.started);
            let cursor = state.cursor.filter(|cursor| state.last_started < Some(cursor.at));
            Phase::Redefine { edition, after, cursor, started }
        };
        match &slot.phase {
            Phase::Known(known) => {
                let wake_at = known.wants_attention();
                let paused = known.paused && wake_at.is_none();
                if paused {
                    self.look_at(id, saturating_add(now, self.poll));
                } else {
                    self.wake(id, wake_at);
                }
            }
            Phase::Redefine { .. } => self.run_errand(id),
            _ => slot.wake_at = None,
        }
    }

    /// A record that somebody should look at, found in the store.
    pub(crate) fn found(&mut self, state: &State, now: Time, events: &mut Vec<Event>) {
        let Some(&id) = self.by_name.get(state.name.as_str()) else {
            return self.found_stored(state, now, events);
        };
        if matches!(self.slots[id as usize].phase, Phase::Known(_)) {
            match self.slots[id as usize].settled_in == self.turn {
                // A run has ended since this was asked for: the state may be older than that.
                true => self.hear(id),
                false => self.learn(id, state, now, events),
            }
        }
    }

    /// Whether there is more to do than the last turn said.
    pub(crate) fn is_roused(&self) -> bool {
        self.roused
    }

    fn wake(&mut self, id: SlotId, at: Option<Time>) {
        if at.is_some() && self.slots[id as usize].wake_at == at {
            return;
        }
        self.roused |= at.is_some();
        let slot = &mut self.slots[id as usize];
        slot.wake_at = at;
        if slot.stored && !std::mem::replace(&mut slot.resting, true) {
            self.stored.resting.push(id);
        }
        let rank = slot.rank;
        self.queue.extend(at.map(|at| Reverse((at, rank, id))));
    }

    fn look_at(&mut self, id: SlotId, at: Time) {
        self.slots[id as usize].phase = Phase::Stale;
        self.wake(id, Some(at));
    }

    fn look_soon(&mut self, id: SlotId) {
        let slot = &mut self.slots[id as usize];
        slot.phase = Phase::Stale;
        slot.wake_at = None;
        self.run_errand(id);
    }

    fn run_errand(&mut self, id: SlotId) {
        let listed = &mut self.slots[id as usize].listed;
        if !std::mem::replace(listed, true) {
            self.roused = true;
            self.errands.push_back(id);
        }
    }
}

fn passed(name: Arc<str>, first: Time, range: &crate::backend::Passed) -> Event {
    let outcome = if range.overlap { Outcome::Skipped } else { Outcome::Missed };
    Event::Passed { name, first, last: range.last, count: range.count, outcome }
}
