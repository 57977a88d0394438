//! Stored schedules in the planner: there are many of them, and each has a place in it only while
//! it wants attention soon.

use super::{
    Planner, SlotId,
    slot::{Known, Phase, Slot},
};
use crate::{
    backend::{Cursor, Settled, State},
    event::Event,
    job::Entry,
    stored::{Route, Routed},
    time::{Time, saturating_add},
};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// What the planner knows about stored schedules as such.
#[derive(Default)]
pub(super) struct Stocks {
    /// Which code runs them; none, where the node runs no stored schedules.
    route: Option<Route>,
    /// Places that may be used again.
    free: Vec<SlotId>,
    /// Those whose next time has changed, and that may be forgotten until then.
    pub(super) resting: Vec<SlotId>,
    /// When something will be due that was forgotten.
    look_at: Option<Time>,
    /// What nobody can run, by the edition that was complained about.
    broken: HashMap<Arc<str>, i64>,
    /// How many have a place.
    placed: usize,
}

/// What is due within this time keeps its place: more than what is found ahead.
const SOON: Duration = Duration::from_secs(2);

/// How many broken schedules are remembered as such: beyond, they are complained about again.
const BROKEN: usize = 10_000;

impl Planner {
    /// Runs stored schedules, as this says.
    pub(crate) fn with_route(mut self, route: Route) -> Self {
        self.stored.route = Some(route);
        self
    }

    /// How many records that want attention are known here already, so that a search for more must
    /// look beyond them.
    pub(crate) fn known_stored(&self) -> usize {
        self.stored.placed + self.stored.broken.len()
    }

    /// When something will be due that was forgotten, since this was last asked.
    pub(crate) fn forgotten_due(&mut self) -> Option<Time> {
        self.stored.look_at.take()
    }

    /// Something in the store will be due that is not known here.
    pub(super) fn look_for(&mut self, at: Time) {
        if self.stored.route.is_some() {
            let look_at = self.stored.look_at.get_or_insert(at);
            *look_at = at.min(*look_at);
            self.roused = true;
        }
    }

    /// A stored schedule that wants attention.
    pub(super) fn found_stored(&mut self, state: &State, now: Time, events: &mut Vec<Event>) {
        let Some(entry) = self.routed(state, events) else { return };
        let name: Arc<str> = state.name.as_str().into();
        let mut slot = Slot::new(name.clone(), entry, self.seed);
        (slot.stored, slot.agreed) = (true, Some(state.edition));
        let id = match self.stored.free.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                let Ok(id) = SlotId::try_from(self.slots.len()) else { return };
                self.slots.push(slot);
                id
            }
        };
        self.stored.placed += 1;
        self.by_name.insert(name, id);
        self.learn_stored(id, state, now, events);
    }

    /// The truth about a stored schedule.
    pub(super) fn learn_stored(
        &mut self,
        id: SlotId,
        state: &State,
        now: Time,
        events: &mut Vec<Event>,
    ) {
        // Its kind, its definition and its data are what they were as long as its edition is.
        if state.parked.is_some() || self.slots[id as usize].agreed != Some(state.edition) {
            let Some(entry) = self.routed(state, events) else { return self.retire(id) };
            let slot = &mut self.slots[id as usize];
            (slot.entry, slot.agreed) = (entry, Some(state.edition));
        }
        let known = Known::of(state, now);
        let wake_at = known.wants_attention();
        let slot = &mut self.slots[id as usize];
        // Forces the wake-up to be noted.
        (slot.phase, slot.wake_at) = (Phase::Known(known), None);
        self.wake(id, wake_at);
    }

    /// The code for it; one complaint for each edition that nobody can run.
    fn routed(&mut self, state: &State, events: &mut Vec<Event>) -> Option<Entry> {
        let route = self.stored.route.as_ref()?;
        let reason = match &state.parked {
            Some(reason) => format!("its record in the store cannot be read: {reason}"),
            None => match route(state) {
                Routed::Here(entry) => {
                    self.stored.broken.remove(state.name.as_str());
                    return Some(entry);
                }
                Routed::Elsewhere => return None,
                Routed::Broken(reason) => reason,
            },
        };
        if self.stored.broken.len() >= BROKEN {
            self.stored.broken.clear();
        }
        let name: Arc<str> = state.name.as_str().into();
        if self.stored.broken.insert(name.clone(), state.edition) != Some(state.edition) {
            events.push(Event::Unplannable { name, reason });
        }
        None
    }

    /// Where the job of a run is now.
    pub(super) fn place_of(&self, id: SlotId, name: &str) -> Option<SlotId> {
        let there = self.slots.get(id as usize).is_some_and(|slot| &*slot.name == name);
        if there { Some(id) } else { self.by_name.get(name).copied() }
    }

    /// A run has ended whose schedule has no place here any more.
    pub(super) fn settled_elsewhere(&mut self, settled: Settled, finished: Option<Cursor>) {
        match (settled, finished) {
            (Settled::Until(_), _) | (Settled::Done, Some(Cursor::Keep | Cursor::To(None))) => {}
            (Settled::Done, Some(Cursor::To(Some(next)))) => self.look_for(next.due_at),
            _ => self.look_for(Time::MIN_UTC),
        }
    }

    /// Forgets those that will want no attention for a while: they will be found again.
    pub(super) fn rest(&mut self, now: Time) {
        let soon = saturating_add(now, SOON);
        for id in std::mem::take(&mut self.stored.resting) {
            let slot = &mut self.slots[id as usize];
            slot.resting = false;
            if !slot.stored || slot.asked || slot.listed || slot.claim.is_some() {
                continue;
            }
            let Phase::Known(known) = &slot.phase else { continue };
            match known.wants_attention() {
                Some(at) if at <= soon => {}
                Some(at) => {
                    self.look_for(at);
                    self.retire(id);
                }
                None => self.retire(id),
            }
        }
    }

    /// Forgets a stored schedule. What still names its place finds another name there, or none.
    pub(super) fn retire(&mut self, id: SlotId) {
        let slot = &mut self.slots[id as usize];
        let name = std::mem::replace(&mut slot.name, Arc::from(""));
        self.by_name.remove(&name);
        (slot.phase, slot.wake_at, slot.claim) = (Phase::Off, None, None);
        slot.stored = false;
        // Its payload may be large.
        slot.entry.payload = None;
        self.stored.placed -= 1;
        self.stored.free.push(id);
    }
}
