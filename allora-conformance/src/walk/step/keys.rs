//! The steps about concurrency keys.

use super::{FOREVER, KEYS, KeyLease, MAX_LIMIT, NAMES, Planned, Walker};
use crate::random::Random;
use allora_core::{
    backend::{Action, ClaimKey},
    time::whole_millis,
};
use chrono::TimeDelta;
use std::time::Duration;

impl Walker {
    /// The claim of a place, mostly for an occurrence that is due; or one that was sent before. Now
    /// and then the key is paused, resumed, read or deleted.
    pub(super) fn claim_key(&mut self, random: &mut Random) -> (&'static str, Planned) {
        let key = *random.pick(KEYS).expect("there are keys");
        if random.one_in(8) {
            let action = match random.below(4) {
                0 => {
                    let until = random.one_in(2).then(|| self.now + TimeDelta::seconds(3));
                    Action::Pause { note: "note", until }
                }
                1 => Action::Resume,
                2 => Action::Read,
                _ => Action::Delete,
            };
            return (key, Planned::same(action));
        }
        if random.one_in(8)
            && let Some((key, claim)) = random.pick(&self.asked)
        {
            return (key, Planned::same(Action::ClaimKey(*claim)));
        }
        self.claims += 1;
        let job = *random.pick(NAMES).expect("there are names");
        let due_at = self.now - TimeDelta::seconds(random.below(3) as i64);
        let limit = 1 + random.below(MAX_LIMIT) as u32;
        let duration = match self.exactness.lease_ends {
            true => Duration::from_millis(random.below(60_000)),
            false => FOREVER,
        };
        let since = random.one_in(4).then(|| self.now - TimeDelta::milliseconds(1_500));
        let claim = ClaimKey::new(self.claims, limit, job, whole_millis(due_at), duration);
        // One in six; every other of them comes too late.
        let late_by = self.claims.is_multiple_of(12).into();
        let not_after =
            self.claims.is_multiple_of(6).then(|| self.now - TimeDelta::seconds(late_by));
        let claim = claim.waiting_since(since).not_after(not_after);
        self.asked.push((key, claim));
        (key, Planned::same(Action::ClaimKey(claim)))
    }

    /// The release or the extension of a place, mostly a recent one.
    pub(super) fn end_key(&self, random: &mut Random) -> Option<(&'static str, Planned)> {
        let recent: Vec<&KeyLease> = self.held.iter().rev().take(3).collect();
        let held = random.pick(&recent)?;
        let duration = Duration::from_millis(random.below(60_000));
        let extends = random.one_in(3);
        let action = |fence| match extends {
            true => Action::Extend { fence, duration },
            false => Action::ReleaseKey { fence },
        };
        Some((held.name, Planned::pair(action(held.store), action(held.reference))))
    }
}
