//! One ending applied to one record.

use super::{Accepted, Again, At, How, Ledger, MAX_DEAD, Record};
use crate::{
    backend::{Cursor, DeadLetter, End, Ended, Ending, Outcome, Settled},
    time::{saturating_add, whole_millis},
};

/// Applies an ending to a record, if its fence is current. With the current fence it is accepted
/// even after the lease's end; once somebody else has taken the occurrence it is refused.
///
/// Pure, as [`step`](super::step()).
pub fn settle(
    slot: &mut Option<Record>,
    ending: &Ending<'_>,
    at: At<'_>,
    ledger: &mut Ledger,
) -> Settled {
    let Some(record) = slot.as_mut().filter(|record| record.is_live()) else {
        return Settled::Removed;
    };
    let Some(i) = record.holds.iter().position(|hold| hold.fence == ending.fence) else {
        let accepted = accepted(ending);
        let repeated = accepted.is_some() && accepted == record.ended;
        return if repeated { Settled::Done } else { Settled::Lost };
    };
    let outcome = match &ending.end {
        End::Extend { lasts } => {
            let hold = &mut record.holds[i];
            hold.until = hold.until.max(whole_millis(saturating_add(at.now, *lasts)));
            return Settled::Until(hold.until);
        }
        End::Finish { then: Cursor::To(Some(next)), .. } if next.at <= record.holds[i].run.at => {
            return Settled::Refused;
        }
        // It was started, and would be offered no more: the schedule would end here unseen.
        End::Finish { then: Cursor::Keep, .. } if record.is_at_cursor(&record.holds[i].run) => {
            return Settled::Refused;
        }
        End::Finish { outcome, .. } => record.count(*outcome),
        End::Retry { error, .. } => record.count(Ended::Failed(error)),
        End::Release => Outcome::Released,
    };
    let hold = record.holds.remove(i);
    record.ended = accepted(ending);
    ledger.note(|| hold.past(ending.name, at.now, outcome.clone()));
    match ending.end {
        End::Extend { .. } => {}
        End::Finish { then, .. } => {
            if let Cursor::To(next) = then
                && record.is_at_cursor(&hold.run)
            {
                record.cursor = next;
            }
            if let Outcome::Dead(error) = &outcome {
                let (at, error) = (whole_millis(at.now), error.clone());
                record.bury(DeadLetter { run: hold.run, attempts: hold.attempt, at, error });
            }
        }
        End::Retry { at, .. } => {
            record.again.push(Again {
                run: hold.run,
                attempts: hold.attempt,
                at: whole_millis(at),
            });
        }
        End::Release => {
            let attempts = hold.attempt.saturating_sub(1);
            // As if it had not been taken: due since its own instant, before all that comes after
            // it. From now on, it would wait behind whatever is being caught up with.
            let at = hold.run.at.min(whole_millis(at.now));
            record.again.push(Again { run: hold.run, attempts, at });
        }
    }
    if outcome != Outcome::Released {
        record.last = Some(outcome);
    }
    Settled::Done
}

/// What the record remembers of an ending; an extension leaves nothing.
fn accepted(ending: &Ending<'_>) -> Option<Accepted> {
    let how = match ending.end {
        End::Extend { .. } => return None,
        End::Finish { .. } => How::Finished,
        End::Retry { .. } => How::Retried,
        End::Release => How::Released,
    };
    Some(Accepted { fence: ending.fence, how })
}

impl Record {
    /// Keeps a dead letter; of too many, the oldest goes.
    fn bury(&mut self, letter: DeadLetter) {
        self.dead.retain(|other| other.run != letter.run);
        self.dead.push(letter);
        let over = self.dead.len().saturating_sub(MAX_DEAD);
        self.dead.drain(..over);
    }

    fn count(&mut self, outcome: Ended<'_>) -> Outcome {
        match outcome {
            Ended::Ran => {
                self.counters.ran += 1;
                Outcome::Ran
            }
            Ended::Failed(error) => {
                self.counters.failed += 1;
                Outcome::Failed(error.to_owned())
            }
            Ended::Dead(error) => {
                self.counters.failed += 1;
                Outcome::Dead(error.to_owned())
            }
            Ended::Cancelled => {
                self.counters.cancelled += 1;
                Outcome::Cancelled
            }
        }
    }
}
