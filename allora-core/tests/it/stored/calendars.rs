//! Named calendars: in the store, on the nodes, and for clients.

use super::{add, news, schedules};
use crate::support::{Lab, Member, at, ms, secs};
use allora_core::{
    ErrorKind, Event, StoredSchedule,
    backend::{Action, NewSchedule, NotRunReason},
    job, schedule,
    schedule::Calendar,
    stored::{Filter, ScheduleState},
    time::{Time, since},
};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

/// A calendar that excludes from one second after the start until before another.
fn gap(from: f64, until: f64) -> Calendar {
    let instant = |seconds| at(seconds).to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    Calendar::parse(&format!("blackout {}/{}", instant(from), instant(until))).unwrap()
}

/// Puts a calendar into the store. Returns the schedules that run earlier.
fn put(lab: &Lab, name: &str, calendar: &Calendar) -> Vec<String> {
    lab.sim.block_on(schedules(lab).upsert_calendar(name, calendar)).unwrap()
}

/// A schedule of every ten seconds that uses a calendar.
fn every_ten(name: &str, calendar: &str) -> StoredSchedule {
    let text = format!("*/10 * * * * *; except calendar:{calendar}");
    StoredSchedule::new(name, "t", text).starting(at(10.0))
}

fn start(lab: &Lab) -> Member {
    lab.start(|seat, b| b.kind("t", seat.handler(ms(10), |_| Ok(()))))
}

/// The largest delay of a run of these jobs.
fn latest(lab: &Lab, name: &str) -> Duration {
    lab.log.of(name).into_iter().map(|run| since(run.began, run.at)).max().unwrap()
}

#[test]
fn what_a_named_calendar_excludes_is_recorded_as_skipped() {
    for at_most_once in [false, true] {
        let lab = Lab::new(1);
        put(&lab, "gap", &gap(20.0, 50.0));
        for _ in 0..3 {
            start(&lab);
        }
        let schedule = every_ten("a", "gap");
        add(&lab, if at_most_once { schedule.at_most_once() } else { schedule });
        lab.until(65.0);
        let story = ["succeeded 10", "skipped 20-40 3", "succeeded 50", "succeeded 60"];
        assert_eq!(lab.story("a"), story);
        assert_eq!(lab.past("a")[1].reason, Some(NotRunReason::Calendar));
        assert!(latest(&lab, "a") < ms(100), "the calendar is read before it is due");
    }
}

#[test]
fn a_change_takes_effect_while_nodes_run() {
    // With notifications, and without them at the next heartbeat.
    for (is_silent, heartbeat) in [(false, secs(60)), (true, secs(2))] {
        let lab = Lab::new(2);
        put(&lab, "gap", &gap(30.0, 1_000.0));
        for _ in 0..2 {
            lab.start(|seat, b| {
                seat.faults.is_silent.store(is_silent, Relaxed);
                let b = b.heartbeat(heartbeat).poll_interval(secs(1));
                b.kind("t", seat.handler(ms(10), |_| Ok(())))
            });
        }
        add(&lab, every_ten("a", "gap"));
        add(&lab, every_ten("b", "other gap").schedule("*/10 * * * * *"));
        lab.until(35.0);
        assert_eq!(lab.ran("a"), [10.0, 20.0]);
        assert_eq!(lab.state("a").next, Some(at(1_000.0).into()));
        // Not excluded any more: it runs at the next of its times.
        assert_eq!(put(&lab, "gap", &gap(30.0, 38.0)), ["a"]);
        lab.until(55.0);
        assert_eq!(lab.ran("a"), [10.0, 20.0, 40.0, 50.0]);
        // Planned, and excluded now.
        assert_eq!(put(&lab, "gap", &gap(58.0, 85.0)), [""; 0]);
        lab.until(95.0);
        assert_eq!(lab.ran("a"), [10.0, 20.0, 40.0, 50.0, 90.0]);
        let past = lab.past("a");
        let skipped: Vec<_> = past.iter().filter(|one| one.last.is_some()).collect();
        let last = skipped.last().unwrap();
        assert_eq!((last.occurrence.scheduled_at, last.last), (at(60.0), Some(at(80.0))));
        assert_eq!((last.count, last.reason), (Some(3), Some(NotRunReason::Calendar)));
        assert_eq!(lab.ran("b").len(), 9, "another schedule is not concerned");
    }
}

#[test]
fn an_interval_keeps_its_phase_when_its_calendar_changes() {
    let lab = Lab::new(3);
    put(&lab, "gap", &gap(25.0, 1_000.0));
    start(&lab);
    let every = |name: &str| StoredSchedule::new(name, "t", "@every 7s; except calendar:gap");
    add(&lab, every("a"));
    lab.until(30.0);
    add(&lab, every("new"));
    assert_eq!(lab.ran("a"), [7.0, 14.0, 21.0]);
    lab.until(40.0);
    assert_eq!(put(&lab, "gap", &gap(25.0, 41.0)), ["a", "new"]);
    lab.until(60.0);
    assert_eq!(lab.ran("a"), [7.0, 14.0, 21.0, 42.0, 49.0, 56.0]);
    assert_eq!(lab.ran("new"), [44.0, 51.0, 58.0]);
}

#[test]
fn an_unknown_calendar_is_reported_and_its_schedules_run_when_it_is_there() {
    let lab = Lab::new(4);
    let member = start(&lab);
    for name in ["a", "b"] {
        let text = "*/10 * * * * *; except calendar:late; at-least-once 30s";
        let new = NewSchedule::new("t", text, Some(at(10.0).into()));
        lab.operate(name, Action::Create(new)).unwrap();
    }
    add(&lab, StoredSchedule::new("good", "t", "*/10 * * * * *").starting(at(10.0)));
    lab.until(33.0);
    assert_eq!((lab.ran("good").len(), lab.ran("a").len()), (3, 0));
    assert!(latest(&lab, "good") < ms(100));
    assert_eq!(news(&member, "job-invalid"), 2, "each is reported once");
    let reason = member.events().into_iter().find_map(|event| match event {
        Event::Began(allora_core::Condition::JobInvalid { reason, .. }) => Some(reason),
        _ => None,
    });
    let reason = reason.unwrap();
    assert!(reason.contains("the calendar \"late\" is not in the store"), "{reason}");
    let list = |filter| lab.sim.block_on(schedules(&lab).list(filter, None, 9)).unwrap();
    assert_eq!(list(Filter::default().state(ScheduleState::Broken)).len(), 2);
    put(&lab, "late", &gap(40.0, 45.0));
    lab.until(39.0);
    assert_eq!((lab.ran("a"), lab.ran("b")), (vec![30.0], vec![30.0]), "the latest");
    assert_eq!(news(&member, "job-invalid over"), 2);
    lab.until(55.0);
    assert_eq!(lab.ran("a"), [30.0, 50.0]);
    assert!(list(Filter::default().state(ScheduleState::Broken)).is_empty());
}

#[test]
fn a_calendar_that_is_deleted_while_schedules_use_it_stops_only_these() {
    let lab = Lab::new(5);
    let member = start(&lab);
    put(&lab, "x", &gap(500.0, 600.0));
    add(&lab, every_ten("a", "x"));
    add(&lab, StoredSchedule::new("good", "t", "*/10 * * * * *").starting(at(10.0)));
    lab.until(15.0);
    let client = schedules(&lab);
    let refused = lab.sim.block_on(client.delete_calendar("x")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("is used by \"a\";"), "{refused}");
    // Another client, or an operator, does it nevertheless.
    lab.sim.block_on(client.delete("allora:calendar:x")).unwrap();
    lab.until(45.0);
    assert_eq!((lab.ran("a"), lab.ran("good").len()), (vec![10.0], 4));
    assert_eq!(news(&member, "job-invalid"), 1);
    put(&lab, "x", &gap(500.0, 600.0));
    lab.until(55.0);
    assert_eq!(lab.ran("a"), [10.0, 40.0, 50.0]);
    assert_eq!(news(&member, "job-invalid over"), 1);
}

#[test]
fn a_store_that_hangs_on_a_calendar_stops_nothing_else() {
    let lab = Lab::new(6);
    let member = start(&lab);
    for name in ["x", "y"] {
        put(&lab, name, &gap(500.0, 600.0));
        add(&lab, every_ten(&format!("job {name}"), name));
    }
    add(&lab, StoredSchedule::new("plain", "t", "*/10 * * * * *").starting(at(10.0)));
    *member.faults.deaf_to_calendars.lock().unwrap() = Some("x".into());
    lab.until(65.0);
    assert_eq!((lab.ran("plain").len(), lab.ran("job x").len()), (6, 0));
    assert!(latest(&lab, "plain") < ms(100));
    let other = lab.ran("job y");
    assert_eq!(other[other.len() - 5..], [20.0, 30.0, 40.0, 50.0, 60.0], "its first read waits");
    assert_eq!(news(&member, "job-invalid"), 1);
    *member.faults.deaf_to_calendars.lock().unwrap() = None;
    lab.until(95.0);
    assert!(lab.ran("job x").ends_with(&[80.0, 90.0]), "{:?}", lab.ran("job x"));
    // One that is known stays as it is.
    *member.faults.deaf_to_calendars.lock().unwrap() = Some("y".into());
    lab.until(155.0);
    assert!(lab.ran("job y").ends_with(&[130.0, 140.0, 150.0]), "{:?}", lab.ran("job y"));
}

#[test]
fn nodes_with_different_versions_claim_no_occurrence_twice() {
    let lab = Lab::new(7);
    for is_silent in [true, false] {
        lab.start(|seat, b| {
            seat.faults.is_silent.store(is_silent, Relaxed);
            b.poll_interval(secs(1)).kind("t", seat.handler(ms(10), |_| Ok(())))
        });
    }
    put(&lab, "x", &gap(500.0, 600.0));
    add(&lab, every_ten("a", "x"));
    for change in 1..20 {
        lab.until(f64::from(change) * 9.0);
        let from = f64::from(change * 7);
        put(&lab, "x", &gap(from, from + 12.0));
    }
    lab.until(200.0);
    let ran = lab.ran("a");
    assert!(ran.len() > 5 && ran.windows(2).all(|pair| pair[0] < pair[1]), "{ran:?}");
}

#[test]
fn an_unknown_calendar_is_an_error_for_clients() {
    let lab = Lab::new(8);
    let client = schedules(&lab);
    let refused = lab.sim.block_on(client.add(&every_ten("a", "none"))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let text = refused.to_string();
    assert!(text.contains("\"a\"") && text.contains("the calendar \"none\" is not"), "{text}");
    assert!(text.contains("allora calendar put none FILE"), "{text}");
    let declared = [StoredSchedule::new("good", "t", "@daily"), every_ten("a", "none")];
    let desired = allora_core::stored::DesiredState::new(&declared);
    assert!(lab.sim.block_on(client.sync(desired)).is_err());
    assert!(lab.state_of("good").is_none(), "nothing was changed");
    put(&lab, "none", &gap(5.0, 35.0));
    assert_eq!(lab.sim.block_on(client.sync(desired)).unwrap().len(), 2);
    assert!(lab.sim.block_on(client.sync(desired)).unwrap().is_empty());
    let next = lab.sim.block_on(client.next("a", 2)).unwrap();
    let next: Vec<Time> = next.into_iter().map(|next| next.scheduled_at).collect();
    assert_eq!(next, [at(40.0), at(50.0)]);
    // In one place of the code, the rules stand there.
    let text = schedule::parse("@daily; except calendar:none").unwrap();
    let built = lab.seat(lab.sim.node()).builder().add("code", job(text, async |_| {})).build();
    let error = built.unwrap_err().to_string();
    assert!(error.contains("only stored schedules have calendars by name"), "{error}");
    let error = every_ten("b", "none").creation(at(0.0)).unwrap_err().to_string();
    assert!(error.contains("add the schedule with `Schedules::add`"), "{error}");
}

#[test]
fn calendars_are_listed_and_removed_and_are_no_schedules() {
    let lab = Lab::new(9);
    let client = schedules(&lab);
    let names: Vec<String> = (0..40).map(|n| format!("c{n:02}")).collect();
    for name in names.iter().rev() {
        put(&lab, name, &gap(5.0, 35.0));
    }
    put(&lab, "c00", &gap(5.0, 36.0));
    let list = |after, limit| lab.sim.block_on(client.calendars(after, limit)).unwrap();
    let listed: Vec<String> = list(None, 100).into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, names);
    let page = list(Some("c09"), 2);
    assert_eq!((page[0].0.as_str(), page.len()), ("c10", 2));
    assert_eq!(*page[0].1.as_ref().unwrap(), gap(5.0, 35.0));
    assert_eq!(lab.sim.block_on(client.calendar("c00")).unwrap(), gap(5.0, 36.0));
    let all = lab.sim.block_on(client.list(Filter::default(), None, 9)).unwrap();
    assert!(all.is_empty(), "{all:?}");
    lab.sim.block_on(client.delete_calendar("c00")).unwrap();
    for error in [
        lab.sim.block_on(client.calendar("c00")).unwrap_err(),
        lab.sim.block_on(client.delete_calendar("c00")).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("\"c00\""), "{error}");
    }
    let long = "x".repeat(185);
    for bad in ["", "a b", "a;b", "a,b", &long] {
        let refused = lab.sim.block_on(client.upsert_calendar(bad, &gap(5.0, 35.0))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{bad:?}");
    }
    put(&lab, &long[..184], &gap(5.0, 35.0));
    let taken = StoredSchedule::new("allora:calendar:mine", "t", "@daily");
    let refused = lab.sim.block_on(client.add(&taken)).unwrap_err().to_string();
    assert!(refused.contains("reserved for calendars"), "{refused}");
}

#[test]
fn schedules_that_use_many_calendars_are_run() {
    let lab = Lab::new(10);
    start(&lab);
    for n in 0..40 {
        put(&lab, &format!("c{n}"), &gap(20.0, 30.0));
        add(&lab, every_ten(&format!("job {n}"), &format!("c{n}")));
    }
    lab.until(45.0);
    for n in 0..40 {
        assert_eq!(lab.ran(&format!("job {n}")), [10.0, 30.0, 40.0], "{n}");
    }
}
