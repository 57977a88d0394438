//! Manual triggers: an id is accepted once, also after its run has ended.
//!
//! The record remembers the ids that it has accepted. The operation that adds the occurrence adds the
//! id, in one write: nothing is between the two that a crash could separate.
//!
//! So there are two cases. Before the write nothing has happened, and a repetition is the first.
//! After it, every repetition finds the id, on any node, while the run waits, is active, and has
//! ended. The ids are kept whole, not as hashes, so no other id is taken for one. They are a cold
//! part of the record, which claims, completions and due queries neither read nor write.

use super::{OccurrenceData, Record};
use crate::{
    backend::{Occurrence, TriggerStatus},
    error::{Error, ErrorKind, Result},
    name::check_name,
    time::{Time, saturating_add, whole_millis},
    trace,
};
use allora_schedule::stable_hash;
use std::time::Duration;

/// The largest number of waiting triggers of one job.
pub const MAX_TRIGGERS: usize = 1_000;

/// The largest number of triggers that the record of one job remembers. The oldest is forgotten first.
pub const MAX_REMEMBERED: usize = 1_000;

/// The time for which the id of a trigger is remembered, unless the client sets another one.
pub const TRIGGER_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest time for which the id of a trigger can be remembered.
pub const MAX_TRIGGER_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The largest data of the triggers of one job that wait, run, or are dead letters, together, in bytes.
pub const MAX_TRIGGER_DATA: usize = 256 << 10;

/// A trigger that was accepted, and is not accepted again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberedTrigger {
    /// The occurrence, which waits, runs, or has ended.
    pub occurrence: Occurrence,
    /// The time from which on the id is free again.
    pub until: Time,
    /// A hash of its data; `None` if it had none of its own.
    pub data: Option<u64>,
}

/// A trigger of a client.
pub(super) struct NewTrigger<'a> {
    pub(super) id: &'a str,
    pub(super) scheduled_at: Option<Time>,
    pub(super) retention: Duration,
    pub(super) data: Option<&'a [u8]>,
}

impl Record {
    /// Adds the occurrence and remembers its id, unless it did so before. Returns the occurrence.
    pub(super) fn trigger(
        &mut self,
        name: &str,
        new: &NewTrigger<'_>,
        now: Time,
    ) -> Result<(Occurrence, TriggerStatus)> {
        let NewTrigger { id, retention, .. } = *new;
        check_name(id)?;
        check_trigger_retention(retention)?;
        let now = whole_millis(now);
        let of = new.scheduled_at.map(whole_millis);
        let is_it = |occurrence: &Occurrence| {
            occurrence.trigger.as_deref().is_some_and(|other| trace::is_same(other, id))
                && of.is_none_or(|of| occurrence.scheduled_at == of)
        };
        // Who gives no data only asks for the trigger of before.
        let is_same = |data: Option<u64>| match new.data {
            Some(given) if data != Some(hash(given)) => Err(other_data(name, id)),
            _ => Ok(()),
        };
        if let Some(pending) = self.pending().find(|pending| is_it(pending)) {
            let kept = self.data_of(pending).and_then(|one| one.data.as_deref());
            is_same(kept.map(hash))?;
            return Ok((pending.clone(), TriggerStatus::Pending));
        }
        let mut remembered = self.remembered.iter().filter(|remembered| now < remembered.until);
        if let Some(ended) = remembered.find(|remembered| is_it(&remembered.occurrence)) {
            is_same(ended.data)?;
            return Ok((ended.occurrence.clone(), TriggerStatus::Ended));
        }
        if self.triggers.len() >= MAX_TRIGGERS {
            let full = format!(
                "{MAX_TRIGGERS} triggers of {name:?} wait already; trigger it again when they have run"
            );
            return Err(Error::invalid(full));
        }
        let scheduled_at = of.unwrap_or(now);
        let occurrence = Occurrence { scheduled_at, trigger: Some(id.to_owned()) };
        if let Some(data) = new.data {
            self.add_trigger_data(name, &occurrence, data)?;
        }
        self.triggers.push(occurrence.clone());
        self.remember(&occurrence, new, now);
        Ok((occurrence, TriggerStatus::New))
    }

    /// `true` if a trigger of this id waits, runs, or is remembered.
    pub(super) fn knows_trigger(&self, id: &str, now: Time) -> bool {
        let is_it = |occurrence: &Occurrence| occurrence.trigger.as_deref() == Some(id);
        let mut remembered = self.remembered.iter().filter(|remembered| now < remembered.until);
        self.pending().any(is_it) || remembered.any(|remembered| is_it(&remembered.occurrence))
    }

    fn add_trigger_data(&mut self, name: &str, occurrence: &Occurrence, data: &[u8]) -> Result {
        // That of a dead letter of the same time and id, which is forgotten by now.
        self.occurrence_data.retain(|one| one.occurrence != *occurrence);
        let of_others = self.occurrence_data.iter().filter_map(|one| one.data.as_ref());
        let before: usize = of_others.map(Vec::len).sum();
        if before + data.len() > MAX_TRIGGER_DATA {
            return Err(Error::invalid(format!(
                "the data of this trigger of {name:?} has {} bytes, and that of its other triggers {before}; \
                 together they have at most {MAX_TRIGGER_DATA}, so store a reference to it, or trigger it \
                 again when they have run",
                data.len()
            )));
        }
        self.occurrence_data.push(OccurrenceData {
            occurrence: occurrence.clone(),
            data: Some(data.to_vec()),
            checkpoint: None,
        });
        Ok(())
    }

    fn remember(&mut self, occurrence: &Occurrence, new: &NewTrigger<'_>, now: Time) {
        let (retention, data) = (new.retention, new.data.map(hash));
        self.remembered.retain(|remembered| now < remembered.until);
        // Those that are compared only while they wait or run, such as backfills, push out no other.
        if retention.is_zero() {
            return;
        }
        let until = whole_millis(saturating_add(now, retention));
        self.remembered.push(RememberedTrigger { occurrence: occurrence.clone(), until, data });
        let excess = self.remembered.len().saturating_sub(MAX_REMEMBERED);
        self.remembered.drain(..excess);
    }

    /// Forgets the triggers that were remembered while the store's clock was far ahead: their time
    /// would not end.
    pub(super) fn forget_triggers_ahead(&mut self, now: Time) {
        let longest = saturating_add(now, MAX_TRIGGER_RETENTION);
        self.remembered.retain(|remembered| remembered.until <= longest);
    }

    /// `true` if no id is remembered any more.
    pub(super) fn has_forgotten_triggers(&self, now: Time) -> bool {
        self.remembered.iter().all(|remembered| remembered.until <= now)
    }

    /// The occurrences that wait as a trigger, wait to be retried, run, or may still run.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Occurrence> {
        self.triggers.iter().chain(self.started())
    }

    /// The occurrences that wait to be retried, run, or may still run.
    pub(super) fn started(&self) -> impl Iterator<Item = &Occurrence> {
        let retries = self.retries.iter().map(|retry| &retry.occurrence);
        let runs = self.leases.iter().chain(&self.lost).filter(|lease| !lease.completed);
        retries.chain(runs.map(|lease| &lease.occurrence))
    }
}

fn hash(data: &[u8]) -> u64 {
    stable_hash(&[data])
}

fn other_data(name: &str, id: &str) -> Error {
    let other = format!(
        "{name:?} was triggered with the id {id:?} and other data before; use another id for another run"
    );
    Error::new(ErrorKind::AlreadyExists, other)
}

/// Checks the time for which an id is remembered.
fn check_trigger_retention(retention: Duration) -> Result {
    if retention <= MAX_TRIGGER_RETENTION {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the id of a trigger cannot be remembered for {retention:?}; use 0 to 30 days"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{Action, Claim, Completion, Cursor, NextRun, Operation, Reply, Triggered},
        record::{HistoryBuffer, OpContext, apply},
        time::from_millis,
        with_traceparent,
    };

    const HOUR: i64 = 3_600;
    const DAY: i64 = 24 * HOUR;
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// The instant so many seconds after the beginning.
    fn t(seconds: i64) -> Time {
        from_millis(1_000_000_000_000 + seconds * 1_000).unwrap()
    }

    /// A job, with the operations of these tests.
    struct Job(Option<Record>);

    impl Job {
        fn new() -> Self {
            let mut job = Self(None);
            let first = Some(NextRun::from(t(1_000_000_000)));
            job.apply(0, Action::Register { definition: "code", version: 0, first }).unwrap();
            job
        }

        fn apply(&mut self, at: i64, action: Action<'_>) -> Result<Reply> {
            let operation = Operation::new("job", action);
            let context = OpContext::new("node", t(at));
            apply(&mut self.0, &operation, context, &mut HistoryBuffer::off())
        }

        fn trigger(&mut self, at: i64, id: &str) -> Triggered {
            match self.apply(at, Action::trigger(id)).unwrap() {
                Reply::Triggered(triggered) => *triggered,
                reply => panic!("{reply:?}"),
            }
        }

        fn status(&mut self, at: i64, id: &str) -> TriggerStatus {
            self.trigger(at, id).status
        }

        /// Runs its head.
        fn run(&mut self, at: i64) {
            let head = self.record().head().unwrap().occurrence.to_occurrence();
            let claim = Claim::at_least_once(1, self.record().fence, head, Duration::from_secs(60));
            let reply = self.apply(at, Action::Claim(claim)).unwrap();
            let fence = reply.claimed().unwrap().fence;
            let (then, completion) = (Cursor::Keep, Completion::Succeeded);
            let end = self.apply(at, Action::Complete { fence, then, completion }).unwrap();
            assert_eq!(end, Reply::Accepted);
        }

        fn record(&self) -> &Record {
            self.0.as_ref().unwrap()
        }
    }

    #[test]
    fn an_id_is_accepted_once_until_its_retention_is_over() {
        let mut job = Job::new();
        assert_eq!(job.status(10, "order-7"), TriggerStatus::New);
        assert_eq!(job.status(11, "order-7"), TriggerStatus::Pending);
        job.run(20);
        let repeated = job.trigger(DAY + 9, "order-7");
        assert_eq!(repeated.status, TriggerStatus::Ended);
        assert_eq!(repeated.occurrence.scheduled_at, t(10));
        assert_eq!((job.record().triggers.len(), job.record().index_at()), (0, None));
        assert_eq!(job.status(DAY + 10, "order-7"), TriggerStatus::New);
        assert_eq!(job.record().remembered.len(), 1, "the first one is forgotten");
    }

    #[test]
    fn an_id_that_runs_for_longer_than_its_retention_is_pending() {
        let mut job = Job::new();
        job.trigger(10, "order-7");
        assert_eq!(job.status(2 * DAY, "order-7"), TriggerStatus::Pending);
        job.run(2 * DAY);
        assert_eq!(job.status(2 * DAY + 1, "order-7"), TriggerStatus::New);
    }

    #[test]
    fn an_id_with_another_trace_context_is_the_same() {
        let mut job = Job::new();
        job.trigger(10, &with_traceparent("order-7", TRACE).unwrap());
        job.run(20);
        assert_eq!(job.status(30, "order-7"), TriggerStatus::Ended);
        assert_eq!(job.status(30, "order-8"), TriggerStatus::New);
    }

    #[test]
    fn the_client_sets_the_retention() {
        let mut job = Job::new();
        let with =
            |id, retention| Action::Trigger { id, scheduled_at: None, retention, data: None };
        let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
        for (id, retention) in [("none", Duration::ZERO), ("long", days(30))] {
            job.apply(10, with(id, retention)).unwrap();
            job.run(11);
        }
        assert_eq!(job.status(12, "none"), TriggerStatus::New);
        assert_eq!(job.status(29 * DAY, "long"), TriggerStatus::Ended);
        let error = job.apply(12, with("longer", days(31))).unwrap_err();
        assert!(error.to_string().contains("use 0 to 30 days"), "{error}");
    }

    #[test]
    fn a_backfill_is_repeated_when_it_has_ended_and_forgets_no_other_trigger() {
        let mut job = Job::new();
        job.trigger(10, "order-7");
        job.run(10);
        for _ in 0..2 {
            for at in 0..10 {
                let scheduled_at = Some(t(at));
                let retention = Duration::ZERO;
                let id = "backfill";
                job.apply(20, Action::Trigger { id, scheduled_at, retention, data: None }).unwrap();
            }
            assert_eq!(job.record().triggers.len(), 10);
            (0..10).for_each(|_| job.run(20));
        }
        assert_eq!(job.record().remembered.len(), 1);
        assert_eq!(job.status(21, "order-7"), TriggerStatus::Ended);
    }

    #[test]
    fn the_oldest_ids_are_forgotten_first() {
        let mut job = Job::new();
        for i in 0..=MAX_REMEMBERED {
            job.trigger(10, &format!("order-{i}"));
            job.run(10);
        }
        assert_eq!(job.record().remembered.len(), MAX_REMEMBERED);
        assert_eq!(job.status(11, "order-1"), TriggerStatus::Ended);
        assert_eq!(job.status(11, "order-0"), TriggerStatus::New);
    }

    #[test]
    fn a_rejected_trigger_is_not_remembered() {
        let mut job = Job::new();
        for i in 0..MAX_TRIGGERS {
            job.trigger(10, &format!("order-{i}"));
        }
        job.apply(11, Action::trigger("one more")).unwrap_err();
        job.run(12);
        assert_eq!(job.status(13, "one more"), TriggerStatus::New);
    }

    #[test]
    fn a_reset_forgets_only_what_a_clock_ahead_would_keep() {
        let mut job = Job::new();
        let retention = MAX_TRIGGER_RETENTION;
        let (id, scheduled_at, data) = ("before", None, None);
        job.apply(10, Action::Trigger { id, scheduled_at, retention, data }).unwrap();
        job.run(10);
        job.trigger(29 * DAY + HOUR, "ahead");
        job.run(29 * DAY + HOUR);
        let incarnation = job.record().incarnation;
        job.apply(20, Action::Reset { incarnation, first: None }).unwrap();
        assert_eq!(job.status(21, "before"), TriggerStatus::Ended);
        assert_eq!(job.status(21, "ahead"), TriggerStatus::New);
    }

    #[test]
    fn a_deleted_job_forgets_its_triggers() {
        let mut job = Job::new();
        job.trigger(10, "order-7");
        job.run(10);
        job.apply(11, Action::Delete).unwrap();
        assert_eq!(job.record().remembered, []);
    }

    fn with<'a>(id: &'a str, data: &'a [u8]) -> Action<'a> {
        let (scheduled_at, retention) = (None, TRIGGER_RETENTION);
        Action::Trigger { id, scheduled_at, retention, data: Some(data) }
    }

    #[test]
    fn the_data_of_triggers_is_kept_until_their_runs_have_ended_and_is_bounded() {
        let mut job = Job::new();
        let half = vec![0; MAX_TRIGGER_DATA / 2];
        job.apply(10, with("a", &half)).unwrap();
        job.apply(10, with("b", &half)).unwrap();
        let error = job.apply(11, with("c", b"x")).unwrap_err();
        assert!(error.to_string().contains("at most 262144"), "{error}");
        job.run(12);
        assert_eq!(job.record().occurrence_data.len(), 1);
        job.apply(13, with("c", b"")).unwrap();
        job.apply(14, Action::Cancel(crate::backend::CancelScope::All)).unwrap();
        assert_eq!(job.record().occurrence_data, []);
    }

    #[test]
    fn a_job_without_triggers_remembers_nothing() {
        let mut job = Job::new();
        job.apply(1, Action::Pause { note: "", until: None }).unwrap();
        assert_eq!(job.record().remembered, []);
        assert!(job.record().has_forgotten_triggers(t(1)));
        job.trigger(10, "order-7");
        assert!(!job.record().has_forgotten_triggers(t(DAY + 9)));
        assert!(job.record().has_forgotten_triggers(t(DAY + 10)));
    }
}
