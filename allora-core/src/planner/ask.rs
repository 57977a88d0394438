//! What a turn asks the store about: the errands, and what is due.

use super::{
    Planner, SlotId, WakeUp,
    decide::{Decision, decide},
    intent::{Intent, Turn, What},
    share::BATCH,
    slot::Phase,
};
use crate::{
    backend::Next,
    error::Result,
    event::Event,
    job::{Fault, Timetable},
    time::{Time, saturating_add},
};
use std::{cmp::Reverse, time::Duration};

impl Planner {
    /// What to ask the store at `now`, with room for so many more runs.
    pub(crate) fn turn(&mut self, now: Time, room: usize, events: &mut Vec<Event>) -> Turn {
        self.turn += 1;
        self.roused = false;
        self.rest(now);
        let mut intents = Vec::new();
        while intents.len() < BATCH
            && let Some(id) = self.errands.pop_front()
        {
            self.slots[id as usize].listed = false;
            intents.extend(self.errand(id, now, events));
        }
        let most = self.share.size(room);
        let mut takes = 0;
        while takes < most && intents.len() < BATCH {
            let due = self.due_now(now, most - takes);
            if due.is_empty() {
                break;
            }
            for wake_up @ (at, _, id) in due {
                if takes >= most || intents.len() >= BATCH {
                    self.queue.push(Reverse(wake_up));
                    continue;
                }
                let intent = self.ask_about(id, at, now, events);
                takes += usize::from(intent.as_ref().is_some_and(Intent::is_take));
                intents.extend(intent);
            }
        }
        let wake_at = self.next_up().map(|(at, ..)| at);
        let more = wake_at.is_some_and(|at| at <= now);
        Turn { intents, wake_at, more, full: more && takes >= room }
    }

    /// Whether others take what this node asks for.
    pub(crate) fn is_losing(&self) -> bool {
        self.share.is_losing()
    }

    /// What to ask about a job that was in the queue for `at`.
    fn ask_about(
        &mut self,
        id: SlotId,
        at: Time,
        now: Time,
        events: &mut Vec<Event>,
    ) -> Option<Intent> {
        // It may have been there twice.
        self.slots[id as usize].wake_at.take_if(|wake_at| *wake_at == at)?;
        let intent = self.due(id, now, events);
        // No answer is awaited after which the word would be heeded.
        let slot = &mut self.slots[id as usize];
        if intent.is_none() && std::mem::take(&mut slot.heard) {
            slot.claim = None;
            self.hear(id);
        }
        intent
    }

    /// Takes from the queue what is due and may be asked for, in the order in which this node asks.
    fn due_now(&mut self, now: Time, most: usize) -> Vec<WakeUp> {
        let choice = self.share.choice(most);
        let mut due = Vec::new();
        while due.len() < choice
            && let Some(wake_up) = self.next_up()
            && wake_up.0 <= now
        {
            self.queue.pop();
            due.push(wake_up);
        }
        self.share.order(&mut due);
        due
    }

    /// The earliest entry of the queue that its slot confirms.
    fn next_up(&mut self) -> Option<WakeUp> {
        while let Some(Reverse(wake_up @ (at, _, id))) = self.queue.peek().copied() {
            if self.slots[id as usize].wake_at == Some(at) {
                return Some(wake_up);
            }
            self.queue.pop();
        }
        None
    }

    fn errand(&mut self, id: SlotId, now: Time, events: &mut Vec<Event>) -> Option<Intent> {
        let slot = &self.slots[id as usize];
        let timetable = Timetable::of(&slot.name, &slot.entry);
        let version = slot.entry.settings.version;
        let planned = |started: u64, after: Time| -> Result<(String, Option<Next>), Fault> {
            Ok((Timetable::definition(&slot.entry)?, timetable.following(after, started)?))
        };
        // An instant that both definitions have is not lost because one replaces the other.
        let kept = |cursor: &Next| {
            let pending = cursor.at <= now && now < cursor.due_at;
            let before = cursor.at - chrono::TimeDelta::milliseconds(1);
            let both = || timetable.instant_after(before) == Ok(Some(cursor.at));
            (pending && both()).then_some(before)
        };
        let what = match &slot.phase {
            Phase::New => planned(0, now).map(|(definition, first)| What::Register {
                definition,
                version,
                first,
            }),
            Phase::Redefine { edition, after, cursor, started } => {
                let after = cursor.as_ref().and_then(kept).unwrap_or_else(|| now.max(*after));
                let edition = *edition;
                planned(*started, after).map(|(definition, next)| What::Redefine {
                    edition,
                    definition,
                    version,
                    next,
                })
            }
            Phase::Stale => Ok(What::Look),
            Phase::Known(_) | Phase::Off => return None,
        };
        self.intent(id, what, events)
    }

    fn due(&mut self, id: SlotId, now: Time, events: &mut Vec<Event>) -> Option<Intent> {
        let slot = &self.slots[id as usize];
        let Phase::Known(known) = &slot.phase else { return self.errand(id, now, events) };
        let claim = slot.claim.unwrap_or(self.next_claim);
        match decide(&slot.name, &slot.entry, known, now, self.powers, claim) {
            Ok(Decision::Wait(None)) if known.paused && !slot.stored => {
                self.look_at(id, saturating_add(now, self.poll));
                None
            }
            Ok(Decision::Wait(wake_at)) => {
                self.wake(id, wake_at);
                None
            }
            Ok(Decision::Look) => self.intent(id, Ok(What::Look), events),
            Ok(Decision::Blocked(until)) => {
                self.look_at(id, saturating_add(now, self.poll).min(until));
                None
            }
            Ok(Decision::Take { take, then }) => {
                self.next_claim = self.next_claim.wrapping_add(1);
                let late = known.due_at.map_or(Duration::ZERO, |due| crate::time::since(now, due));
                self.intent(id, Ok(What::Take { take, then, late }), events)
            }
            Ok(Decision::Skip(skip)) => self.intent(id, Ok(What::Skip(skip)), events),
            Ok(Decision::Reap) => self.intent(id, Ok(What::Reap), events),
            Err(fault) => self.intent(id, Err(fault), events),
        }
    }

    fn intent(
        &mut self,
        id: SlotId,
        what: Result<What, Fault>,
        events: &mut Vec<Event>,
    ) -> Option<Intent> {
        let slot = &mut self.slots[id as usize];
        match what {
            Ok(what) => {
                slot.asked = true;
                let placement = slot.entry.settings.placement;
                Some(Intent { slot: id, name: slot.name.clone(), placement, what })
            }
            Err(fault) => {
                slot.phase = Phase::Off;
                events.push(Event::Unplannable {
                    name: slot.name.clone(),
                    reason: fault.to_string(),
                });
                None
            }
        }
    }
}
