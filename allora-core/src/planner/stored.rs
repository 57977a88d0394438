//! The stored schedules in the planner: found by a search, run while they are due soon, evicted.

use super::{
    Planner,
    reply::RunUpdate,
    slot::{Origin, Phase, Slot},
    slot_id::SlotId,
    wake_up::NOW,
};
use crate::{
    backend::{Cursor, JobState, Reply},
    condition::Condition,
    event::Event,
    job::JobSpec,
    registry::Ranking,
    stored::{Route, Routed},
    time::{Time, saturating_add},
};
use std::{sync::Arc, time::Duration};

/// A schedule that is due within this time keeps its slot. It is more than the range of a search.
const SOON: Duration = Duration::from_secs(2);

impl Planner {
    /// Runs stored schedules with this choice of code.
    pub(crate) fn with_route(mut self, route: Route) -> Self {
        self.stored.route = Some(route);
        self
    }

    /// The number of due records that are already in memory, or left to other nodes, by which a search
    /// must extend its limit.
    pub(crate) fn known_stored(&self) -> usize {
        self.stored.placed + self.stored.broken.len() + self.shares.passed()
    }

    /// The earliest due time of the evicted schedules since the last call.
    pub(crate) fn forgotten_due(&mut self) -> Option<Time> {
        self.stored.read_at.take()
    }

    /// The order by which a search prefers this node's own; `None` if it prefers none.
    pub(crate) fn preferred(&mut self) -> Option<Arc<Ranking>> {
        self.shares.preferred()
    }

    /// A search has found these records. `is_full`: not all that is due is among them.
    pub(crate) fn divide(&mut self, found: &[JobState], is_full: bool) {
        let Self { shares, by_name, stored, .. } = self;
        let is_new = |state: &&JobState| {
            let name = state.name.as_str();
            !state.kind.is_empty() && !by_name.contains_key(name) && !stored.broken.contains(name)
        };
        shares.divide(found.iter().filter(is_new), is_full);
    }

    /// The time at which what the last search has left to other nodes is searched again.
    pub(crate) fn left_until(&self) -> Option<Time> {
        self.shares.left_until()
    }

    /// Applies a stored schedule that wants attention. Returns whether this node can run it.
    pub(super) fn found_stored(
        &mut self,
        state: &JobState,
        now: Time,
        events: &mut Vec<Event>,
    ) -> bool {
        if self.leave_to_query(state, now) {
            return true;
        }
        let Some(spec) = self.routed(state, events) else { return false };
        if self.shares.leave_to_others(state, spec.settings.late_by_at_most(), now) {
            return false;
        }
        let name: Arc<str> = state.name.as_str().into();
        let mut slot = Slot::new(name.clone(), spec, Origin::Stored, self.seed);
        slot.agreed = Some(state.generation);
        let Some(id) = self.slots.insert(slot) else { return false };
        self.stored.placed += 1;
        self.by_name.insert(name, id);
        self.learn_stored(id, state, now, events);
        true
    }

    /// Applies the current state of a stored schedule.
    pub(super) fn learn_stored(
        &mut self,
        id: SlotId,
        state: &JobState,
        now: Time,
        events: &mut Vec<Event>,
    ) {
        let agreed = self.slots.get(id).and_then(|slot| slot.agreed);
        // Its kind, definition and data are unchanged as long as its generation is.
        if state.unreadable.is_some() || agreed != Some(state.generation) {
            let Some(spec) = self.routed(state, events) else { return self.evict(id) };
            let Some(slot) = self.slots.get_mut(id) else { return };
            (slot.spec, slot.agreed) = (spec, Some(state.generation));
        }
        self.know(id, state, now, events);
    }

    /// The code for it. Reports each generation that this node cannot run once, unless there are very
    /// many.
    pub(super) fn routed(&mut self, state: &JobState, events: &mut Vec<Event>) -> Option<JobSpec> {
        let route = self.stored.route.as_ref()?;
        let name: Arc<str> = state.name.as_str().into();
        let job = name.clone();
        let condition = match &state.unreadable {
            Some(reason) => Condition::RecordUnreadable { job, reason: reason.clone() },
            None => match route(state) {
                Routed::Here(spec) => {
                    self.stored.broken.is_mended(&name, events);
                    return Some(spec);
                }
                Routed::Elsewhere => return None,
                Routed::Later => {
                    self.stored.broken.waits(name);
                    return None;
                }
                Routed::Broken(reason) => Condition::JobInvalid { job, reason },
            },
        };
        self.stored.broken.found(name, state.generation, condition, events);
        None
    }

    /// A search for everything due begins.
    pub(crate) fn begin_sweep(&mut self) {
        self.stored.broken.begin_sweep();
    }

    /// A search for everything due, which may have had several pages, has found the last of it.
    pub(crate) fn end_sweep(&mut self, events: &mut Vec<Event>) {
        self.stored.broken.end_sweep(events);
    }

    /// A calendar that this node has read is new, changed or gone: the code for each stored schedule is
    /// chosen again, and what is due is searched.
    pub(crate) fn on_calendars(&mut self) {
        let stored = self.slots.iter().filter(|(_, slot)| slot.is_stored());
        let ids: Vec<SlotId> = stored.map(|(id, _)| id).collect();
        for id in ids {
            if let Some(slot) = self.slots.get_mut(id) {
                slot.agreed = None;
            }
            self.mark_dirty(id);
        }
        self.stored.read_by(NOW);
    }

    /// The present slot of the job of a run.
    pub(super) fn place_of(&self, id: SlotId, name: &str) -> Option<SlotId> {
        let is_there = self.slots.get(id).is_some_and(|slot| !slot.is_removed());
        if is_there { Some(id) } else { self.by_name.get(name).copied() }
    }

    /// Applies the end of a run whose schedule has no slot any more.
    pub(super) fn on_unplaced_update(&mut self, run: RunUpdate<'_>, reply: &Reply) {
        match (reply, run.completed) {
            (Reply::Extended(_) | Reply::CancelRequested(_), _)
            | (Reply::Accepted, Some(Cursor::Keep | Cursor::To(None))) => {}
            // A query has claimed it, and claims its next occurrence, too.
            (Reply::Accepted, Some(Cursor::To(Some(next))))
                if run.slot == SlotId::NONE && self.is_claimed_by_query(next.due_at, SOON) =>
            {
                self.claim_by_query(next.due_at, run.window);
            }
            (Reply::Accepted, Some(Cursor::To(Some(next)))) => self.stored.read_by(next.due_at),
            _ if self.resume_finished(run.name) => {}
            _ => self.stored.read_by(NOW),
        }
    }

    /// Evicts the schedules that are not due soon. A search finds them again.
    pub(super) fn evict_idle(&mut self, now: Time) {
        let soon = saturating_add(now, SOON);
        for id in std::mem::take(&mut self.stored.idle) {
            let Some(slot) = self.slots.get(id).filter(|slot| slot.exchange.is_idle()) else {
                continue;
            };
            let Phase::Known(known) = &slot.phase else { continue };
            match known.wants_attention() {
                Some(at) if at <= soon => {}
                Some(at) => {
                    self.stored.read_by(at);
                    self.evict(id);
                }
                None => self.evict(id),
            }
        }
    }

    /// Evicts a stored schedule.
    pub(super) fn evict(&mut self, id: SlotId) {
        self.forget_key(id);
        self.replacing.remove(&id);
        if let Some(slot) = self.slots.remove(id) {
            self.failing.answered(id);
            self.by_name.remove(&slot.name);
            self.stored.placed -= 1;
        }
    }
}
