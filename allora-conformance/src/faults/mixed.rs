//! Jobs of every kind for the workload of faults: stored schedules, one that is edited, a shared key, a
//! calendar, a chain, and triggers; and their books.

use crate::history::{Claims, Event, Outcome, Violation, What, booked, trigger_of};
use allora_core::{
    CatchUp, On, Result, Run, Schedule, SchedulerBuilder, Schedules, StoredSchedule, Time,
    backend::{HistoryEntry, NotRunReason, followed},
    every, job,
    schedule::{Calendar, Every, never},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The number of occurrences of these jobs that come due each second, rounded up.
pub const MIXED_RATE: usize = 5;

/// The kind of the stored schedules.
const KIND: &str = "faults";

/// The job that is triggered.
pub const TRIGGERED: &str = "at-least-once-triggered";

/// The job of remote workers.
pub const REMOTE: &str = "at-least-once-remote";
/// The kind for which remote workers ask.
pub const REMOTE_KIND: &str = "faults-remote";

/// The job that is edited.
pub const EDITED: &str = "at-least-once-edited";

/// Two jobs that are due at the same instants, of which one runs at a time.
const KEYED: [&str; 2] = ["at-least-once-keyed-stored", "at-least-once-keyed-code"];

/// The periods between two occurrences of a job with the key. A key that another node has is asked for each 2 s, which
/// leaves both jobs time for their runs.
const KEYED_PERIODS: u32 = 4;

/// The job with a calendar, which leaves out each fifth second.
const CALENDAR: &str = "at-least-once-calendar";
const LEFT_OUT: i64 = 5;

/// The job before another one.
const BEFORE: &str = "at-least-once-before";
/// The job after it.
pub const FOLLOWER: &str = "at-least-once-after";

/// The name of the calendar, and of the key.
const SHARED: &str = "faults";

/// A trigger that the store has acknowledged.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    /// Its id.
    pub id: String,
    /// Its time, in milliseconds since 1970.
    pub at: i64,
}

/// Stores the schedules of these jobs, and those of plain jobs, each with whether it runs at most once.
pub(super) async fn store(
    schedules: &Schedules,
    period: Duration,
    lease: Duration,
    plain: impl Iterator<Item = (String, Every, bool)>,
) -> Result {
    let calendar = Calendar::parse(&format!("except */{LEFT_OUT} * * * * *"))?;
    schedules.upsert_calendar(SHARED, &calendar).await?;
    let (often, rarely) = (every(period).to_string(), every(period * 2).to_string());
    let of_kind = |kind: &str, name: &str, schedule: String| {
        let stored = StoredSchedule::new(name, kind, schedule);
        stored.catch_up(CatchUp::All { limit: 1_000 }).at_least_once(lease)
    };
    let stored = |name: &str, schedule: String| of_kind(KIND, name, schedule);
    let others = [
        stored(EDITED, often),
        of_kind(REMOTE_KIND, REMOTE, rarely.clone()),
        stored(BEFORE, rarely),
        stored(KEYED[0], keyed(period).to_string()).concurrency_key(SHARED, 1),
        stored(CALENDAR, format!("* * * * * *; except calendar:{SHARED}")),
        stored(TRIGGERED, never().definition().unwrap_or_default()),
    ];
    let plain = plain.map(|(name, spread, is_once)| {
        let stored = stored(&name, spread.to_string());
        if is_once { stored.at_most_once() } else { stored }
    });
    for schedule in plain.chain(others) {
        schedules.upsert(&schedule).await?;
    }
    Ok(())
}

/// Adds the code of the stored schedules, and the jobs of a chain and a key that are code.
pub(super) fn add<Fut>(
    builder: SchedulerBuilder,
    period: Duration,
    lease: Duration,
    work: impl FnOnce(Run) -> Fut + Clone + Send + Sync + 'static,
) -> SchedulerBuilder
where
    Fut: Future<Output = ()> + Send + 'static,
{
    let keyed = job(keyed(period), work.clone()).catch_up(CatchUp::All { limit: 1_000 });
    builder
        .add(KEYED[1], keyed.at_least_once(lease).concurrency_key(SHARED, 1))
        .add(FOLLOWER, job(never(), work.clone()).at_least_once(lease).after(BEFORE, On::Success))
        .kind(KIND, work)
}

/// The schedule of the jobs with the key: at the same instants, so that they always ask for it together.
fn keyed(period: Duration) -> Every {
    every(period * KEYED_PERIODS).phase(Duration::ZERO)
}

/// The occurrence after this one.
pub(super) fn following(job: &str, at: i64, period: i64) -> Option<i64> {
    match job {
        _ if trigger_of(job).is_some() => None,
        CALENDAR => Some((1..).map(|i| at + i * 1_000).find(|at| at % (LEFT_OUT * 1_000) != 0)?),
        BEFORE | REMOTE => Some(at + 2 * period),
        _ if KEYED.contains(&job) => Some(at + i64::from(KEYED_PERIODS) * period),
        _ => Some(at + period),
    }
}

/// The entry is about what a calendar leaves out, which is no occurrence.
pub fn is_left_out(entry: &HistoryEntry) -> bool {
    entry.reason == Some(NotRunReason::Calendar)
}

/// The promises of these jobs alone, by the whole log of each: an acknowledged trigger is run; a job after another one
/// runs once for each success of the other, up to its last occurrence here; of the jobs with the key one runs at a time.
pub(super) fn check(
    log: &BTreeMap<String, Vec<Event>>,
    acknowledged: &[Acknowledged],
    until: &BTreeMap<String, i64>,
) -> Vec<Violation> {
    let until = until.get(BEFORE).copied().unwrap_or(i64::MIN);
    let mut found = Vec::new();
    for trigger in acknowledged {
        let job = booked(TRIGGERED, Some(&trigger.id));
        if !log.contains_key(&job) {
            found.push(Violation::Gap { job, occurrence: trigger.at });
        }
    }
    // The occurrences that were followed, each with its follow-ups.
    let mut followers: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for job in log.keys() {
        if let Some((FOLLOWER, id)) = trigger_of(job)
            && let Some((_, at)) = followed(id).and_then(|key| key.rsplit_once('/'))
        {
            followers.entry(at.to_owned()).or_default().insert(job);
        }
    }
    // The job has noted itself with the other one by the first.
    let first = followers.keys().next().cloned().unwrap_or_default();
    for occurrence in successes(log.get(BEFORE).map_or(&[], Vec::as_slice)) {
        let at = Time::from_timestamp_millis(occurrence).unwrap_or_default();
        let at = at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        match followers.get(&at).map_or(0, BTreeSet::len) {
            0 if occurrence <= until && at > first => {
                found.push(Violation::Gap { job: FOLLOWER.to_owned(), occurrence });
            }
            0 | 1 => {}
            _ => {
                let (job, fence) = (FOLLOWER.to_owned(), 0);
                found.push(Violation::Duplicate { job, occurrence, fence });
            }
        }
    }
    found.extend(together(&KEYED.map(|job| log.get(job).map_or(&[][..], Vec::as_slice))));
    found
}

/// The occurrences that succeeded.
fn successes(log: &[Event]) -> BTreeSet<i64> {
    let succeeded = |event: &Event| match event.what {
        What::End { occurrence, outcome: Outcome::Succeeded, .. } => Some(occurrence),
        _ => None,
    };
    log.iter().filter_map(succeeded).collect()
}

/// A run: its fence, its start, and the end of the time for which it kept others away.
#[derive(Clone, Copy)]
struct Place {
    fence: i64,
    from: i64,
    to: i64,
}

/// The runs of these jobs that were under way at the same time.
fn together(jobs: &[&[Event]]) -> Vec<Violation> {
    let mut places: Vec<Place> = jobs.iter().flat_map(|log| places(log)).collect();
    places.sort_by_key(|place| place.from);
    let overlap = |pair: &[Place]| (pair[1].from < pair[0].to).then_some((pair[0], pair[1]));
    let violation = |(held, given): (Place, Place)| Violation::LeasesOverlap {
        job: format!("the jobs of the key {SHARED}"),
        held: held.fence,
        given: given.fence,
    };
    places.windows(2).filter_map(overlap).map(violation).collect()
}

/// The runs of a job. Each lasts until its end was sent, or as long as its lease. A claim whose answer came after
/// its lease for the key was over is given back without a start, and keeps nobody away.
fn places(log: &[Event]) -> Vec<Place> {
    let mut places: BTreeMap<i64, Place> = BTreeMap::new();
    for event in log {
        if let What::Start { fence, .. } = event.what {
            // One whose lease only the store's history has lasts until its end there.
            places.entry(fence).or_insert(Place { fence, from: event.at, to: i64::MAX });
        }
    }
    let mut leases: BTreeMap<i64, i64> = BTreeMap::new();
    for event in log {
        let (fence, until) = match event.what {
            What::Claim(Claims { fence, until: Some(until), .. }) => (fence, until),
            What::Extend { fence, until } => (fence, until),
            _ => continue,
        };
        let last = leases.entry(fence).or_insert(until);
        *last = until.max(*last);
    }
    for (fence, until) in leases {
        places.entry(fence).and_modify(|place| place.to = until);
    }
    for event in log {
        if let What::End { fence, .. } | What::Lost { fence, .. } = event.what {
            places.entry(fence).and_modify(|place| place.to = place.to.min(event.at));
        }
    }
    // The end of one that was never written down is unknown.
    places.into_values().filter(|place| place.to < i64::MAX).collect()
}

/// Groups events by the names that they have in the log.
pub(super) fn by_job(log: &[Event]) -> BTreeMap<String, Vec<Event>> {
    let mut jobs: BTreeMap<String, Vec<Event>> = BTreeMap::new();
    for event in log {
        jobs.entry(event.job.clone()).or_default().push(event.clone());
    }
    jobs
}

/// Groups entries by the names that their occurrences have in the log.
pub(super) fn entries_by_job(past: &[HistoryEntry]) -> BTreeMap<String, Vec<HistoryEntry>> {
    let mut jobs: BTreeMap<String, Vec<HistoryEntry>> = BTreeMap::new();
    for entry in past.iter().filter(|entry| !is_left_out(entry)) {
        let job = booked(&entry.name, entry.occurrence.trigger.as_deref());
        jobs.entry(job).or_default().push(entry.clone());
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(job: &str, at: i64, what: What) -> Event {
        Event { job: job.into(), node: "a".into(), at, what }
    }

    fn claim(occurrence: i64, fence: i64) -> What {
        What::Claim(Claims { occurrence, fence, attempt: 1, until: Some(occurrence + 5_000) })
    }

    fn start(occurrence: i64, fence: i64) -> What {
        What::Start { occurrence, fence }
    }

    fn end(occurrence: i64, fence: i64) -> What {
        What::End { occurrence, fence, outcome: Outcome::Succeeded }
    }

    fn checked(log: &[Event]) -> Vec<Violation> {
        let acknowledged = [Acknowledged { id: "7".into(), at: 3 }];
        check(&by_job(log), &acknowledged, &BTreeMap::from([(BEFORE.to_owned(), 9_000)]))
    }

    /// All promises of these jobs are kept.
    fn sound() -> Vec<Event> {
        let after =
            booked(FOLLOWER, Some(&format!("allora:after:1:{BEFORE}/1/1970-01-01T00:00:02.000Z")));
        vec![
            event(&booked(TRIGGERED, Some("7")), 3, claim(3, 1)),
            event(BEFORE, 2_000, claim(2_000, 1)),
            event(BEFORE, 2_300, end(2_000, 1)),
            event(&after, 2_400, claim(2_400, 1)),
            event(BEFORE, 4_000, claim(4_000, 2)),
            event(KEYED[0], 2_000, claim(2_000, 1)),
            event(KEYED[0], 2_000, start(2_000, 1)),
            event(KEYED[0], 2_300, end(2_000, 1)),
            // Given back without a start: the lease for the key was over when the answer came.
            event(KEYED[1], 2_100, claim(2_000, 2)),
            event(KEYED[1], 2_300, claim(2_000, 3)),
            event(KEYED[1], 2_300, start(2_000, 3)),
        ]
    }

    #[test]
    fn what_these_jobs_promise_is_judged() {
        assert_eq!(checked(&sound()), []);
        let id = booked(TRIGGERED, Some("7"));
        let broken = |change: &dyn Fn(&mut Vec<Event>)| {
            let mut log = sound();
            change(&mut log);
            checked(&log)
        };
        let lost = broken(&|log| drop(log.remove(0)));
        assert_eq!(lost, [Violation::Gap { job: id, occurrence: 3 }]);
        let job = FOLLOWER.to_owned();
        let unfollowed = broken(&|log| log.push(event(BEFORE, 4_300, end(4_000, 2))));
        assert_eq!(unfollowed, [Violation::Gap { job: job.clone(), occurrence: 4_000 }]);
        let twice = broken(&|log| {
            let again = booked(FOLLOWER, Some("allora:after:2:x/1/1970-01-01T00:00:02.000Z"));
            log.push(event(&again, 2_500, claim(2_500, 2)));
        });
        assert_eq!(twice, [Violation::Duplicate { job, occurrence: 2_000, fence: 0 }]);
        let together = broken(&|log| log[10].at = 2_299);
        assert!(matches!(together[..], [Violation::LeasesOverlap { .. }]), "{together:?}");
    }

    #[test]
    fn an_excluded_second_is_no_occurrence() {
        assert_eq!(following(CALENDAR, 4_000, 1_000), Some(6_000));
        assert_eq!(following(EDITED, 4_000, 1_000), Some(5_000));
        assert_eq!(following(&booked(TRIGGERED, Some("7")), 4_000, 1_000), None);
    }
}
