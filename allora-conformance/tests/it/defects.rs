//! The defects: each is what some store or some hurried author got wrong.

use crate::broken::Defect;
use allora_core::{
    Result,
    backend::{
        Act, Answer, Change, Cursor, Deliver, End, Ending, Find, NewSchedule, Next, Outcome, Past,
        Plan, Settled, State, Take,
    },
    record::{At, Hold, Ledger, Record, change, create, settle, step},
    time::{saturating_add, whole_millis},
};
use chrono::{SubsecRound, TimeDelta};

type Slot = Option<Record>;

/// The store's answer to a plan, with this take in its place.
fn take(slot: &mut Slot, plan: &Plan<'_>, take: Take, at: At<'_>, ledger: &mut Ledger) -> Answer {
    step(slot, &Plan::new(plan.name, Act::Take(take)), at, ledger)
}

fn unchanged(slot: &Slot, plan: &Plan<'_>) -> Answer {
    slot.as_ref().map_or(Answer::Absent, |record| Answer::State(Box::new(record.state(plan.name))))
}

/// Nothing is wrong.
pub(crate) struct Sound;
impl Defect for Sound {}

/// Reads, and writes a little later.
pub(crate) struct ReadsThenWrites;
impl Defect for ReadsThenWrites {
    fn is_atomic() -> bool {
        false
    }
}

/// Grants an occurrence that somebody has taken to the next one who asks.
pub(crate) struct GrantsTwice;
impl Defect for GrantsTwice {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        let answer = step(slot, plan, at, ledger);
        if let (Act::Take(take), Answer::State(_), Some(record)) = (&plan.act, &answer, slot)
            && record.last_started == Some(take.expected.at)
            && record.unheld.is_some()
            && (record.edition..record.fence).contains(&take.fence)
        {
            record.fence += 1;
            let run = take.start.clone();
            let taken = allora_core::backend::Taken::new(run, record.fence, record.incarnation);
            return Answer::Taken(taken);
        }
        answer
    }
}

/// Compares no fences: whoever ends a run ends the one that is there.
pub(crate) struct AcceptsAStaleFence;
impl Defect for AcceptsAStaleFence {
    fn settle(slot: &mut Slot, end: &Ending<'_>, at: At<'_>, ledger: &mut Ledger) -> Settled {
        let held = slot.as_ref().and_then(|record| record.holds.first()).map(|hold| hold.fence);
        let fence = held.unwrap_or(end.fence);
        settle(slot, &Ending::new(end.name, fence, end.end.clone()), at, ledger)
    }
}

/// Starts the occurrence, and leaves the cursor where it was.
pub(crate) struct ForgetsTheCursor;
impl Defect for ForgetsTheCursor {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        let before = slot.clone();
        let answer = step(slot, plan, at, ledger);
        if let (Answer::Taken(_), Some(before), Some(record)) = (&answer, before, slot) {
            (record.cursor, record.last_started) = (before.cursor, before.last_started);
        }
        answer
    }
}

/// `<` where `<=` is meant.
pub(crate) struct DueIsNotYet;
impl Defect for DueIsNotYet {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        let due = slot.as_ref().and_then(|record| record.head()).map(|head| head.due_at);
        match &plan.act {
            Act::Take(_) if due == Some(at.now) => unchanged(slot, plan),
            _ => step(slot, plan, at, ledger),
        }
    }
}

/// Offers what is due within a second, to be early.
pub(crate) struct Hasty;
impl Defect for Hasty {
    fn step(slot: &mut Slot, plan: &Plan<'_>, mut at: At<'_>, ledger: &mut Ledger) -> Answer {
        if matches!(plan.act, Act::Take(_)) {
            at.now += TimeDelta::seconds(1);
        }
        step(slot, plan, at, ledger)
    }
}

/// Gives the same fence to every take of a job.
pub(crate) struct FencesStandStill;
impl Defect for FencesStandStill {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        let before = slot.as_ref().map(|record| record.fence);
        let mut answer = step(slot, plan, at, ledger);
        if let (Answer::Taken(taken), Some(before), Some(record)) = (&mut answer, before, slot)
            && record.fence > before
        {
            record.fence = before;
            record.holds.iter_mut().filter(|hold| hold.fence == taken.fence).for_each(|hold| {
                hold.fence = before;
            });
            taken.fence = before;
        }
        answer
    }
}

/// Deletes the row, and with it what fences there were.
pub(crate) struct FencesBeginAnew;
impl Defect for FencesBeginAnew {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        if matches!(plan.act, Act::Register { .. }) {
            slot.take_if(|record| record.gone.is_some());
        }
        step(slot, plan, at, ledger)
    }
    fn create(slot: &mut Slot, new: &NewSchedule<'_>, at: At<'_>) -> Result {
        slot.take_if(|record| record.gone.is_some());
        create(slot, new, at)
    }
}

/// Knows no tombstones at all.
pub(crate) struct ForgetsTheDeleted;
impl Defect for ForgetsTheDeleted {
    fn delete(slot: &mut Slot, name: &str, at: At<'_>) -> Result {
        allora_core::record::delete(slot, name, at)?;
        *slot = None;
        Ok(())
    }
}

/// Does not remember what was finished.
pub(crate) struct FinishesOnce;
impl Defect for FinishesOnce {
    fn settle(slot: &mut Slot, end: &Ending<'_>, at: At<'_>, ledger: &mut Ledger) -> Settled {
        let settled = settle(slot, end, at, ledger);
        if let Some(record) = slot {
            record.ended = None;
        }
        settled
    }
}

/// Has room for one trigger.
pub(crate) struct LosesATrigger;
impl Defect for LosesATrigger {
    fn change(
        slot: &mut Slot,
        name: &str,
        what: &Change<'_>,
        at: At<'_>,
        ledger: &mut Ledger,
    ) -> Result {
        change(slot, name, what, at, ledger)?;
        if let Some(record) = slot {
            record.triggers.truncate(1);
        }
        Ok(())
    }
}

/// An extension says when the lease ends, even if that is sooner.
pub(crate) struct ShrinksLeases;
impl Defect for ShrinksLeases {
    fn settle(slot: &mut Slot, end: &Ending<'_>, at: At<'_>, ledger: &mut Ledger) -> Settled {
        if let (End::Extend { lasts }, Some(record)) = (&end.end, &mut *slot) {
            let until = whole_millis(saturating_add(at.now, *lasts));
            record.holds.iter_mut().filter(|hold| hold.fence == end.fence).for_each(|hold| {
                hold.until = until;
            });
        }
        settle(slot, end, at, ledger)
    }
}

/// Refuses an ending because the lease is over, though nobody has taken over.
pub(crate) struct TrustsTheClock;
impl Defect for TrustsTheClock {
    fn settle(slot: &mut Slot, end: &Ending<'_>, at: At<'_>, ledger: &mut Ledger) -> Settled {
        let over = |hold: &Hold| hold.fence == end.fence && hold.until <= at.now;
        match slot {
            Some(record) if record.holds.iter().any(over) => Settled::Lost,
            _ => settle(slot, end, at, ledger),
        }
    }
}

/// A crashed at-most-once run counts as running for ever.
pub(crate) struct MarksNeverLapse;
impl Defect for MarksNeverLapse {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        let late = at.now + TimeDelta::milliseconds(1);
        let mut ends = Vec::new();
        for hold in slot.iter_mut().flat_map(|record| &mut record.holds) {
            if !hold.at_least_once && hold.until <= at.now {
                ends.push((hold.fence, hold.until));
                hold.until = late;
            }
        }
        let answer = step(slot, plan, at, ledger);
        for hold in slot.iter_mut().flat_map(|record| &mut record.holds) {
            if let Some((_, until)) = ends.iter().find(|(fence, _)| *fence == hold.fence) {
                hold.until = *until;
            }
        }
        answer
    }
}

/// A collation that knows no case.
pub(crate) struct MergesCase;
impl Defect for MergesCase {
    fn key(name: &str) -> String {
        name.to_lowercase()
    }
}

/// Grants what is offered, whatever happened since the node has read of it.
pub(crate) struct IgnoresTheFence;
impl Defect for IgnoresTheFence {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        match (&plan.act, &slot) {
            (Act::Take(wanted), Some(record)) => {
                let mut wanted = wanted.clone();
                wanted.fence = record.fence;
                take(slot, plan, wanted, at, ledger)
            }
            _ => step(slot, plan, at, ledger),
        }
    }
}

/// An old build wins its definition back.
pub(crate) struct IgnoresTheVersion;
impl Defect for IgnoresTheVersion {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        if let (Act::Redefine { version, .. }, Some(record)) = (&plan.act, &mut *slot) {
            record.version = record.version.min(*version);
        }
        step(slot, plan, at, ledger)
    }
}

/// Does not store claims.
pub(crate) struct IgnoresTheClaim;
impl Defect for IgnoresTheClaim {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        let answer = step(slot, plan, at, ledger);
        if let Some(record) = slot {
            record.unheld = None;
            record.holds.iter_mut().for_each(|hold| hold.claim = u128::MAX / 3);
        }
        answer
    }
}

/// Stores claims in 64 bits.
pub(crate) struct CutsTheClaim;
impl Defect for CutsTheClaim {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        match &plan.act {
            Act::Take(wanted) => {
                let mut wanted = wanted.clone();
                wanted.claim &= u128::from(u64::MAX);
                take(slot, plan, wanted, at, ledger)
            }
            _ => step(slot, plan, at, ledger),
        }
    }
}

/// Believes what a job's `next_at` says.
pub(crate) struct MovesTheCursorBack;
impl Defect for MovesTheCursorBack {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        if let Act::Take(wanted) = &plan.act
            && let Deliver::AtMostOnce { then: Cursor::To(Some(next)), mark } = wanted.deliver
            && next.at <= wanted.start.at
        {
            let mut wanted = wanted.clone();
            wanted.deliver = Deliver::AtMostOnce { then: Cursor::To(None), mark };
            let answer = take(slot, plan, wanted, at, ledger);
            if let (Answer::Taken(_), Some(record)) = (&answer, slot) {
                record.cursor = Some(next);
            }
            return answer;
        }
        step(slot, plan, at, ledger)
    }
}

/// Answers in the order in which the rows came back.
pub(crate) struct AnswersOutOfOrder;
impl Defect for AnswersOutOfOrder {
    fn answers(mut answers: Vec<Answer>) -> Vec<Answer> {
        answers.reverse();
        answers
    }
}

/// Passes over instants, and tells nobody.
pub(crate) struct SkipsInSilence;
impl Defect for SkipsInSilence {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        let Act::Skip(_) = &plan.act else { return step(slot, plan, at, ledger) };
        let before = slot.as_ref().map(|record| record.counters);
        step(slot, plan, at, &mut Ledger::off());
        if let (Some(before), Some(record)) = (before, &mut *slot) {
            record.counters = before;
        }
        unchanged(slot, plan)
    }
}

/// Takes over while the lease lasts.
pub(crate) struct IgnoresLeases;
impl Defect for IgnoresLeases {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        let granted =
            |take: &Take, record: &Record| record.holds.iter().any(|hold| hold.claim == take.claim);
        if let (Act::Take(wanted), Some(record)) = (&plan.act, &mut *slot)
            && !granted(wanted, record)
        {
            for hold in record.holds.iter_mut().filter(|hold| hold.at_least_once) {
                hold.until = hold.until.min(at.now);
            }
        }
        step(slot, plan, at, ledger)
    }
}

/// Overlap is not looked at.
pub(crate) struct IgnoresMarks;
impl Defect for IgnoresMarks {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        let Act::Take(wanted) = &plan.act else { return step(slot, plan, at, ledger) };
        let mut wanted = wanted.clone();
        if let Deliver::AtMostOnce { mark: Some(mark), .. } = &mut wanted.deliver {
            mark.beside = allora_core::backend::Beside::Others;
        }
        take(slot, plan, wanted, at, ledger)
    }
}

/// Keeps data as text that ends at the first NUL.
pub(crate) struct EndsDataAtNul;
impl Defect for EndsDataAtNul {
    fn create(slot: &mut Slot, new: &NewSchedule<'_>, at: At<'_>) -> Result {
        create(slot, new, at)?;
        if let Some(record) = slot {
            let end = record.data.iter().position(|byte| *byte == 0);
            record.data.truncate(end.unwrap_or(usize::MAX));
        }
        Ok(())
    }
}

/// Keeps instants in whole seconds.
pub(crate) struct CutsInstants;
impl Defect for CutsInstants {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        let cut = |next: &Next| Next {
            at: next.at.trunc_subsecs(0),
            due_at: next.due_at.trunc_subsecs(0),
        };
        match &plan.act {
            Act::Register { definition, version, first } => {
                let first = first.as_ref().map(cut);
                let act = Act::Register { definition, version: *version, first };
                step(slot, &Plan::new(plan.name, act), at, ledger)
            }
            _ => step(slot, plan, at, ledger),
        }
    }
}

/// A pause is shown, and that is all.
pub(crate) struct IgnoresThePause;
impl Defect for IgnoresThePause {
    fn step(slot: &mut Slot, plan: &Plan<'_>, at: At<'_>, ledger: &mut Ledger) -> Answer {
        let acts = matches!(plan.act, Act::Take(_) | Act::Skip(_));
        let pause = slot.as_mut().filter(|_| acts).and_then(|record| record.paused.take());
        let answer = step(slot, plan, at, ledger);
        if let (Some(pause), Some(record)) = (pause, slot.as_mut()) {
            record.paused = Some(pause);
        }
        match answer {
            Answer::State(_) => unchanged(slot, plan),
            answer => answer,
        }
    }
}

/// `<=` where `<` is meant, in the search for what is due.
pub(crate) struct FindsTooMuch;
impl Defect for FindsTooMuch {
    fn find(mut find: Find<'_>) -> Find<'_> {
        find.until += TimeDelta::milliseconds(1);
        find
    }
}

/// The newest first, where names are asked for in order.
pub(crate) struct ListsBackwards;
impl Defect for ListsBackwards {
    fn listed(mut states: Vec<State>) -> Vec<State> {
        states.reverse();
        states
    }
}

/// Every attempt is the first.
pub(crate) struct ForgetsAttempts;
impl Defect for ForgetsAttempts {
    fn settle(slot: &mut Slot, end: &Ending<'_>, at: At<'_>, ledger: &mut Ledger) -> Settled {
        let settled = settle(slot, end, at, ledger);
        for again in slot.iter_mut().flat_map(|record| &mut record.again) {
            again.attempts = 0;
        }
        settled
    }
}

/// The history knows how runs began.
pub(crate) struct ForgetsHowRunsEnded;
impl Defect for ForgetsHowRunsEnded {
    fn past(mut past: Vec<Past>) -> Vec<Past> {
        for past in past.iter_mut().filter(|past| past.attempt > 0) {
            past.outcome = Outcome::Running;
        }
        past
    }
}

/// Nobody is told anything.
pub(crate) struct KeepsSilent;
impl Defect for KeepsSilent {
    fn tells() -> bool {
        false
    }
}

/// Answers a batch from its end.
pub(crate) struct AddsBackwards;
impl Defect for AddsBackwards {
    fn added(mut added: Vec<Result<State>>) -> Vec<Result<State>> {
        added.reverse();
        added
    }
}

/// Knows one kind.
pub(crate) struct ForgetsKinds;
impl Defect for ForgetsKinds {
    fn kinds(mut kinds: Vec<String>) -> Vec<String> {
        kinds.truncate(1);
        kinds
    }
}

/// What failed for good is forgotten.
pub(crate) struct ForgetsTheDead;
impl Defect for ForgetsTheDead {
    fn settle(slot: &mut Slot, end: &Ending<'_>, at: At<'_>, ledger: &mut Ledger) -> Settled {
        let settled = settle(slot, end, at, ledger);
        slot.iter_mut().for_each(|record| record.dead.clear());
        settled
    }
}

/// Takes what is brought along for new.
pub(crate) struct BeginsAnew;
impl Defect for BeginsAnew {
    fn create(slot: &mut Slot, new: &NewSchedule<'_>, at: At<'_>) -> Result {
        let mut bare = NewSchedule::new(new.name, new.kind, new.definition, new.first);
        bare.data = new.data;
        create(slot, &bare, at)
    }
}

/// The kind of an edit is overlooked.
pub(crate) struct KeepsTheKind;
impl Defect for KeepsTheKind {
    fn change(
        slot: &mut Slot,
        name: &str,
        what: &Change<'_>,
        at: At<'_>,
        ledger: &mut Ledger,
    ) -> Result {
        let kind = slot.as_ref().map(|record| record.kind.clone());
        change(slot, name, what, at, ledger)?;
        if let (Some(kind), Some(record)) = (kind, slot) {
            record.kind = kind;
        }
        Ok(())
    }
}
