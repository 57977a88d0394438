//! The record of a concurrency key: the leases of its holders, and the queue of the jobs that wait.
//!
//! A lock service would be a second mechanism on each store. As a record, a key has fences, leases
//! and tombstones already. A refused claim writes its job into the queue for 6 s, under the name of
//! the job and not of the node, so a waiter that is gone delays the others by 6 s at most.

use super::{OpContext, Record, define};
use crate::{
    backend::{ClaimKey, Claimed, Lease, Occurrence, OnExpiry, Reply, Sharing, Waiter},
    time::{Time, saturating_add, whole_millis},
};
use std::time::Duration;

/// The time for which a refused claim keeps its place in the queue of a concurrency key, unless it
/// is repeated.
pub const KEEP_WAITER: Duration = Duration::from_secs(6);

/// The largest number of jobs in the queue of one key. Of more, those that come last have no place
/// until others have left.
pub const MAX_WAITERS: usize = 256;

/// The longest lease of a job: by this, at most, a holder extends its place whose length is not noted.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The definition in the record of a key.
const DEFINITION: &str = "concurrency key";

/// Claims a place of the key for a job, or writes the job into the queue.
pub(super) fn claim(
    slot: &mut Option<Record>,
    name: &str,
    key: &ClaimKey<'_>,
    context: OpContext<'_>,
) -> Reply {
    // As it is stored: a job must find its own place in the queue again, or it waits for itself.
    let key = &ClaimKey { due_at: whole_millis(key.due_at), ..*key };
    if key.is_late(context.now) {
        return match slot {
            None => Reply::Absent,
            Some(record) if !record.is_live() => Reply::Deleted,
            Some(record) => record.claimed_before(name, key, context.now),
        };
    }
    define::register(slot, DEFINITION, u64::from(key.limit), None, context);
    let Some(record) = slot else { return Reply::Absent };
    match record.claim_key(key, context) {
        Some(claimed) => Reply::Claimed(claimed),
        None => Reply::State(Box::new(record.state(name))),
    }
}

impl Record {
    /// The reply to a claim that comes too late: the place that it was given before, or the record.
    fn claimed_before(&self, name: &str, key: &ClaimKey<'_>, now: Time) -> Reply {
        let is_mine = |lease: &&Lease| lease.claim_id == key.claim_id && lease.until > now;
        match self.leases.iter().find(is_mine) {
            Some(lease) => {
                let mut lease = lease.clone();
                set_back(&mut lease, now);
                Reply::Claimed(self.claimed(&lease))
            }
            None => Reply::State(Box::new(self.state(name))),
        }
    }

    fn claim_key(&mut self, key: &ClaimKey<'_>, context: OpContext<'_>) -> Option<Claimed> {
        let now = context.now;
        self.leases.iter_mut().for_each(|lease| set_back(lease, now));
        let until = whole_millis(saturating_add(now, key.duration));
        let same = self.leases.iter().position(|lease| lease.claim_id == key.claim_id);
        if let Some(lease) = same.and_then(|i| self.leases.get_mut(i))
            && lease.until > now
        {
            lease.until = lease.until.max(until);
            let lease = lease.clone();
            return Some(self.claimed(&lease));
        }
        let live = || self.leases.iter().filter(|lease| lease.until > now);
        let is_same = |lease: &Lease| {
            lease.due_at == key.due_at && lease.occurrence.trigger.as_deref() == Some(key.job)
        };
        if live().any(is_same) {
            // Another node is about to claim this occurrence, or runs it.
            return None;
        }
        let places = (key.limit as usize).saturating_sub(live().count());
        let waits = |waiter: &&Waiter| is_live(waiter, now) && waiter.place() < key.place();
        let before = self.waiters.iter().filter(waits).count();
        if before >= places || self.paused.is_some() {
            self.wait_for_key(key, now);
            return None;
        }
        let mine = self.waiters.extract_if(.., |waiter| waiter.place() == key.place());
        let since = mine.map(|waiter| waiter.since).chain(key.since).min();
        self.waiters.retain(|waiter| is_live(waiter, now));
        // The end of a run that has lost the key is not accepted any more.
        self.leases.retain(|lease| lease.until > now);
        self.version = u64::from(key.limit);
        let scheduled_at = whole_millis(since.unwrap_or(now).min(now));
        let lease = Lease {
            node: context.node.to_owned(),
            claim_id: key.claim_id,
            fence: self.draw_fence(now),
            occurrence: Occurrence { scheduled_at, trigger: Some(key.job.to_owned()) },
            attempt: noted(key.duration, key.extended_by),
            due_at: key.due_at,
            started_at: whole_millis(now),
            until,
            on_expiry: OnExpiry::Lost,
            sharing: Sharing::Shared,
            cancel_requested: false,
            replaced_by: None,
            completed: false,
        };
        let claimed = self.claimed(&lease);
        self.leases.push(lease);
        Some(claimed)
    }

    /// Writes the job into the queue, or prolongs its place when half of the time is over.
    fn wait_for_key(&mut self, key: &ClaimKey<'_>, now: Time) {
        let until = whole_millis(saturating_add(now, KEEP_WAITER));
        let since = key.since.unwrap_or(now).min(now);
        if let Some(waiter) = self.waiters.iter_mut().find(|waiter| waiter.place() == key.place())
            && is_live(waiter, now)
        {
            waiter.since = waiter.since.min(whole_millis(since));
            if saturating_add(now, KEEP_WAITER / 2) >= waiter.until {
                waiter.until = until;
            }
            return;
        }
        self.waiters.retain(|waiter| is_live(waiter, now) && waiter.place() != key.place());
        let place = self.waiters.partition_point(|waiter| waiter.place() < key.place());
        let waiter = Waiter::new(key.job, key.due_at, whole_millis(since), until);
        self.waiters.insert(place, waiter);
        self.waiters.truncate(MAX_WAITERS);
    }

    /// `true` if no job holds the key, and none waits for it.
    pub(super) fn is_free_key(&self, now: Time) -> bool {
        self.leases.iter().all(|lease| lease.until <= now)
            && !self.waiters.iter().any(|waiter| is_live(waiter, now))
    }

    /// Releases the place of the holder with this fence.
    pub(super) fn release_key(&mut self, fence: i64) -> Reply {
        match self.leases.iter().position(|lease| lease.fence == fence) {
            Some(i) => {
                self.leases.remove(i);
                Reply::Accepted
            }
            None => Reply::LeaseLost,
        }
    }
}

/// The length of a lease as its record keeps it, in seconds: in the place of the number of an attempt,
/// which a place of a key does not have. 1 is that of a lease whose length is not known.
fn noted(duration: Duration, extended_by: Option<Duration>) -> u32 {
    let length = extended_by.map(|extended_by| extended_by.max(duration).as_secs());
    length.map_or(1, |seconds| u32::try_from(seconds + 1).unwrap_or(u32::MAX).max(2))
}

/// Shortens a lease that a clock has written which was ahead: to its length, from now on. A live holder
/// extends it before that, and a dead one delays the others no longer.
fn set_back(lease: &mut Lease, now: Time) {
    let length = length(lease);
    if lease.until > saturating_add(now, 2 * length) {
        lease.until = whole_millis(saturating_add(now, length));
        lease.started_at = whole_millis(now);
    }
}

/// The length of a lease of a key, at least.
fn length(lease: &Lease) -> Duration {
    match lease.attempt {
        1 => LONGEST,
        seconds => Duration::from_secs(seconds.into()),
    }
}

/// `true` if a clock that was ahead has written the lease, and its holder has not extended it since
/// that was right again. A live one does so after a third of its length. Of no other lease, the time
/// from start to end is the noted length, which is a second longer than that by which it is extended.
pub(crate) fn is_left(lease: &Lease, now: Time) -> bool {
    let length = length(lease);
    let has_length = lease.until == whole_millis(saturating_add(lease.started_at, length));
    has_length && lease.until > now && now >= saturating_add(lease.started_at, length / 2)
}

/// The end of the name of a job that runs on every node, in the record of its key.
pub(crate) fn on(node: &str) -> String {
    format!(" on {node}")
}

/// The job that holds a place of a key.
pub(crate) fn job_of(lease: &Lease) -> &str {
    let holder = lease.occurrence.trigger.as_deref().unwrap_or_default();
    holder.strip_suffix(&on(&lease.node)).unwrap_or(holder)
}

/// `true` while the job keeps its place in the queue. A place that ends far in the future was written
/// by a clock that was ahead.
fn is_live(waiter: &Waiter, now: Time) -> bool {
    now < waiter.until && waiter.until <= saturating_add(now, 2 * KEEP_WAITER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{Action, Operation},
        record::{HistoryBuffer, apply},
        time::from_millis,
    };
    use chrono::TimeDelta;

    const LEASE: Duration = Duration::from_secs(5);

    fn at(seconds: f64) -> Time {
        from_millis(1_767_225_600_000 + (seconds * 1_000.0) as i64).unwrap()
    }

    #[derive(Default)]
    struct Key(Option<Record>);

    impl Key {
        fn apply(&mut self, action: Action<'_>, now: f64) -> Reply {
            let operation = Operation::new("key", action);
            let context = OpContext::new("n", at(now));
            apply(&mut self.0, &operation, context, &mut HistoryBuffer::off()).unwrap()
        }

        /// The claim of a job that is due since this second; its id is that of the job.
        fn claim(&mut self, job: &str, limit: u32, due: f64, now: f64) -> Option<Claimed> {
            let id =
                job.bytes().fold((due * 1_000.0) as u128, |id, byte| id * 256 + u128::from(byte));
            let claim = ClaimKey::new(id, limit, job, at(due), LEASE);
            self.apply(Action::ClaimKey(claim), now).claimed()
        }

        fn queue(&self) -> Vec<&str> {
            let record = self.0.as_ref().unwrap();
            record.waiters.iter().map(|waiter| &*waiter.job).collect()
        }
    }

    #[test]
    fn as_many_hold_the_key_as_their_limit_says_and_the_others_wait_in_the_order_of_due_times() {
        let mut key = Key::default();
        assert!(key.claim("a", 2, 0.0, 1.0).is_some());
        let b = key.claim("b", 2, 0.0, 1.0).unwrap();
        assert_eq!(key.claim("d", 2, 1.0, 1.0), None);
        assert_eq!(key.claim("e", 2, 0.5, 1.0), None);
        assert_eq!(key.claim("c", 2, 1.0, 1.0), None);
        assert_eq!(key.queue(), ["e", "c", "d"]);
        assert_eq!(key.apply(Action::ReleaseKey { fence: b.fence }, 2.0), Reply::Accepted);
        assert_eq!(key.apply(Action::ReleaseKey { fence: b.fence }, 2.0), Reply::LeaseLost);
        assert_eq!(key.claim("d", 2, 1.0, 2.0), None, "e comes first");
        let e = key.claim("e", 2, 0.5, 3.0).unwrap();
        assert_eq!(e.occurrence.scheduled_at, at(1.0), "it has waited since then");
        assert!(e.fence > b.fence);
        assert_eq!(key.queue(), ["c", "d"]);
        assert_eq!(key.claim("f", 1, 0.0, 3.0), None, "two hold it, and one may");
        assert!(key.claim("f", 3, 0.0, 3.0).is_some(), "each claim has its own limit");
    }

    #[test]
    fn a_dead_holder_delays_others_by_its_lease_and_a_dead_waiter_by_its_place() {
        let mut key = Key::default();
        let a = key.claim("a", 1, 0.0, 0.0).unwrap();
        assert_eq!(key.claim("b", 1, 1.0, 1.0), None);
        for now in [2.0, 3.9, 4.9] {
            assert_eq!(key.claim("c", 1, 2.0, now), None, "{now}");
        }
        assert_eq!(key.claim("c", 1, 2.0, 5.0), None, "b comes first");
        assert!(key.claim("c", 1, 2.0, 7.0).is_some(), "b has not asked for six seconds");
        let extend = Action::Extend { fence: a.fence, duration: LEASE };
        assert_eq!(key.apply(extend, 7.0), Reply::LeaseLost);
    }

    #[test]
    fn a_late_extension_is_granted_only_while_no_other_job_has_the_place() {
        let mut key = Key::default();
        let a = key.claim("a", 1, 0.0, 0.0).unwrap();
        let extend = || Action::Extend { fence: a.fence, duration: LEASE };
        assert_eq!(key.apply(extend(), 6.0), Reply::Extended(at(11.0)));
        assert_eq!(key.claim("b", 1, 1.0, 10.0), None);
        assert!(key.claim("b", 1, 1.0, 11.0).is_some());
        assert_eq!(key.apply(extend(), 12.0), Reply::LeaseLost);
    }

    #[test]
    fn a_claim_whose_reply_was_lost_is_granted_again_and_one_occurrence_has_one_place() {
        let mut key = Key::default();
        let first = key.claim("a", 2, 0.0, 0.0).unwrap();
        let second = key.claim("a", 2, 0.0, 2.0).unwrap();
        assert_eq!((second.fence, second.until), (first.fence, at(7.0)));
        let other = ClaimKey::new(77, 2, "a", at(0.0), LEASE);
        assert_eq!(key.apply(Action::ClaimKey(other), 3.0).claimed(), None);
        assert!(key.queue().is_empty(), "it does not wait for itself");
        assert!(key.claim("a", 2, 60.0, 3.0).is_some(), "the next occurrence");
    }

    #[test]
    fn a_claim_that_comes_too_late_has_what_it_was_given_before_and_nothing_else() {
        let mut key = Key::default();
        let claim = |id, job, until| {
            let claim = ClaimKey::new(id, 1, job, at(0.0), LEASE).not_after(Some(at(until)));
            Action::ClaimKey(claim)
        };
        assert_eq!(key.apply(claim(1, "a", 1.0), 1.5), Reply::Absent);
        assert_eq!(key.0, None, "no record");
        let first = key.apply(claim(1, "a", 1.0), 1.0).claimed().unwrap();
        let record = key.0.clone();
        assert_eq!(key.apply(claim(1, "a", 1.0), 5.0).claimed(), Some(first), "the same lease");
        assert!(key.apply(claim(2, "b", 4.0), 5.0).state().is_some());
        assert!(key.apply(claim(1, "a", 1.0), 6.0).state().is_some(), "its lease is over");
        assert_eq!(key.0, record, "nothing is written");
        key.apply(Action::Delete, 7.0);
        assert_eq!(key.apply(claim(2, "b", 7.0), 8.0), Reply::Deleted);
    }

    /// The end of a lease may be shown as the present, which is not whole.
    #[test]
    fn a_job_finds_its_place_whatever_its_due_time() {
        let mut key = Key::default();
        let a = key.claim("a", 1, 0.0, 0.0).unwrap();
        let due = at(1.0) + TimeDelta::microseconds(500);
        let ask = |key: &mut Key, now| {
            let claim = ClaimKey::new(5, 1, "b", due, LEASE);
            key.apply(Action::ClaimKey(claim), now).claimed()
        };
        assert_eq!((ask(&mut key, 1.5), ask(&mut key, 2.5)), (None, None));
        assert_eq!(key.0.as_ref().unwrap().waiters[0].due_at, at(1.0));
        assert_eq!(key.queue(), ["b"]);
        key.apply(Action::ReleaseKey { fence: a.fence }, 3.0);
        assert!(ask(&mut key, 3.0).is_some());
    }

    #[test]
    fn a_place_that_was_written_by_a_clock_that_was_ahead_is_over() {
        let mut key = Key::default();
        let a = key.claim("a", 1, 0.0, 0.0).unwrap();
        let extend = Action::Extend { fence: a.fence, duration: 2_000 * LEASE };
        key.apply(extend, 0.0);
        assert_eq!(key.claim("b", 1, 1.0, 9_000.0), None);
        assert_eq!(key.apply(Action::ReleaseKey { fence: a.fence }, 10.0), Reply::Accepted);
        assert!(key.claim("c", 1, 2.0, 10.0).is_some());
    }

    /// A holder whose lease was written by a clock that was an hour ahead delays the others by the
    /// length of the lease, and keeps the key if it lives.
    #[test]
    fn a_lease_of_a_clock_that_was_ahead_lasts_for_its_length_once_the_clock_is_right() {
        for is_alive in [false, true] {
            let mut key = Key::default();
            let claim = ClaimKey::new(1, 1, "a", at(0.0), LEASE).extended_by(6 * LEASE);
            let fence = key.apply(Action::ClaimKey(claim), 0.0).claimed().unwrap().fence;
            let extend = || Action::Extend { fence, duration: 6 * LEASE };
            assert_eq!(key.apply(extend(), 3_600.0), Reply::Extended(at(3_630.0)));
            assert_eq!(key.claim("b", 1, 1.0, 10.0), None);
            if is_alive {
                assert_eq!(key.apply(extend(), 20.0), Reply::Extended(at(50.0)));
            }
            assert_eq!(key.claim("b", 1, 1.0, 39.0), None);
            assert_eq!(key.claim("b", 1, 1.0, 42.0).is_some(), !is_alive);
            assert_eq!(matches!(key.apply(extend(), 43.0), Reply::Extended(_)), is_alive);
        }
    }

    #[test]
    fn of_too_many_waiters_the_last_ones_have_no_place() {
        let mut key = Key::default();
        key.claim("holder", 1, 0.0, 0.0).unwrap();
        for i in (0..300).rev() {
            key.claim(&format!("{i:03}"), 1, 1.0, 1.0);
        }
        assert_eq!(key.queue().len(), MAX_WAITERS);
        assert_eq!((key.queue()[0], key.queue()[255]), ("000", "255"));
    }

    /// Random claims, extensions and releases at random times, with nodes that die: never more than
    /// the limit of the last grant, and every job that keeps asking has its turn.
    #[test]
    fn a_random_walk_keeps_the_limit_and_serves_the_queue_in_order() {
        for seed in 0..200_u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut below = |n: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % n
            };
            let limit = 1 + below(3) as u32;
            let (mut key, mut now) = (Key::default(), 0.0);
            let mut held: Vec<(i64, f64)> = Vec::new();
            let mut due: Vec<f64> = vec![0.0; 8];
            for _ in 0..600 {
                now += below(1_500) as f64 / 1_000.0;
                let job = below(8) as usize;
                match below(6) {
                    0 if !held.is_empty() => {
                        let (fence, _) = held.remove(below(held.len() as u64) as usize);
                        key.apply(Action::ReleaseKey { fence }, now);
                    }
                    1 if !held.is_empty() => {
                        let i = below(held.len() as u64) as usize;
                        let extend = Action::Extend { fence: held[i].0, duration: LEASE };
                        match key.apply(extend, now) {
                            Reply::Extended(_) => held[i].1 = now + 5.0,
                            _ => drop(held.remove(i)),
                        }
                    }
                    // The node died with it.
                    2 if !held.is_empty() && below(4) == 0 => {
                        held.remove(below(held.len() as u64) as usize);
                    }
                    _ => {
                        let earlier = key.0.as_ref().map_or(0, |record| {
                            let mine = (at(due[job]), format!("j{job}"));
                            let waits =
                                |w: &&Waiter| w.until > at(now) && (w.due_at, w.job.clone()) < mine;
                            record.waiters.iter().filter(waits).count()
                        });
                        if let Some(claimed) = key.claim(&format!("j{job}"), limit, due[job], now) {
                            assert!(earlier < limit as usize, "seed {seed}: overtakes {earlier}");
                            held.push((claimed.fence, now + 5.0));
                            due[job] = now + 0.001;
                        }
                    }
                }
                let live = held.iter().filter(|(_, until)| *until > now + 0.001).count();
                assert!(live <= limit as usize, "seed {seed}: {live} hold it");
                let record = key.0.as_ref();
                let sorted = |record: &Record| {
                    record.waiters.is_sorted_by(|one, other| one.place() < other.place())
                };
                assert!(record.is_none_or(sorted), "seed {seed}");
            }
        }
    }
}
