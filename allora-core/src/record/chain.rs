//! Job after job: the followers of a job, the outbox of what they are to run, and its delivery.
//!
//! The write that ends an occurrence adds the follow-ups to the outbox of the same record, so nothing is
//! between the two that a crash could separate. A node or a client that finds an outbox delivers it: it
//! triggers the followers, and then confirms that to the record. Several may deliver the same follow-up, also long
//! after it was confirmed. So each has a number that grows, and the follower keeps the number of the last
//! one that it has received: follow-ups of one job are delivered in their order.

use super::{HistoryBuffer, OpContext, Record, trigger::NewTrigger};
use crate::{
    backend::{
        Chain, FOLLOW_UP, FollowUp, Follower, HistoryEntry, MAX_CHAIN, MAX_FOLLOWERS, MAX_OUTBOX,
        NotRun, NotRunReason, Occurrence, On, Outcome, Reply,
    },
    error::{Error, Result},
    job::after_in,
    name::{MAX_NAME, check_name},
    record::TRIGGER_RETENTION,
    time::{Time, whole_millis},
};
use allora_schedule::stable_hash;
use chrono::{SecondsFormat, TimeDelta};

/// The generation of a tombstone under which there never was a job.
const NO_JOB: i64 = 0;

/// Notes that a job runs after this one. A name without a job gets a tombstone, which the job that is
/// created under the name inherits: so jobs can be added in any order.
pub(super) fn follow(
    slot: &mut Option<Record>,
    name: &str,
    (job, on): (&str, On),
    context: OpContext<'_>,
) -> Result<Reply> {
    check_name(job)?;
    let record = slot.get_or_insert_with(|| {
        let mut record = Record::new(None, "", 0, None, context);
        record.bury(name, context);
        Record { generation: NO_JOB, ..record }
    });
    record.follow(name, job, on, whole_millis(context.now))?;
    Ok(record.outbox())
}

impl Record {
    /// `true` if runs of other jobs are to be triggered.
    pub fn has_outbox(&self) -> bool {
        self.chain.as_ref().is_some_and(|chain| !chain.outbox.is_empty())
    }

    fn follow(&mut self, name: &str, job: &str, on: On, now: Time) -> Result {
        let known = self.chain.as_deref().map_or(&[][..], |chain| &chain.followers);
        let place = known.iter().position(|follower| follower.job == job);
        if place.is_none() && known.len() >= MAX_FOLLOWERS {
            return Err(Error::invalid(format!(
                "{MAX_FOLLOWERS} jobs run after {name:?} already; let {job:?} run after one of them"
            )));
        }
        let chain = self.chain.get_or_insert_default();
        match place.map(|i| &mut chain.followers[i]) {
            Some(follower) => {
                // A removal that was decided with the former time does nothing.
                let later = follower.since + TimeDelta::milliseconds(1);
                (follower.on, follower.since) = (on, later.max(now));
            }
            None => chain.followers.push(Follower::new(job, on, now)),
        }
        Ok(())
    }

    /// The reply to an operation on this tombstone. One that only notes what follows a job is none of a
    /// job: if the store was emptied, the job is registered again.
    pub(super) fn gone(&self) -> Reply {
        match self.generation {
            NO_JOB => Reply::Absent,
            _ => Reply::Deleted,
        }
    }

    /// The reply that shows the outbox.
    pub(super) fn outbox(&self) -> Reply {
        Reply::Outbox(self.chain.clone().unwrap_or_default())
    }

    /// Removes the follow-ups that were delivered, and the followers that follow no more, unless they
    /// have been noted again since they were read.
    pub(super) fn confirm(&mut self, done: &[FollowUp], gone: &[Follower]) -> Reply {
        if let Some(chain) = &mut self.chain {
            let is_it =
                |up: &FollowUp, other: &FollowUp| up.number == other.number && up.job == other.job;
            chain.outbox.retain(|up| !done.iter().any(|other| is_it(up, other)));
            chain.followers.retain(|follower| !gone.contains(follower));
            if chain.is_empty(self.fence) {
                self.chain = None;
            }
        }
        self.outbox()
    }

    /// Puts what follows the end of this occurrence into the outbox. Nothing, for most jobs.
    pub(super) fn followed(
        &mut self,
        name: &str,
        occurrence: &Occurrence,
        outcome: &Outcome,
        now: Time,
        history: &mut HistoryBuffer,
    ) {
        let incarnation = self.incarnation;
        let Some(chain) = &mut self.chain else { return };
        let Chain { followers, outbox, number, .. } = &mut **chain;
        if !followers.iter().any(|follower| follower.on.is(outcome)) {
            return;
        }
        let length = length(occurrence) + 1;
        *number = number.saturating_add(1).max(self.fence);
        let id = id(name, incarnation, occurrence, length);
        let now = whole_millis(now);
        let following = followers.iter().filter(|follower| follower.on.is(outcome));
        outbox.extend(following.map(|follower| FollowUp::new(&follower.job, &id, *number, now)));
        let (excess, reason) = match length > MAX_CHAIN {
            true => (outbox.len(), NotRunReason::ChainTooLong),
            false => (outbox.len().saturating_sub(MAX_OUTBOX), NotRunReason::TooManyTriggers),
        };
        let is_dropped = |up: &FollowUp, i: usize| match reason {
            NotRunReason::ChainTooLong => up.id == id,
            _ => i < excess,
        };
        let all = std::mem::take(outbox).into_iter().enumerate();
        let (dropped, kept): (Vec<_>, Vec<_>) = all.partition(|(i, up)| is_dropped(up, *i));
        *outbox = kept.into_iter().map(|(_, up)| up).collect();
        for (_, up) in dropped.into_iter().take(excess) {
            let fence = self.draw_fence(now);
            history.push(|| HistoryEntry {
                kind: self.kind.clone(),
                ended_at: Some(now),
                attempt: 0,
                reason: Some(reason),
                ..HistoryEntry::new(name, fence, of(&up), Outcome::Missed)
            });
        }
    }

    /// Adds the run of a follow-up, unless it came before. It comes from the job that this one runs
    /// after, or the operation contradicts the record.
    pub(super) fn receive(
        &mut self,
        name: &str,
        from: &str,
        up: &FollowUp,
        context: OpContext<'_>,
        history: &mut HistoryBuffer,
    ) -> Reply {
        if after_in(&self.definition).is_none_or(|after| after.job != from) {
            return Reply::Invalid;
        }
        let last = self.chain.as_ref().and_then(|chain| chain.received.as_ref());
        if last.is_some_and(|(job, number)| job == from && *number >= up.number) {
            return Reply::Accepted;
        }
        self.chain.get_or_insert_default().received = Some((from.to_owned(), up.number));
        let occurrence = of(up);
        let new = NewTrigger {
            id: &up.id,
            scheduled_at: Some(up.ended_at),
            retention: TRIGGER_RETENTION,
            data: None,
        };
        // The end of a run that was recorded as lost is another end of the same occurrence.
        let is_known = self.knows_trigger(&up.id, context.now);
        if !is_known && self.trigger(name, &new, context.now).is_err() {
            let last = occurrence.scheduled_at;
            let reason = NotRunReason::TooManyTriggers;
            let not_run = NotRun { count: Some(1), last, reason };
            self.skip(name, occurrence, not_run, context, history);
        }
        Reply::Accepted
    }
}

impl Occurrence {
    /// `true` if it is a run after an end of another job.
    pub fn is_follow_up(&self) -> bool {
        self.trigger.as_deref().is_some_and(|id| id.starts_with(FOLLOW_UP))
    }
}

/// The occurrence of the follower.
fn of(up: &FollowUp) -> Occurrence {
    Occurrence { scheduled_at: up.ended_at, trigger: Some(up.id.clone()) }
}

/// The number of jobs in the chain that has led to this occurrence, without its own.
fn length(occurrence: &Occurrence) -> u32 {
    let id = occurrence.trigger.as_deref().and_then(|id| id.strip_prefix(FOLLOW_UP));
    let length = id.and_then(|rest| rest.split_once(':')?.0.parse().ok());
    length.unwrap_or(0)
}

/// The id of the triggers that follow an occurrence: the key of the occurrence, cut and with a hash if
/// it is too long for an id.
fn id(name: &str, incarnation: i64, occurrence: &Occurrence, length: u32) -> String {
    let at = occurrence.scheduled_at.to_rfc3339_opts(SecondsFormat::Millis, true);
    let prefix = format!("{FOLLOW_UP}{length}:");
    let key = match &occurrence.trigger {
        None => format!("{name}/{incarnation}/{at}"),
        Some(id) => format!("{name}/{incarnation}/{at}/{id}"),
    };
    if prefix.len() + key.len() <= MAX_NAME {
        return prefix + &key;
    }
    let hash = [0_u8, 1].map(|part| stable_hash(&[&[part], key.as_bytes()]));
    let hash = format!("#{:016x}{:016x}", hash[0], hash[1]);
    let mut end = MAX_NAME - prefix.len() - hash.len();
    while !key.is_char_boundary(end) {
        end -= 1;
    }
    // No id ends with a blank before the hash is checked: a hash follows.
    format!("{prefix}{}{hash}", &key[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{Action, Claim, Completion, Cursor, NextRun, Operation},
        record::apply,
        time::from_millis,
    };

    fn t(seconds: i64) -> Time {
        from_millis(1_000_000_000_000 + seconds * 1_000).unwrap()
    }

    struct World {
        slot: Option<Record>,
        history: HistoryBuffer,
    }

    impl World {
        fn job(definition: &str) -> Self {
            let mut world = Self { slot: None, history: HistoryBuffer::kept() };
            let first = Some(NextRun::from(t(1)));
            world.apply(0, Action::Register { definition, version: 0, first }).unwrap();
            world
        }

        fn apply(&mut self, at: i64, action: Action<'_>) -> Result<Reply> {
            let operation = Operation::new("a", action);
            apply(&mut self.slot, &operation, OpContext::new("n", t(at)), &mut self.history)
        }

        fn follow(&mut self, job: &str, on: On) -> Result<Reply> {
            self.apply(0, Action::Follow { job, on })
        }

        /// Runs and completes the occurrence of this second.
        fn run(&mut self, at: i64) {
            let record = self.slot.as_ref().unwrap();
            let (fence, head) = (record.fence, record.head().unwrap().occurrence.to_occurrence());
            let lease = std::time::Duration::from_secs(9);
            let claim = Claim::at_least_once(1, fence, head, lease);
            let claimed = self.apply(at, Action::Claim(claim)).unwrap().claimed().unwrap();
            let then = Cursor::To(Some(t(at + 1).into()));
            let (fence, completion) = (claimed.fence, Completion::Succeeded);
            let end = self.apply(at, Action::Complete { fence, then, completion }).unwrap();
            assert_eq!(end, Reply::Accepted);
        }

        fn outbox(&self) -> Vec<FollowUp> {
            self.slot
                .as_ref()
                .and_then(|it| it.chain.clone())
                .map(|it| it.outbox)
                .unwrap_or_default()
        }
    }

    #[test]
    fn the_end_of_an_occurrence_and_what_follows_it_are_one_write() {
        let mut world = World::job("d");
        world.run(1);
        assert_eq!(world.slot.as_ref().unwrap().chain, None, "nothing follows");
        world.follow("b", On::Success).unwrap();
        world.follow("c", On::Failure).unwrap();
        world.run(2);
        world.run(3);
        let outbox = world.outbox();
        let told = outbox.iter().map(|up| (&*up.job, up.ended_at));
        assert_eq!(told.collect::<Vec<_>>(), [("b", t(2)), ("b", t(3))]);
        assert!(outbox[0].number < outbox[1].number && outbox[0].id != outbox[1].id);
        assert!(world.apply(4, Action::Delete).unwrap_err().to_string().contains("yet"));
        world.apply(4, Action::Confirm { done: &outbox, gone: &[] }).unwrap();
        assert_eq!(world.outbox(), []);
        assert_eq!(world.apply(5, Action::Delete).unwrap(), Reply::Deleted);
    }

    #[test]
    fn a_follow_up_is_received_once_even_when_its_id_is_forgotten() {
        let mut world = World::job("@never; after z ended");
        let up = |number, id: &str| FollowUp::new("a", id, number, t(1));
        let (one, two) = (up(1, "allora:after:1:z/1"), up(2, "allora:after:1:z/2"));
        for (from, up, reply, waiting) in [
            ("y", &one, Reply::Invalid, 0),
            ("z", &one, Reply::Accepted, 1),
            ("z", &two, Reply::Accepted, 2),
            ("z", &one, Reply::Accepted, 2),
        ] {
            world.slot.as_mut().unwrap().remembered.clear();
            let received = world.apply(1, Action::FollowUp { from, follow_up: up }).unwrap();
            assert_eq!((received, world.slot.as_ref().unwrap().triggers.len()), (reply, waiting));
        }
        let id = &one.id;
        assert!(world.apply(1, Action::trigger(id)).unwrap_err().to_string().contains("reserved"));
    }

    #[test]
    fn what_does_not_fit_is_missed_and_counted() {
        let mut world = World::job("@never; after z ended");
        for number in 1..=1_002 {
            let id = format!("allora:after:1:z/{number}");
            let follow_up = &FollowUp::new("a", id, number, t(1));
            world.apply(1, Action::FollowUp { from: "z", follow_up }).unwrap();
        }
        let record = world.slot.as_ref().unwrap();
        assert_eq!((record.triggers.len(), record.counters.missed), (1_000, 2));
        let reasons = world.history.take().into_iter().filter_map(|entry| entry.reason);
        assert_eq!(reasons.collect::<Vec<_>>(), [NotRunReason::TooManyTriggers; 2]);

        let mut world = World::job("d");
        world.follow("b", On::End).unwrap();
        (1..=1_001).for_each(|at| world.run(at));
        assert_eq!((world.outbox().len(), world.outbox()[0].ended_at), (MAX_OUTBOX, t(2)));
        let missed = world.history.take().into_iter().filter(|it| it.outcome == Outcome::Missed);
        assert_eq!(missed.map(|it| it.occurrence.scheduled_at).collect::<Vec<_>>(), [t(1)]);
        let known = (2..=MAX_FOLLOWERS).map(|n| world.follow(&format!("b{n}"), On::End).is_ok());
        assert!(known.into_iter().all(|is_ok| is_ok));
        assert!(world.follow("one more", On::End).unwrap_err().to_string().contains("already"));
    }

    #[test]
    fn a_job_that_is_created_later_knows_what_follows_it() {
        let mut world = World { slot: None, history: HistoryBuffer::off() };
        world.follow("b", On::Success).unwrap();
        assert_eq!(world.apply(1, Action::Read).unwrap(), Reply::Absent, "there is no such job");
        let first = Some(NextRun::from(t(1)));
        world.apply(1, Action::Register { definition: "d", version: 0, first }).unwrap();
        world.run(1);
        assert_eq!(world.outbox().len(), 1);
    }

    #[test]
    fn a_follower_that_was_noted_again_is_not_removed() {
        let mut world = World::job("d");
        let read = |reply: Result<Reply>| match reply {
            Ok(Reply::Outbox(chain)) => chain.followers,
            other => panic!("{other:?}"),
        };
        let old = read(world.follow("b", On::Success));
        let new = read(world.follow("b", On::Success));
        assert_eq!(read(world.apply(1, Action::Confirm { done: &[], gone: &old })), new);
        assert_eq!(read(world.apply(1, Action::Confirm { done: &[], gone: &new })), []);
        assert_eq!(world.slot.unwrap().chain, None);
    }

    #[test]
    fn long_keys_are_cut_and_stay_different() {
        let ids = ["x", "y"].map(|end| {
            let trigger = Some("é".repeat(90) + end);
            id(&"ö".repeat(90), 7, &Occurrence { scheduled_at: t(0), trigger }, 1)
        });
        assert_ne!(ids[0], ids[1]);
        assert!(ids.iter().all(|id| check_name(id).is_ok() && id.len() <= MAX_NAME), "{ids:?}");
    }
}
