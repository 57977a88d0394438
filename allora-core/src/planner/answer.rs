//! What the store answered, and what became of this node's runs.

use super::{
    Planner, SlotId,
    decide::finish_of,
    intent::{Intent, Start, What},
    passed,
    slot::Phase,
};
use crate::{
    backend::{Answer, Cursor, Deliver, Settled, Take, Taken},
    event::Event,
    time::{Time, saturating_add},
};
use std::time::Duration;

impl Planner {
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
}
