//! What this node does next: pure, fed with the time and with answers.
//!
//! The planner keeps what the node knows of each job, a queue ordered by when each wants
//! attention, and a list of errands (registrations, looks). [`Planner::turn`] says what to ask the
//! store now; [`Planner::answered`] takes in what the store said. It reads no clock and awaits
//! nothing, so that every policy is tested by values.

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
    backend::{Answer, Cursor, Deliver, Next, Outcome, Settled, State, Take, Taken},
    error::{Error, Kind, Result},
    event::Event,
    job::{Entry, Fault, Timetable},
    time::{Time, saturating_add},
};
use decide::{Decision, decide, finish_of};
use intent::What;
use share::{BATCH, Share};
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

    /// Takes in what the store said at `now`; answers with the run to start, if it was won.
    pub(crate) fn answered(
        &mut self,
        intent: Intent,
        answer: Answer,
        now: Time,
        events: &mut Vec<Event>,
    ) -> Option<Start> {
        let id = intent.slot;
        let slot = &mut self.slots[id as usize];
        slot.claim = None;
        slot.asked = false;
        let heard = std::mem::take(&mut slot.heard);
        let start = match answer {
            Answer::Absent | Answer::Gone if slot.stored => {
                self.retire(id);
                None
            }
            // Only what was won is of interest yet.
            Answer::Absent | Answer::Gone | Answer::State(_) if slot.removed => None,
            Answer::Absent => {
                if matches!(slot.phase, Phase::Known(_) | Phase::Stale) {
                    events.push(Event::Forgotten { name: slot.name.clone() });
                }
                slot.phase = Phase::New;
                slot.agreed = None;
                self.run_errand(id);
                None
            }
            Answer::Gone => {
                slot.phase = Phase::Off;
                events.push(Event::Deleted { name: slot.name.clone() });
                None
            }
            Answer::State(state) => {
                if let What::Take { .. } = &intent.what {
                    self.share.note(false);
                }
                if let What::Skip(skip) = &intent.what
                    && state.cursor == skip.then
                {
                    events.push(passed(slot.name.clone(), skip.expected, &skip.passed));
                }
                let settled = slot.settled_in == self.turn;
                self.learn(id, &state, now, events);
                self.be_patient(id, &intent.what, now);
                // The state may be older than what a run's end has told since.
                if settled {
                    self.hear(id);
                }
                None
            }
            Answer::Taken(taken) => match intent.what {
                What::Take { take, then, late } => {
                    slot.refused = 0;
                    self.share.note(true);
                    Some(self.won(id, &take, then, late, taken, events))
                }
                // Not an answer to what was asked: find out what is true.
                _ => {
                    self.hear(id);
                    None
                }
            },
        };
        if self.slots[id as usize].removed {
            self.slots[id as usize].phase = Phase::Off;
        } else if heard {
            self.hear(id);
        }
        start
    }

    /// Waits a little, and ever longer, before asking again for what the store says is due but
    /// does not grant.
    fn be_patient(&mut self, id: SlotId, asked: &What, now: Time) {
        let slot = &mut self.slots[id as usize];
        let Phase::Known(known) = &slot.phase else { return };
        if known.wants_attention().is_none_or(|at| at > now) {
            slot.refused = 0;
            return;
        }
        if matches!(asked, What::Take { .. } | What::Skip(_) | What::Reap) {
            slot.refused = slot.refused.saturating_add(1);
        }
        // The first refusal brought the truth, with which the next try is another one.
        if let Some(doublings) = slot.refused.checked_sub(2) {
            let wait = Duration::from_millis(1 << doublings.min(10));
            self.wake(id, Some(saturating_add(now, wait)));
        }
    }

    /// The answers to these were lost: they are asked again, takes with the same claim.
    pub(crate) fn unanswered(&mut self, intents: Vec<Intent>, now: Time) {
        for intent in intents {
            let id = intent.slot;
            let slot = &mut self.slots[id as usize];
            slot.asked = false;
            if let What::Take { take, .. } = &intent.what {
                slot.claim = Some(take.claim);
            }
            // Asked again before word is heeded: who looks first finds the claim's own run in the
            // way, and does not know it.
            if slot.claim.is_some() {
                self.wake(id, Some(now));
                continue;
            }
            slot.heard = false;
            match intent.what {
                What::Register { .. } | What::Redefine { .. } => self.run_errand(id),
                _ => self.hear(id),
            }
        }
    }

    fn won(
        &mut self,
        id: SlotId,
        take: &Take,
        then: Cursor,
        late: Duration,
        taken: Taken,
        events: &mut Vec<Event>,
    ) -> Start {
        let slot = &mut self.slots[id as usize];
        let (name, entry) = (slot.name.clone(), slot.entry.clone());
        // While it is asked about, a job stays known; and what was won is run in any case.
        let Phase::Known(known) = &mut slot.phase else {
            return Start { slot: id, name, entry, taken, then, late };
        };
        known.fence = taken.fence;
        let of_schedule = known.head_is_cursor();
        known.started += u64::from(of_schedule);
        if taken.run != take.start {
            // An earlier request with this claim, whose answer was lost, had won another one.
            let started = known.started;
            let then = finish_of(&name, &entry, &taken.run, started).unwrap_or(Cursor::Keep);
            self.hear(id);
            return Start { slot: id, name, entry, taken, then, late };
        }
        if let Some(range) = &take.passed {
            events.push(passed(name.clone(), take.expected.at, range));
        }
        if of_schedule {
            known.last_started = Some(taken.run.at);
        }
        match take.deliver {
            Deliver::AtMostOnce { then: cursor, .. } => {
                known.marks.extend(taken.until.map(|until| (taken.fence, until)));
                match cursor {
                    Cursor::To(next) => {
                        known.go_to(next);
                        let wake_at = known.due_at;
                        self.wake(id, wake_at);
                    }
                    Cursor::Keep => self.hear(id),
                }
            }
            Deliver::AtLeastOnce { .. } => {
                if let (true, Some(next)) = (of_schedule, &mut known.cursor) {
                    next.at = taken.run.at;
                }
                known.head = Some(taken.run.clone());
                known.due_at = taken.until;
            }
        }
        Start { slot: id, name, entry, taken, then, late }
    }

    /// What became of a run of this node: `then` is where its finish moved the cursor, `None` if
    /// it was not a finish.
    pub(crate) fn settled(
        &mut self,
        id: SlotId,
        name: &str,
        (fence, run_at): (i64, Time),
        settled: Settled,
        finished: Option<Cursor>,
    ) {
        // A stored schedule may have been forgotten meanwhile, and have another place since.
        let Some(id) = self.place_of(id, name) else {
            return self.settled_elsewhere(settled, finished);
        };
        let slot = &mut self.slots[id as usize];
        slot.settled_in = self.turn;
        let known = match &mut slot.phase {
            Phase::Known(known) => known,
            Phase::Stale => return self.hear(id),
            _ => return,
        };
        if let Settled::Until(until) = settled {
            for mark in known.marks.iter_mut().filter(|mark| mark.0 == fence) {
                mark.1 = until;
            }
            return;
        }
        let marks = known.marks.len();
        known.marks.retain(|mark| mark.0 != fence);
        let was_marked = known.marks.len() < marks;
        match (settled, finished) {
            (Settled::Done, Some(Cursor::To(next)))
                if known.cursor.is_some_and(|cursor| cursor.at == run_at) =>
            {
                known.go_to(next);
                let wake_at = known.due_at;
                self.wake(id, wake_at);
            }
            // Its mark was in nobody's way, or somebody waits in this queue for its end.
            (Settled::Done, Some(Cursor::Keep)) if was_marked => {
                let wake_at = known.wants_attention();
                self.wake(id, wake_at);
            }
            _ => self.hear(id),
        }
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
