//! What must be true of every step, kept beside the record: who was granted what, and what has ended.

use super::job::{INSTANTS, Setting, TRIGGER, index, time};
use crate::{
    backend::{Claimed, HistoryEntry, OnExpiry, Outcome, Sharing},
    record::Record,
    time::Time,
};

/// The books.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Books {
    /// The final entries of each instant, and of the trigger.
    ended: [u8; INSTANTS.len() + 1],
    /// Those whose entry is a loss, which a late result may replace.
    lost: [bool; INSTANTS.len() + 1],
    /// At most once: the times that code has begun.
    begun: [u8; INSTANTS.len() + 1],
    /// The highest fence of a claim.
    fence: i64,
    /// The fence of each claim that may come again.
    pub(super) grants: Vec<(u8, i64)>,
    /// The last end that was accepted, by the fence of its run.
    accepted: Option<i64>,
    /// The ticks at which the job was created last, and edited since.
    created: u8,
    edited: Option<u8>,
    pub(super) triggered: bool,
}

impl Books {
    pub(super) fn created(&mut self, now: u8) {
        let Self { fence, grants, .. } = std::mem::take(self);
        *self = Self { fence, grants, created: now, ..Self::default() };
    }

    pub(super) fn edited(&mut self, now: u8) {
        self.edited = Some(now);
    }

    pub(super) fn deleted(&mut self) {
        self.accepted = None;
    }

    /// A claim is granted.
    pub(super) fn granted(
        &mut self,
        id: u8,
        claimed: &Claimed,
        before: Option<&Record>,
        now: Time,
        is_shared: bool,
    ) -> Result<(), String> {
        let fence = claimed.fence;
        if let Some((_, first)) = self.grants.iter().find(|(known, _)| *known == id) {
            let same = format!("claim {id} was granted fence {first}, and then {fence}");
            return if *first == fence { Ok(()) } else { Err(same) };
        }
        if fence <= self.fence {
            return Err(format!("fence {fence} was granted after {}", self.fence));
        }
        let Some(before) = before.filter(|record| record.is_live()) else {
            return Err("a deleted job was claimed".into());
        };
        if before.paused.is_some() && claimed.occurrence.trigger.is_none() {
            return Err("the schedule is paused, and was claimed".into());
        }
        let is_alone = |sharing| !is_shared || sharing == Sharing::Exclusive;
        if before.leases.iter().any(|lease| lease.until > now && is_alone(lease.sharing)) {
            return Err(format!("fence {fence} was granted beside a lease that lasts"));
        }
        let i = index(&claimed.occurrence);
        if self.ended[i] > 0 {
            return Err(format!("{:?} was claimed after its end", claimed.occurrence));
        }
        self.fence = fence;
        self.grants.push((id, fence));
        Ok(())
    }

    /// A claim that was granted and whose lease lasts gets the same answer again.
    pub(super) fn not_granted(&self, id: u8, before: Option<&Record>) -> Result<(), String> {
        let grant = self.grants.iter().find(|(known, _)| *known == id);
        let holds = |fence: i64| {
            before.filter(|record| record.is_live()).is_some_and(|record| {
                let mut leases = record.leases.iter();
                leases.any(|lease| lease.fence == fence && fence >= record.incarnation)
            })
        };
        match grant.is_some_and(|(_, fence)| holds(*fence)) {
            true => Err(format!("claim {id} holds its lease, and its repetition was refused")),
            false => Ok(()),
        }
    }

    /// An end or an extension by this fence has been answered.
    pub(super) fn answered(
        &mut self,
        fence: i64,
        before: Option<&Record>,
        is_end: bool,
        is_accepted: bool,
    ) -> Result<(), String> {
        let is_run = before.is_some_and(|record| record.run(fence).is_some());
        let is_repeated = is_end && self.accepted == Some(fence);
        match (is_accepted, is_run, is_repeated) {
            (true, false, false) => Err(format!("the outdated fence {fence} was accepted")),
            (false, _, true) => Err(format!("the end of {fence} is refused when it is repeated")),
            _ => {
                if is_end && is_accepted {
                    self.accepted = Some(fence);
                }
                Ok(())
            }
        }
    }

    /// The cursor moves forward, or not at all.
    pub(super) fn moved(before: &Record, after: &Record) -> Result<(), String> {
        let at = |record: &Record| record.cursor.map(|next| next.scheduled_at);
        match (at(before), at(after)) {
            (Some(from), Some(to)) if to < from => Err(format!("the cursor moved back to {to}")),
            (None, Some(to)) => Err(format!("the schedule had ended, and goes on at {to}")),
            _ => Ok(()),
        }
    }

    /// The history gets an entry.
    pub(super) fn entered(
        &mut self,
        entry: &HistoryEntry,
        setting: &Setting,
        was_edited: bool,
        after: Option<&Record>,
        now: Time,
    ) -> Result<(), String> {
        if !entry.is_final() {
            return Ok(());
        }
        if entry.occurrence.trigger.is_some() {
            return self.ended(TRIGGER, &entry.outcome);
        }
        let first = entry.occurrence.scheduled_at;
        let mut last = entry.last.unwrap_or(first);
        if entry.attempt == 0 && entry.count.is_none() {
            // Nobody can count them: all up to now that the new schedule does not begin with.
            let cursor = after.and_then(|record| record.cursor).map(|next| next.scheduled_at);
            last =
                cursor.map_or(now, |cursor| now.min(cursor - chrono::TimeDelta::milliseconds(1)));
            last = last.max(first);
        }
        for (i, seconds) in INSTANTS.into_iter().enumerate() {
            let at = time(seconds);
            if at >= first && at <= last && (at == first || setting.has(at, was_edited)) {
                self.ended(i, &entry.outcome)?;
            }
        }
        Ok(())
    }

    fn ended(&mut self, i: usize, outcome: &Outcome) -> Result<(), String> {
        let is_loss = *outcome == Outcome::Lost;
        if self.lost[i] && !is_loss {
            self.lost[i] = false;
            return Ok(());
        }
        self.ended[i] += 1;
        self.lost[i] |= is_loss;
        match self.ended[i] {
            1 => Ok(()),
            _ => Err(format!("occurrence {i} has two ends, the second is {outcome:?}")),
        }
    }

    /// The code of a run begins.
    pub(super) fn begins(
        &mut self,
        claimed: &Claimed,
        on_expiry: OnExpiry,
        incarnation: i64,
    ) -> Result<(), String> {
        if on_expiry == OnExpiry::Retry || claimed.incarnation != incarnation {
            return Ok(());
        }
        let begun = &mut self.begun[index(&claimed.occurrence)];
        *begun += 1;
        match *begun {
            1 => Ok(()),
            _ => Err(format!("{:?} has begun twice, at most once", claimed.occurrence)),
        }
    }

    /// When no work is left, each instant that the definition of its time has is accounted for.
    pub(super) fn close(&self, setting: &Setting) -> Result<(), String> {
        for (i, seconds) in INSTANTS.into_iter().enumerate() {
            let at = time(seconds);
            let was_edited = self.edited.is_some_and(|tick| at > time(i64::from(tick) * 10));
            let is_due = at > time(i64::from(self.created) * 10) && setting.has(at, was_edited);
            if is_due && self.ended[i] == 0 {
                return Err(format!("nothing is left to do, and {seconds} has no end"));
            }
        }
        match self.triggered && self.ended[TRIGGER] == 0 {
            true => Err("nothing is left to do, and the trigger has no end".into()),
            false => Ok(()),
        }
    }
}
