//! The promises of PerfectSched and rufus-scheduler about schedules, as an application uses them:
//! by [`Schedules`], and with nodes that run them.
//!
//! | row | promise | shown by |
//! |---|---|---|
//! | P1, P24 | durable, with data of any form | `moved_to_another_store_and_back_they_are_what_they_were` |
//! | P2, P3, P19, P20 | start, delay, zone, another time for the first run | `the_first_run_is_when_start_delay_and_zone_say` |
//! | P4, P5, P6, P33 | taken, deleted twice, unknown, listed by due time | `they_are_looked_up_and_listed_by_due_time` |
//! | P7 | modified, and refused whole | `an_edit_is_checked_and_of_two_editors_one_wins` |
//! | P8, P16, P17, P27, R12 | routed; retried; released; failures harm nobody; hooks | `workers_route_retry_and_release` |
//! | R5, R6, R7 | first, last, times; pause, resume, run now; what comes next | `bounds_pauses_and_triggers_hold` |
//! | R13 | a declared set | `sync_reconciles_the_store_with_a_declared_set` |

use crate::stores::{Place, on_every_database, pause};
use allora_core::{
    BoxError, ErrorKind, Next, Pattern, Retry, Run, Scheduler, Schedules, StoredSchedule, Time,
    backend::JobState,
    runtime::Tokio,
    stored::{DesiredState, Filter, Gap, ScheduleExport, ScheduleState},
};
use allora_memory::Memory;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::sync::mpsc;

on_every_database! {
    moved_to_another_store_and_back_they_are_what_they_were
    the_first_run_is_when_start_delay_and_zone_say
    they_are_looked_up_and_listed_by_due_time
    an_edit_is_checked_and_of_two_editors_one_wins
    workers_route_retry_and_release
    bounds_pauses_and_triggers_hold
    sync_reconciles_the_store_with_a_declared_set
}

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3_600);

async fn schedules(place: &Place) -> Schedules {
    Schedules::on(place.open().await, Tokio::current().unwrap()).unwrap()
}

fn kind_of<T>(answer: allora_core::Result<T>) -> Option<ErrorKind> {
    answer.err().map(|error| error.kind())
}

fn names(states: &[JobState]) -> Vec<&str> {
    states.iter().map(|state| state.name.as_str()).collect()
}

/// The midnight, UTC, after tomorrow.
async fn midnight(client: &Schedules) -> Time {
    let now = client.store_now().await.unwrap().timestamp_millis();
    let day = DAY.as_millis() as i64;
    allora_core::time::from_millis((now / day + 2) * day).unwrap()
}

async fn moved_to_another_store_and_back_they_are_what_they_were(place: Place) {
    let client = schedules(&place).await;
    let data = serde_json::json!({ "a": [1, "é", null], "b": { "c": 1.5 } });
    let all = [
        StoredSchedule::new("json", "t", "0 9 * * MON").in_zone("Europe/Rome").data(&data),
        StoredSchedule::new("bytes", "t", "@every 90s").at_most_once().data_bytes([0xff, 0, 1]),
        StoredSchedule::new("paused", "u", "@daily").max_runs(3).timeout(MINUTE),
    ];
    for added in client.add_all(&all).await.unwrap() {
        added.unwrap();
    }
    client.pause("paused", "until Monday").await.unwrap();
    let before = client.list(Filter::default(), None, 10).await.unwrap();
    assert_eq!(before[1].data, serde_json::to_vec(&data).unwrap());
    assert_eq!(
        StoredSchedule::of(&before[1]).unwrap().data_as::<serde_json::Value>().unwrap(),
        data
    );

    let memory = Schedules::on(Memory::new(), Tokio::current().unwrap()).unwrap();
    let back = schedules(&place.beside("back")).await;
    let exported = |states: &[JobState]| -> Vec<ScheduleExport> {
        states.iter().map(|state| ScheduleExport::of(state).unwrap()).collect()
    };
    for (from, to) in [(&client, &memory), (&memory, &back)] {
        let states = from.list(Filter::default(), None, 10).await.unwrap();
        let lines = serde_json::to_string(&exported(&states)).unwrap();
        let read: Vec<ScheduleExport> = serde_json::from_str(&lines).unwrap();
        let read: Vec<JobState> = read.into_iter().map(JobState::from).collect();
        for added in to.import(&read).await.unwrap() {
            added.unwrap();
        }
    }
    let after = back.list(Filter::default(), None, 10).await.unwrap();
    assert_eq!(exported(&after), exported(&before));
    place.beside("back").clear().await;
}

async fn the_first_run_is_when_start_delay_and_zone_say(place: Place) {
    let client = schedules(&place).await;
    let start = midnight(&client).await;
    let new = |name: &str, text: &str| StoredSchedule::new(name, "t", text).starting(start);
    let hour = Duration::from_secs(3_600);
    for (stored, at, due_after) in [
        (new("on a match", "0 0 * * *"), start, 0),
        (new("later", "0 0 * * *").starting(start + MINUTE), start + DAY, 0),
        (new("delayed", "0 0 * * *").delay(MINUTE / 2), start, 30),
        (new("Tokyo", "0 0 * * *").in_zone("Asia/Tokyo"), start + 15 * hour, 0),
        (new("moved", "0 0 * * *").delay(MINUTE).first_run(start + hour), start, 3_600),
    ] {
        let state = client.add(&stored).await.unwrap();
        let due_at = at + Duration::from_secs(due_after);
        assert_eq!(state.next.map(|next| (next.scheduled_at, next.due_at)), Some((at, due_at)));
    }
    let next = client.next("moved", 2).await.unwrap();
    assert_eq!(next[1].due_at, start + DAY + MINUTE, "the first run alone was moved");
}

async fn they_are_looked_up_and_listed_by_due_time(place: Place) {
    let client = schedules(&place).await;
    let start = midnight(&client).await;
    for (name, hour) in [("b", 3), ("c", 1), ("a", 2)] {
        let at = start + Duration::from_secs(hour * 3_600);
        let stored = StoredSchedule::new(name, "t", allora_core::at(at));
        client.add(&stored).await.unwrap();
        assert_eq!(kind_of(client.add(&stored).await), Some(ErrorKind::AlreadyExists));
    }
    assert_eq!(names(&client.list(Filter::default(), None, 9).await.unwrap()), ["a", "b", "c"]);
    let by_due = client.list_by_due(Filter::default(), 9).await.unwrap();
    assert_eq!(names(&by_due), ["c", "a", "b"]);
    assert!(client.exists("a").await.unwrap());
    client.delete("a").await.unwrap();
    assert!(!client.exists("a").await.unwrap());
    assert_eq!(kind_of(client.delete("a").await), Some(ErrorKind::NotFound));
    assert_eq!(kind_of(client.get("a").await), Some(ErrorKind::NotFound));
    client.add(&StoredSchedule::new("a", "t", "@daily")).await.unwrap();
}

async fn an_edit_is_checked_and_of_two_editors_one_wins(place: Place) {
    let client = schedules(&place).await;
    let stored = StoredSchedule::new("a", "t", "0 9 * * *").data(&1);
    let before = client.add(&stored).await.unwrap();
    let read = StoredSchedule::of(&before).unwrap();
    for bad in [
        read.clone().schedule("0 25 * * *"),
        read.clone().in_zone("Mars/X"),
        read.clone().data_bytes(vec![0; (1 << 20) + 1]),
        read.clone().with_kind(""),
    ] {
        assert_eq!(kind_of(client.modify(&bad).await), Some(ErrorKind::Invalid));
        assert_eq!(client.get("a").await.unwrap(), before, "nothing was changed");
    }
    let edit = read.clone().schedule("0 10 * * *").in_zone("Asia/Tokyo").delay(MINUTE);
    let after = client.modify(&edit.with_kind("u").data(&2)).await.unwrap();
    assert_eq!((&*after.kind, &*after.data), ("u", &b"2"[..]));
    let cursor = after.next.unwrap();
    assert_eq!(cursor.scheduled_at.format("%H:%M").to_string(), "01:00");
    assert_eq!(cursor.due_at, cursor.scheduled_at + MINUTE);
    assert_eq!(kind_of(client.modify(&read).await), Some(ErrorKind::AlreadyExists));
}

async fn workers_route_retry_and_release(place: Place) {
    let client = schedules(&place).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let gave_back = Arc::new(AtomicBool::new(false));
    let says = |by: &'static str| {
        let (tell, gave_back) = (tell.clone(), gave_back.clone());
        async move |run: Run| -> Result<(), BoxError> {
            tell.send(format!("{by} {} {}", run.kind(), run.attempt()))?;
            match (run.kind(), run.attempt()) {
                ("user_fails", 1) => Err("boom".into()),
                ("user_dies", _) => Err("never".into()),
                // Released once: the next node that reads it claims it, and this run did not count.
                ("user_back", _) if !gave_back.swap(true, Relaxed) => Ok(run.release()?),
                _ => Ok(()),
            }
        }
    };
    let around = tell.clone();
    let scheduler = Scheduler::builder(place.open().await)
        .runtime(Tokio::current().unwrap())
        .poll_interval(Duration::from_millis(200))
        .kind("user_task", says("exact"))
        .kind(Pattern::regex("^user_.*$").unwrap(), says("regex"))
        .kind(Pattern::prefix("system."), says("prefix"))
        .middleware(async move |run: Run, next: Next| {
            if run.kind() == "system.vetoed" {
                around.send("vetoed".to_owned())?;
                return Ok(());
            }
            next.run(run).await
        })
        .build()
        .unwrap();
    let handle = scheduler.handle();
    let kinds = ["user_task", "user_other", "user_fails", "user_dies", "user_back"];
    let kinds = [&kinds[..], &["system.clean", "system.vetoed", "unknown"]].concat();
    for kind in kinds {
        let retry = Retry::up_to(2, Duration::from_millis(50));
        let stored = StoredSchedule::new(kind, kind, "@every 1s").max_runs(1).retry(retry);
        client.add(&stored).await.unwrap();
    }
    let watching = async {
        let over = |state: &JobState| state.next.is_none() && state.leases.is_empty();
        let mut left = 1;
        while left > 0 {
            pause(50).await;
            let states = client.list(Filter::default(), None, 20).await.unwrap();
            left = states.iter().filter(|state| state.kind != "unknown" && !over(state)).count();
        }
        handle.stop();
    };
    futures::join!(watching, scheduler.run());
    let mut seen: Vec<String> = std::iter::from_fn(|| told.try_recv().ok()).collect();
    seen.sort();
    assert_eq!(
        seen,
        [
            "exact user_task 1",
            "prefix system.clean 1",
            "regex user_back 1",
            "regex user_back 1",
            "regex user_dies 1",
            "regex user_dies 2",
            "regex user_fails 1",
            "regex user_fails 2",
            "regex user_other 1",
            "vetoed",
        ]
    );
    let dead = client.list(Filter::default().state(ScheduleState::Dead), None, 9).await.unwrap();
    assert_eq!(names(&dead), ["user_dies"]);
    let unknown = client.get("unknown").await.unwrap();
    assert!(unknown.next.is_some() && unknown.counters.started == 0, "it waits");
}

async fn bounds_pauses_and_triggers_hold(place: Place) {
    let client = schedules(&place).await;
    let start = midnight(&client).await;
    let new = |name: &str| StoredSchedule::new(name, "t", "0 * * * *").starting(start);
    client.add(&new("times").max_runs(2)).await.unwrap();
    client.add(&new("last").ending(start + 90 * MINUTE)).await.unwrap();
    for name in ["times", "last"] {
        let next = client.next(name, 9).await.unwrap();
        let next: Vec<Time> = next.iter().map(|next| next.scheduled_at).collect();
        assert_eq!(next, [start, start + 60 * MINUTE], "{name}");
    }
    let never = new("never").schedule("@at 2020-01-01T00:00:00Z");
    assert_eq!(kind_of(client.add(&never).await), Some(ErrorKind::Invalid));

    client.pause("times", "broken").await.unwrap();
    let paused = client.trigger("times", "now").await.unwrap().state;
    assert_eq!(paused.paused.as_ref().map(|pause| &*pause.note), Some("broken"));
    assert_eq!(paused.head.and_then(|head| head.trigger).as_deref(), Some("now"));
    let cursor = paused.next;
    let again = client.trigger("times", "now").await.unwrap().state;
    assert_eq!(again.next, cursor, "a trigger does not move the schedule");
    let resumed = client.resume("times", Gap::Missed).await.unwrap();
    assert_eq!((resumed.paused, resumed.next), (None, cursor));
    let from = start - 10 * DAY;
    let filled = client.backfill("times", from, from + 120 * MINUTE).await.unwrap();
    assert_eq!(filled.len(), 2, "after the first, up to and with the last");
    let beyond = client.backfill("times", start, start + DAY).await;
    assert_eq!(kind_of(beyond), Some(ErrorKind::Invalid));
}

async fn sync_reconciles_the_store_with_a_declared_set(place: Place) {
    let client = schedules(&place).await;
    client.add(&StoredSchedule::new("elsewhere", "t", "@daily")).await.unwrap();
    let file = r#"[
        { "name": "set/a", "kind": "t", "schedule": "@daily", "delay": "30s", "data": { "x": 1 } },
        { "name": "set/b", "kind": "t", "schedule": "@hourly", "at-most-once": true }
    ]"#;
    let all: Vec<StoredSchedule> = serde_json::from_str(file).unwrap();
    let declared = DesiredState::new(&all).complete("set/");
    let told = client.sync(declared.dry_run()).await.unwrap();
    assert!(!client.exists("set/a").await.unwrap());
    assert_eq!(client.sync(declared).await.unwrap(), told);
    assert_eq!(told.len(), 2);
    assert_eq!(client.sync(declared).await.unwrap(), []);
    let fewer = DesiredState::new(&all[..1]).complete("set/");
    assert_eq!(client.sync(fewer).await.unwrap().len(), 1);
    assert!(client.get("set/b").await.unwrap().paused.is_some());
    client.sync(fewer.grace(Duration::ZERO)).await.unwrap();
    let left = client.list(Filter::default(), None, 9).await.unwrap();
    assert_eq!(names(&left), ["elsewhere", "set/a"]);
}
