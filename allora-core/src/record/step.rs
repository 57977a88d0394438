//! One plan applied to one record.

use super::{Again, At, HeadRun, Hold, Ledger, Record, Unheld, change::registered, next_fence};
use crate::{
    backend::{
        Act, Answer, Beside, Cursor, Deliver, Next, Occurrence, Outcome, Passed, Past, Plan, Skip,
        Take, Taken,
    },
    time::{Time, saturating_add, whole_millis},
};

/// How many runs of one job may be alive at once, over all nodes; further ones wait.
pub const MAX_HOLDS: usize = 64;

/// Applies a plan to a record, if its expectation holds; the answer is the truth either way.
/// What readers of the history should know goes to the ledger.
///
/// Pure: equal arguments give equal results, whatever the store.
pub fn step(slot: &mut Option<Record>, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
    if let Act::Register { definition, version, first } = &plan.act
        && !slot.as_ref().is_some_and(Record::is_live)
    {
        *slot = Some(registered(slot.as_ref(), definition, *version, *first, at));
    }
    let record = match slot {
        None => return Answer::Absent,
        Some(record) if record.gone.is_some() => return Answer::Gone,
        Some(record) => record,
    };
    match &plan.act {
        Act::Look | Act::Register { .. } => {}
        Act::Redefine { edition, definition, version, next } => {
            let newer = *version >= record.version;
            if record.edition == *edition && newer && record.may_move_to(*next) {
                record.reap(plan.name, at.now, ledger);
                record.redefine(plan.name, definition, *next, at, ledger);
                record.version = *version;
            }
        }
        Act::Take(take) => {
            if let Some(taken) = record.granted(take) {
                return Answer::Taken(taken);
            }
            record.reap(plan.name, at.now, ledger);
            if record.wins(take, at.now) {
                return Answer::Taken(record.take(plan.name, take, at, ledger));
            }
        }
        Act::Skip(skip) => {
            record.reap(plan.name, at.now, ledger);
            if record.may_skip(skip, at.now) {
                record.pass(plan.name, Occurrence::from(skip.expected), skip.passed, at, ledger);
                record.cursor = skip.then;
            }
        }
        Act::Reap => record.reap(plan.name, at.now, ledger),
    }
    Answer::State(Box::new(record.state(plan.name)))
}

impl Record {
    /// The grant that this claim has already won: its answer was lost.
    fn granted(&self, take: &Take) -> Option<Taken> {
        let (run, fence, attempt, until) =
            match self.holds.iter().find(|hold| hold.claim == take.claim) {
                Some(hold) => (&hold.run, hold.fence, hold.attempt, Some(hold.until)),
                None => {
                    let last = self.unheld.as_ref().filter(|last| last.claim == take.claim)?;
                    (&last.run, last.fence, last.attempt, None)
                }
            };
        let incarnation = self.incarnation;
        Some(Taken { run: run.clone(), fence, attempt, incarnation, until })
    }

    fn wins(&self, take: &Take, now: Time) -> bool {
        let Some(head) = self.head() else { return false };
        self.fence == take.fence
            && head.run.is(&take.expected)
            && head.due_at <= now
            && take.is_sound(now)
            && self.delivers(take, head.run)
            && self.has_room(take, now)
    }

    /// Marks have room beside each other, or ask to be alone. A lease is always alone, by `head`;
    /// a mark never starts beside one.
    fn has_room(&self, take: &Take, now: Time) -> bool {
        let alive = self.holds.iter().filter(|hold| !hold.at_least_once && hold.until > now);
        match take.deliver {
            Deliver::AtMostOnce { mark: Some(mark), .. } => match mark.beside {
                Beside::Others => self.holds.len() < MAX_HOLDS,
                Beside::None => alive.count() == 0,
            },
            Deliver::AtMostOnce { mark: None, .. } => true,
            Deliver::AtLeastOnce { .. } => alive.count() == 0,
        }
    }

    fn take(&mut self, name: &str, take: &Take, at: At<'_>, ledger: &mut Ledger) -> Taken {
        let now = at.now;
        let attempt = self.head().map_or(0, |head| head.attempts).saturating_add(1);
        if let Some(passed) = take.passed {
            self.pass(name, take.expected.clone(), passed, at, ledger);
        }
        self.abandon(name, &take.expected, now, ledger);
        let scheduled = self.settle_source(take);
        let fence = self.draw_fence(now);
        let run = take.start.clone();
        let lasts = match take.deliver {
            Deliver::AtMostOnce { then, mark } => {
                if let Cursor::To(next) = then {
                    self.cursor = next;
                }
                mark.map(|mark| mark.lasts)
            }
            Deliver::AtLeastOnce { lease } => Some(lease),
        };
        if scheduled {
            self.last_started = Some(run.at);
            self.counters.started += 1;
        }
        let until = lasts.map(|lasts| whole_millis(saturating_add(now, lasts)));
        let at_least_once = matches!(take.deliver, Deliver::AtLeastOnce { .. });
        match until {
            Some(until) => {
                let node = at.node.to_owned();
                let claim = take.claim;
                let hold = Hold { node, claim, fence, run, attempt, until, at_least_once };
                ledger.note(|| hold.past(name, now, Outcome::Running));
                self.holds.push(hold);
            }
            None => self.unheld = Some(Unheld { claim: take.claim, fence, run, attempt }),
        }
        let incarnation = self.incarnation;
        Taken { run: take.start.clone(), fence, attempt, incarnation, until }
    }

    /// Takes the occurrence away from where it waited. Answers whether it is the cursor's, begun
    /// for the first time; then, at least once, the cursor waits on what was started.
    fn settle_source(&mut self, take: &Take) -> bool {
        if let Some(i) = self.again.iter().position(|again| again.run == take.expected) {
            self.again.remove(i);
            return false;
        }
        if let Some(i) = self.triggers.iter().position(|run| *run == take.expected) {
            self.triggers.remove(i);
            return false;
        }
        let begun = self.last_started >= Some(take.expected.at);
        match &mut self.cursor {
            Some(next) if take.expected.trigger.is_none() && next.at == take.expected.at => {
                next.at = take.start.at;
                !begun
            }
            _ => false,
        }
    }

    /// A silent node's lease ends here: its occurrence is about to be run again, or, if a paused
    /// schedule's trigger is taken, waits for that.
    fn abandon(&mut self, name: &str, taken: &Occurrence, now: Time, ledger: &mut Ledger) {
        for hold in self.holds.extract_if(.., |hold| hold.at_least_once) {
            self.counters.abandoned += 1;
            ledger.note(|| hold.past(name, now, Outcome::Abandoned));
            if hold.run != *taken {
                let Hold { run, attempt: attempts, until: at, .. } = hold;
                self.again.push(Again { run, attempts, at });
            }
        }
    }

    /// Whether the take's delivery fits the head. At most once the cursor moves with the cursor's
    /// own occurrence, begun or not, and with nothing else; what was begun is not passed over.
    fn delivers(&self, take: &Take, head: HeadRun<'_>) -> bool {
        let moves = match take.deliver {
            Deliver::AtMostOnce { then, .. } => {
                matches!(then, Cursor::To(_)) == self.is_at_cursor(&take.expected)
            }
            Deliver::AtLeastOnce { .. } => true,
        };
        moves && (matches!(head, HeadRun::Cursor(_)) || take.start == take.expected)
    }

    fn may_skip(&self, skip: &Skip, now: Time) -> bool {
        let expected = Occurrence::from(skip.expected);
        self.edition == skip.edition
            && self.head().is_some_and(|head| {
                matches!(head.run, HeadRun::Cursor(_))
                    && head.run.is(&expected)
                    && head.due_at <= now
            })
            && skip.passed.last >= skip.expected
            && skip.then.is_none_or(|next| next.at > skip.passed.last)
    }

    /// A cursor never goes back to what was started.
    fn may_move_to(&self, next: Option<Next>) -> bool {
        next.is_none_or(|next| self.last_started.is_none_or(|last| next.at > last))
    }

    /// Records a range of instants as passed over.
    pub(super) fn pass(
        &mut self,
        name: &str,
        first: Occurrence,
        passed: Passed,
        at: At<'_>,
        ledger: &mut Ledger,
    ) {
        let count = passed.count.unwrap_or(0);
        let outcome = if passed.overlap {
            self.counters.skipped = self.counters.skipped.saturating_add(count);
            Outcome::Skipped
        } else {
            self.counters.missed = self.counters.missed.saturating_add(count);
            Outcome::Missed
        };
        let fence = self.draw_fence(at.now);
        ledger.note(|| Past {
            name: name.to_owned(),
            fence,
            occurrence: first,
            last: Some(passed.last),
            count: passed.count,
            attempt: 0,
            node: at.node.to_owned(),
            at: whole_millis(at.now),
            outcome,
        });
    }

    /// Replaces the definition; the cursor goes where the new one says.
    pub(super) fn redefine(
        &mut self,
        name: &str,
        definition: &str,
        next: Option<Next>,
        at: At<'_>,
        ledger: &mut Ledger,
    ) {
        self.move_cursor(name, next, at, ledger);
        self.definition = definition.to_owned();
        self.edition = self.draw_fence(at.now);
    }

    /// Moves the cursor for an operator; a due occurrence that nobody has begun, and that the new
    /// cursor passes over, is recorded as missed.
    pub(super) fn move_cursor(
        &mut self,
        name: &str,
        next: Option<Next>,
        at: At<'_>,
        ledger: &mut Ledger,
    ) {
        let due = self
            .cursor
            .filter(|cursor| cursor.at <= at.now && next.is_none_or(|next| next.at > cursor.at));
        if let Some(due) = due.filter(|due| self.last_started < Some(due.at)) {
            // Only the definition that goes could count what lies between.
            let passed = Passed { count: None, last: due.at, overlap: false };
            self.counters.missed = self.counters.missed.saturating_add(1);
            self.pass(name, Occurrence::from(due.at), passed, at, ledger);
        }
        self.cursor = next;
    }
}

/// A fence for a record that does not exist yet, above everything the name may have had.
pub(super) fn first_fence(tombstone: Option<&Record>, at: At<'_>) -> i64 {
    next_fence(tombstone.map_or(0, |record| record.fence).max(at.floor), at.now)
}
