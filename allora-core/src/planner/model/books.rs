//! The rules that every step of the record must keep, checked beside it by its grants and its ends.

use super::{
    job::{Policy, TRIGGER, instants, place_of},
    store::CarriedOut,
};
use crate::{
    backend::{Action, Claim, Claimed, HistoryEntry, Lease, Outcome, Reply},
    record::Record,
    time::Time,
};

/// The property that a step violates.
pub(super) type Checked = Result<(), String>;

fn must(is_so: bool, otherwise: &str) -> Checked {
    if is_so { Ok(()) } else { Err(otherwise.to_owned()) }
}

/// The books.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Books {
    policy: Policy,
    /// Of the instants, and of the trigger.
    accounts: [Account; TRIGGER + 1],
    /// Those whose code has begun.
    begun: [bool; TRIGGER + 1],
    /// The highest fence of a claim.
    fence: i64,
    /// Fence and end of the lease that lasts, unless runs overlap.
    holder: Option<(i64, Time)>,
    /// The fence of the last end that was accepted.
    accepted: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Account {
    /// The job does not have it: it was created later, or was deleted.
    NotDue,
    Open,
    Lost,
    Ended,
}

impl Books {
    /// Of a job that has these instants.
    pub(super) fn new(policy: Policy, has: impl Fn(Time) -> bool) -> Self {
        let mut accounts = [Account::NotDue; TRIGGER + 1];
        for (place, _) in instants().filter(|(_, at)| has(*at)) {
            accounts[place] = Account::Open;
        }
        let begun = [false; TRIGGER + 1];
        Self { policy, accounts, begun, fence: 0, holder: None, accepted: None }
    }

    /// Checks a step, and notes it.
    pub(super) fn note(&mut self, step: &CarriedOut) -> Checked {
        let reply = step.reply.as_ref().ok();
        match (&step.sent, reply) {
            (Action::Claim(claim), _) => self.claimed(claim, reply, step)?,
            (Action::Extend { fence, .. }, Some(reply)) => self.extended(*fence, reply)?,
            (
                Action::Complete { fence, .. }
                | Action::Retry { fence, .. }
                | Action::Release { fence },
                Some(reply),
            ) => self.ended(*fence, reply)?,
            (Action::Trigger { .. }, Some(Reply::Triggered(new))) if new.is_new() => {
                self.accounts[TRIGGER] = Account::Open;
            }
            _ => {}
        }
        for entry in &step.entries {
            self.entered(entry)?;
        }
        match (&step.sent, &step.before, &step.after) {
            (Action::Create(_), ..) => self.begin_again(|at| at > step.now),
            (Action::Delete, ..) => self.begin_again(|_| false),
            (_, Some(before), Some(after)) => {
                let at = |it: &Record| it.cursor.map_or(Time::MAX_UTC, |next| next.scheduled_at);
                must(at(after) >= at(before), "the cursor moved back")?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Fences and leases outlive a job.
    fn begin_again(&mut self, has: impl Fn(Time) -> bool) {
        let Self { policy, fence, holder, .. } = *self;
        *self = Self { fence, holder, ..Self::new(policy, has) };
    }

    fn claimed(&mut self, claim: &Claim, reply: Option<&Reply>, step: &CarriedOut) -> Checked {
        let record = step.before.as_ref().filter(|record| record.is_live());
        let incarnation = record.map_or(0, |record| record.incarnation);
        let mut leases = record.iter().flat_map(|record| &record.leases);
        let is_it = |it: &&Lease| it.claim_id == claim.claim_id && it.fence >= incarnation;
        let held = leases.find(is_it).map(|lease| lease.fence);
        let Some(Reply::Claimed(Claimed { fence, until, occurrence, .. })) = reply else {
            return must(held.is_none(), "the repetition of a granted claim was refused");
        };
        if held == Some(*fence) {
            return Ok(());
        }
        let place = place_of(occurrence);
        let pause = record.and_then(|record| record.paused.as_ref());
        let is_open = place.is_some_and(|place| self.accounts[place] == Account::Open);
        must(*fence > self.fence, "a fence was granted that was not the highest")?;
        must(claim.fence >= self.fence, "a claim was granted that was made before the last one")?;
        let is_paused = pause.is_some_and(|pause| pause.lasts(step.now));
        must(!is_paused || place == Some(TRIGGER), "a paused schedule was claimed")?;
        must(self.holder.is_none(), "a claim was granted beside a lease that lasts")?;
        must(is_open, "an occurrence was claimed that is not due, or has ended")?;
        self.fence = *fence;
        self.hold(*fence, *until);
        Ok(())
    }

    fn extended(&mut self, fence: i64, reply: &Reply) -> Checked {
        let Some(until) = reply.extended() else { return Ok(()) };
        must(!self.is_outdated(fence), "the lease of an outdated run was extended")?;
        self.hold(fence, until);
        Ok(())
    }

    fn ended(&mut self, fence: i64, reply: &Reply) -> Checked {
        let is_repeated = self.accepted == Some(fence);
        if *reply == Reply::Accepted {
            must(
                is_repeated || !self.is_outdated(fence),
                "the end of an outdated run was accepted",
            )?;
            self.accepted = Some(fence);
            self.holder.take_if(|(held, _)| *held == fence);
            return Ok(());
        }
        let is_cancelled = matches!(reply, Reply::CancelRequested(_));
        let is_held = self.holder.is_some_and(|(held, _)| held == fence);
        must(!is_repeated, "an end that was accepted was refused when it was repeated")?;
        must(!is_held || is_cancelled, "an end was refused while the lease lasts")
    }

    fn is_outdated(&self, fence: i64) -> bool {
        self.policy != Policy::Overlapping && fence < self.fence
    }

    fn hold(&mut self, fence: i64, until: Time) {
        self.holder = (self.policy != Policy::Overlapping).then_some((fence, until));
    }

    /// The history gets an entry. Each occurrence has one end. A run that overlaps may be extended, end or be released
    /// after it was recorded as lost: what becomes of it then replaces its loss, another loss too.
    fn entered(&mut self, entry: &HistoryEntry) -> Checked {
        let first = entry.occurrence.scheduled_at;
        let range = first..=entry.last.unwrap_or(first);
        let is_trigger = entry.occurrence.trigger.is_some();
        let places = instants().filter(|(_, at)| !is_trigger && range.contains(at));
        let places = places.map(|(place, _)| place).chain(is_trigger.then_some(TRIGGER));
        let is_lost = entry.outcome == Outcome::Lost;
        for place in places {
            let account = &mut self.accounts[place];
            if *account == Account::Lost && self.policy == Policy::Overlapping {
                *account = Account::Open;
            }
            if entry.is_final() {
                must(*account == Account::Open, "an occurrence has two ends")?;
                *account = if is_lost { Account::Lost } else { Account::Ended };
            }
        }
        Ok(())
    }

    /// The code of a run begins.
    pub(super) fn begins(&mut self, place: usize) -> Checked {
        let again = std::mem::replace(&mut self.begun[place], true);
        must(!again || self.policy == Policy::AtLeastOnce, "a run has begun twice, at most once")
    }

    /// Time has passed.
    pub(super) fn pass(&mut self, now: Time) {
        self.holder.take_if(|(_, until)| *until <= now);
    }

    /// No work is left.
    pub(super) fn close(&self) -> Checked {
        let is_open = self.accounts.contains(&Account::Open);
        must(!is_open, "nothing is left to do, and an occurrence has no end")
    }
}
