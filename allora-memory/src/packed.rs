//! A record in less memory: the parts that most jobs do not have are boxed.

use allora_core::{
    Time,
    backend::{
        Chain, Counters, DeadLetter, Lease, NextRun, Occurrence, Outcome, Pause, Streak, Waiter,
    },
    record::{Accepted, OccurrenceData, PendingRetry, Record, RememberedTrigger},
};
use std::time::Duration;

/// A [`Record`] in less memory. It has the same fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct PackedRecord {
    definition: Box<str>,
    incarnation: i64,
    generation: i64,
    cursor: Option<NextRun>,
    last_started: Option<Time>,
    fence: i64,
    declared: Option<Box<Declared>>,
    runs: Option<Box<Runs>>,
    rest: Option<Box<Rest>>,
}

/// Most jobs in code have none of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Declared {
    kind: String,
    data: Vec<u8>,
    due_lease: Option<Duration>,
    version: u64,
}

/// The active runs, and what is kept of the last ones: a job has it from its first run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Runs {
    leases: Vec<Lease>,
    ended: Option<Accepted>,
    last: Option<Outcome>,
    counters: Counters,
}

/// A job has it while something is unusual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rest {
    lost: Vec<Lease>,
    retries: Vec<PendingRetry>,
    triggers: Vec<Occurrence>,
    occurrence_data: Vec<OccurrenceData>,
    remembered: Vec<RememberedTrigger>,
    waiters: Vec<Waiter>,
    dead: Vec<DeadLetter>,
    paused: Option<Pause>,
    streak: Option<Streak>,
    deleted_at: Option<Time>,
    chain: Option<Box<Chain>>,
}

impl PackedRecord {
    /// A copy of the record.
    pub(crate) fn to_record(&self) -> Record {
        self.clone().take()
    }

    /// Takes the record out, to be [set](Self::set) again after a change. Its boxes stay for that.
    pub(crate) fn take(&mut self) -> Record {
        let Declared { kind, data, due_lease, version } = take(&mut self.declared);
        let Runs { leases, ended, last, counters } = take(&mut self.runs);
        let rest = take(&mut self.rest);
        let Rest { lost, retries, triggers, occurrence_data, .. } = rest;
        let Rest { remembered, waiters, dead, paused, streak, deleted_at, chain, .. } = rest;
        Record {
            kind,
            definition: std::mem::take(&mut self.definition).into(),
            due_lease,
            version,
            incarnation: self.incarnation,
            generation: self.generation,
            data,
            cursor: self.cursor,
            last_started: self.last_started,
            fence: self.fence,
            leases,
            lost,
            retries,
            triggers,
            occurrence_data,
            remembered,
            waiters,
            dead,
            paused,
            deleted_at,
            ended,
            last,
            streak,
            counters,
            // They are kept in one place for all jobs.
            changes: Vec::new(),
            chain,
        }
    }

    pub(crate) fn set(&mut self, record: Record) {
        let Record {
            kind,
            definition,
            due_lease,
            version,
            incarnation,
            generation,
            data,
            cursor,
            last_started,
            fence,
            leases,
            lost,
            retries,
            triggers,
            occurrence_data,
            remembered,
            waiters,
            dead,
            paused,
            deleted_at,
            ended,
            last,
            streak,
            counters,
            changes: _,
            chain,
        } = record;
        // An empty list that had leases keeps room for four of them, more than the rest of the record.
        let leases = if leases.is_empty() { Vec::new() } else { leases };
        self.definition = definition.into();
        (self.incarnation, self.generation, self.fence) = (incarnation, generation, fence);
        (self.cursor, self.last_started) = (cursor, last_started);
        set(&mut self.declared, Declared { kind, data, due_lease, version });
        set(&mut self.runs, Runs { leases, ended, last, counters });
        let rest = Rest {
            lost,
            retries,
            triggers,
            occurrence_data,
            remembered,
            waiters,
            dead,
            paused,
            streak,
            deleted_at,
            chain,
        };
        set(&mut self.rest, rest);
    }

    pub(crate) fn kind(&self) -> &str {
        self.declared.as_ref().map_or("", |declared| &declared.kind)
    }

    pub(crate) fn fence(&self) -> i64 {
        self.fence
    }

    pub(crate) fn deleted_at(&self) -> Option<Time> {
        self.rest.as_ref().and_then(|rest| rest.deleted_at)
    }
}

fn take<T: Default>(part: &mut Option<Box<T>>) -> T {
    part.as_deref_mut().map(std::mem::take).unwrap_or_default()
}

fn set<T: Default + PartialEq>(part: &mut Option<Box<T>>, value: T) {
    match part {
        _ if value == T::default() => *part = None,
        Some(place) => **place = value,
        None => *part = Some(Box::new(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::{backend::OnExpiry, record::SavedValue};

    #[test]
    fn a_packed_record_has_everything_and_an_idle_one_is_small() {
        let at = Time::UNIX_EPOCH;
        let idle = Record {
            definition: "@every 1h".into(),
            incarnation: 1,
            generation: 2,
            cursor: Some(at.into()),
            last_started: Some(at),
            fence: 3,
            ..Record::default()
        };
        let mut packed = PackedRecord::default();
        packed.set(idle.clone());
        assert_eq!(packed.to_record(), idle);
        assert!(packed.declared.is_none() && packed.runs.is_none() && packed.rest.is_none());
        assert!(size_of::<PackedRecord>() <= 104, "{}", size_of::<PackedRecord>());

        let lease = Lease::new("n", 4, 5, at.into(), at, OnExpiry::Lost);
        let retry = PendingRetry { occurrence: at.into(), attempts: 7, not_before: at };
        let letter =
            DeadLetter { occurrence: at.into(), attempts: 8, died_at: at, error: "e".into() };
        let full = Record {
            kind: "kind".into(),
            due_lease: Some(Duration::from_secs(30)),
            version: 9,
            data: vec![10],
            leases: vec![lease.clone()],
            lost: vec![lease],
            retries: vec![retry],
            triggers: vec![at.into()],
            occurrence_data: vec![OccurrenceData {
                occurrence: at.into(),
                data: Some(vec![11]),
                checkpoint: Some(SavedValue { saved_at: at, value: vec![12] }),
            }],
            dead: vec![letter],
            paused: Some(Pause { since: at, until: None, note: "p".into() }),
            streak: Some(Streak::default()),
            deleted_at: Some(at),
            chain: Some(Box::default()),
            last: Some(Outcome::Lost),
            ..idle.clone()
        };
        packed.set(full.clone());
        assert_eq!(packed.to_record(), full);
        assert_eq!((packed.kind(), packed.deleted_at()), ("kind", Some(at)));
        assert_eq!(packed.take(), full);
        packed.set(idle);
        assert!(packed.declared.is_none() && packed.runs.is_none() && packed.rest.is_none());
    }

    #[test]
    fn a_record_whose_runs_are_over_keeps_no_room_for_leases() {
        let lease =
            Lease::new("n", 4, 5, Time::UNIX_EPOCH.into(), Time::UNIX_EPOCH, OnExpiry::Lost);
        let mut leases = vec![lease];
        leases.clear();
        let mut packed = PackedRecord::default();
        packed.set(Record { leases, last: Some(Outcome::Succeeded), ..Record::default() });
        assert_eq!(packed.runs.unwrap().leases.capacity(), 0);
    }
}
