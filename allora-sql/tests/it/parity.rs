//! The promises of PerfectSched, row by row, where no other test shows them.
//!
//! | row | promise | shown by |
//! |---|---|---|
//! | P1 | schedules are durable | here |
//! | P2, P19 | the first match at or after the start; delay | here, `claim::a_delayed_occurrence_is_claimed_when_its_delay_is_over` |
//! | P3 | another time for the first run | here |
//! | P4 | a name is taken once; other failures are themselves | here, `stored::a_name_that_is_taken_is_refused` |
//! | P5 | deleted, and deleted again | here, `trace` |
//! | P6 | looked up and listed | `stored::a_missing_schedule_is_not_found`, `names::names_are_listed_in_the_order_of_their_bytes`; by due time: `stored::due_schedules_are_found_by_kind_the_earliest_first` |
//! | P7 | modified | `trace`, `stored::an_edit_changes_only_the_generation_that_was_read` |
//! | P8 | routed by kind, as far as a store does it: exactly | `names::kinds_are_compared_as_bytes`, `stored::due_schedules_are_found_by_kind_the_earliest_first` |
//! | P9 | the oldest first, one winner | `trace`, `claim::one_of_many_claims_at_once_succeeds` |
//! | P10 | one worker, also for runs longer than the lease | here, `contention::eight_nodes_claim_each_occurrence_once` |
//! | P11, P28 | an expired run runs again | `faults::kill`, `lease::a_silent_nodes_run_expires_and_runs_again` |
//! | P12 | a heartbeat extends | `trace`, `lease::an_extended_lease_keeps_other_nodes_away` |
//! | P13 | the preempted are refused | `trace`, `lease::every_end_of_a_run_that_was_taken_over_is_refused` |
//! | P14, P15 | every missed occurrence, in order | here |
//! | P16 | tried again, up to a limit | here, `trace`, `lease::a_retry_is_the_same_occurrence_later` |
//! | P17 | released | `trace`, `lease::a_released_run_does_not_count_and_can_be_claimed_at_once` |
//! | P18 | finished twice, or after deletion | `trace`, `lease::every_repeated_end_has_the_same_reply` |
//! | P20 | a zone for each schedule | here |
//! | P24 | data comes back; unreadable data is shown | `names::data_of_any_bytes_comes_back_whole`, `rows::a_row_that_cannot_be_read_is_shown_and_does_not_stand_before_others` |
//! | P35 | batches up to their limit | here |
//! | P36 | conflicts are invisible | `contention`, `sessions` |
//! | P37 | rows without a type | here |

use crate::{
    calls::{self, delete, get},
    desk::{Desk, following, t},
    stores::{Place, on_every_database},
};
use allora_core::{
    Backend, BoxError, CatchUp, ErrorKind, JobSpec, Run, Runtime, Scheduler, Time,
    backend::{
        Action, Claim, DueQuery, NewSchedule, NextRun, Operation, Outcome, Page, Reply, TimeSource,
    },
    every, job,
    runtime::Tokio,
};
use std::time::Duration;
use tokio::sync::mpsc;

on_every_database! {
    p1_schedules_survive_a_restart_of_everything
    p2_the_first_occurrence_is_the_first_match_from_the_start_on_and_a_delay_is_added
    p3_another_time_for_the_first_run_is_for_that_run_only
    p4_a_failure_is_not_reported_as_an_existing_name
    p5_a_deleted_schedule_is_not_found_and_can_be_added_again
    p10_a_run_longer_than_its_lease_is_not_doubled
    p14_p15_every_missed_occurrence_runs_in_order_one_after_the_other
    p16_a_failed_run_is_tried_again_up_to_its_limit
    p20_each_schedule_has_its_zone
    p35_a_batch_takes_up_to_its_limit
    p37_a_job_without_a_kind_is_found_by_no_kind
}

const MINUTELY: &str = "* * * * *";

fn after(seconds: i64, delay: i64) -> NextRun {
    NextRun { scheduled_at: t(seconds), due_at: t(seconds + delay) }
}

// There, the tables had to be made by a command of its own.
async fn p1_schedules_survive_a_restart_of_everything(place: Place) {
    let first = place.open().await;
    let added = Desk::new(&first, "one").add("a", MINUTELY, t(0)).await.unwrap();
    first.close().await;
    for _ in 0..2 {
        let again = place.open().await;
        let listed = again.queries().unwrap().list(Page::first(9)).await.unwrap();
        assert_eq!(listed, std::slice::from_ref(&added));
        again.close().await;
    }
}

// There, alike.
async fn p2_the_first_occurrence_is_the_first_match_from_the_start_on_and_a_delay_is_added(
    place: Place,
) {
    let desk = Desk::new(&place.open().await, "one");
    for (start, at) in [(0, 0), (1, 60), (59, 60)] {
        let name = format!("from {start}");
        let state = desk.add(&name, MINUTELY, t(start)).await.unwrap();
        assert_eq!(state.next, Some(after(at, 0)));
    }
    let delayed = NewSchedule::new("t", MINUTELY, Some(after(60, 30)));
    let state = desk.create(t(1), "delayed", delayed).await.unwrap();
    assert_eq!((state.next, state.due_at), (Some(after(60, 30)), Some(t(90))));
    assert_eq!(desk.poll(t(89), "delayed", 60).await, None);
    let taken = desk.poll(t(90), "delayed", 60).await.unwrap();
    assert_eq!(taken.occurrence.scheduled_at, t(60), "the scheduled time is reported unchanged");
}

// There, alike; a time before the scheduled one was possible, too.
async fn p3_another_time_for_the_first_run_is_for_that_run_only(place: Place) {
    let desk = Desk::new(&place.open().await, "one");
    let new = NewSchedule::new("t", MINUTELY, Some(after(60, 1_000)));
    desk.create(t(1), "a", new).await.unwrap();
    assert_eq!(desk.poll(t(1_059), "a", 60).await, None);
    let run = desk.poll(t(1_060), "a", 60).await.unwrap();
    assert_eq!(desk.complete(t(1_061), "a", &run, MINUTELY).await, Reply::Accepted);
    assert_eq!(desk.get("a").await.next, Some(after(120, 0)));
}

// There, every failure of an add was «already exists».
async fn p4_a_failure_is_not_reported_as_an_existing_name(place: Place) {
    let desk = Desk::new(&place.open().await, "one");
    desk.add("a", MINUTELY, t(0)).await.unwrap();
    let error = desk.add("a", MINUTELY, t(0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    desk.store.close().await;
    for name in ["a", "b"] {
        let error = desk.add(name, MINUTELY, t(0)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

// There, alike.
async fn p5_a_deleted_schedule_is_not_found_and_can_be_added_again(place: Place) {
    let desk = Desk::new(&place.open().await, "one");
    desk.add("a", MINUTELY, t(0)).await.unwrap();
    delete(&desk.store, "a", TimeSource::Fixed(t(1))).await.unwrap();
    let error = delete(&desk.store, "a", TimeSource::Fixed(t(2))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let state = desk.add("a", MINUTELY, t(3)).await.unwrap();
    assert_eq!(state.next, Some(after(60, 0)));
}

/// One start or end: when, of which occurrence and attempt, and whether it is a start.
type Seen = (Time, u32, bool);

/// A job that reports when it starts and ends.
fn reporting_job(
    period: Duration,
    work: Duration,
    fails: bool,
) -> (JobSpec, mpsc::UnboundedReceiver<Seen>) {
    let (report, reports) = mpsc::unbounded_channel();
    let runtime = Tokio::current().unwrap();
    let entry = job(every(period), async move |run: Run| -> Result<(), BoxError> {
        report.send((run.scheduled_at(), run.attempt(), true))?;
        runtime.sleep_until(runtime.now() + work).await;
        report.send((run.scheduled_at(), run.attempt(), false))?;
        if fails { Err("boom".into()) } else { Ok(()) }
    });
    (entry, reports)
}

/// Registers a job whose first occurrence was so long ago, and runs it on two nodes until they have
/// reported so many runs.
async fn runs_on_two_nodes(
    place: &Place,
    entry: JobSpec,
    ago: Duration,
    mut reports: mpsc::UnboundedReceiver<Seen>,
    enough: usize,
) -> Vec<Seen> {
    let runtime = Tokio::current().unwrap();
    let store = place.open().await;
    let (definition, now) = (entry.definition(), runtime.wall());
    let first = Some(allora_core::time::from_millis((now - ago).timestamp_millis()).unwrap());
    let first = first.map(NextRun::from);
    let register = Action::Register { definition: &definition, version: 0, first };
    let time = TimeSource::Store { fallback: now };
    calls::send(&store, "before", time, Operation::new("job", register)).await.unwrap();
    let node = |store| {
        let builder = Scheduler::builder(store).runtime(runtime.clone()).add("job", entry.clone());
        builder.poll_interval(Duration::from_millis(200)).build().unwrap()
    };
    let nodes = [node(place.open().await), node(store)];
    let handles = nodes.each_ref().map(Scheduler::handle);
    let listening = async {
        let mut seen = Vec::new();
        while seen.len() < enough {
            seen.push(reports.recv().await.unwrap());
        }
        handles.iter().for_each(|handle| handle.stop());
        seen
    };
    let [one, two] = nodes;
    let (mut seen, _, _) = futures::join!(listening, one.run(), two.run());
    while let Ok(late) = reports.try_recv() {
        seen.push(late);
    }
    seen
}

// There, nothing extended the lease, and a second worker started.
async fn p10_a_run_longer_than_its_lease_is_not_doubled(place: Place) {
    let hour = Duration::from_secs(3_600);
    let (entry, reports) = reporting_job(hour, Duration::from_secs(12), false);
    let entry = entry.at_least_once(Duration::from_secs(5));
    let seen = runs_on_two_nodes(&place, entry, Duration::from_secs(60), reports, 2).await;
    let at = seen[0].0;
    assert_eq!(seen, [(at, 1, true), (at, 1, false)]);
}

// There, it was the only policy.
async fn p14_p15_every_missed_occurrence_runs_in_order_one_after_the_other(place: Place) {
    let minute = Duration::from_secs(60);
    let (entry, reports) = reporting_job(minute, Duration::from_millis(50), false);
    let all = CatchUp::All { limit: 100 };
    let entry = entry.at_least_once(Duration::from_secs(30)).catch_up(all);
    // Now, and three minutes that were missed.
    let ago = Duration::from_secs(190);
    let seen = runs_on_two_nodes(&place, entry, ago, reports, 8).await;
    let first = seen[0].0;
    let expected: Vec<Seen> =
        (0..4).map(|i| first + minute * i).flat_map(|at| [(at, 1, true), (at, 1, false)]).collect();
    assert_eq!(seen, expected);
}

// There, for ever.
async fn p16_a_failed_run_is_tried_again_up_to_its_limit(place: Place) {
    let (entry, reports) = reporting_job(Duration::from_secs(3_600), Duration::ZERO, true);
    let retry = allora_core::Retry::up_to(3, Duration::from_millis(100));
    let entry = entry.at_least_once(Duration::from_secs(30)).retry(retry);
    let seen = runs_on_two_nodes(&place, entry, Duration::from_secs(60), reports, 6).await;
    let at = seen[0].0;
    let attempts: Vec<Seen> = (1..=3).flat_map(|n| [(at, n, true), (at, n, false)]).collect();
    assert_eq!(seen, attempts);
    let state = get(&place.open().await, "job").await.unwrap();
    assert_eq!(state.last, Some(Outcome::Dead("boom".into())));
    assert!(state.next.unwrap().scheduled_at > at && state.leases.is_empty());
}

// There, alike.
async fn p20_each_schedule_has_its_zone(place: Place) {
    let desk = Desk::new(&place.open().await, "one");
    for (name, text, hour) in [
        ("utc", "0 0 * * *", 24),
        ("tokyo", "0 0 * * * Asia/Tokyo", 15),
        ("offset", "0 0 * * * +02:00", 22),
    ] {
        desk.add(name, text, t(1)).await.unwrap();
        let run = desk.poll(t(hour * 3_600), name, 60).await.unwrap();
        assert_eq!(run.occurrence.scheduled_at, t(hour * 3_600), "{name}");
        desk.complete(t(hour * 3_600), name, &run, text).await;
        let cursor = desk.get(name).await.next.unwrap();
        assert_eq!(
            (cursor.scheduled_at, cursor),
            (t((hour + 24) * 3_600), following(text, run.occurrence.scheduled_at))
        );
    }
}

// There, one was taken, whatever was asked for.
async fn p35_a_batch_takes_up_to_its_limit(place: Place) {
    let desk = Desk::new(&place.open().await, "one");
    for i in 0..10 {
        desk.add(&format!("job {i}"), MINUTELY, t(i)).await.unwrap();
    }
    let now = TimeSource::Fixed(t(100));
    let query = DueQuery::new(&["t"], t(100), 5);
    let found = desk.store.queries().unwrap().find_due(query, now).await.unwrap().found;
    let lease = Duration::from_secs(60);
    let claims: Vec<_> = (1..)
        .zip(&found)
        .map(|(id, state)| {
            let head = state.head.clone().unwrap();
            Operation::claim(&state.name, Claim::at_least_once(id, state.fence, head, lease))
        })
        .collect();
    let replies = calls::replies(&desk.store, now, &claims).await;
    let claimed = replies.iter().filter(|reply| matches!(reply, Reply::Claimed(_)));
    assert_eq!((found.len(), claimed.count()), (5, 5));
    assert_eq!(desk.due(t(100), 10).await.len(), 5, "and the others are left");
}

// There, rows of an older version had no type.
async fn p37_a_job_without_a_kind_is_found_by_no_kind(place: Place) {
    let desk = Desk::new(&place.open().await, "one");
    let first = Some(t(0).into());
    let register = Action::Register { definition: MINUTELY, version: 0, first };
    let operation = Operation::new("old", register);
    calls::send(&desk.store, "one", TimeSource::Fixed(t(0)), operation).await.unwrap();
    let state = desk.get("old").await;
    assert_eq!((state.kind.as_str(), state.next), ("", Some(after(0, 0))));
    assert!(desk.due(t(60), 9).await.is_empty());
    assert!(desk.poll(t(60), "old", 60).await.is_some());
}
