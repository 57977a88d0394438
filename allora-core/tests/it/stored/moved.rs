//! Occurrences that a named calendar moves to another day, while the calendar changes.

use super::{add, schedules};
use crate::support::{Lab, at, ms, secs};
use allora_core::{
    StoredSchedule,
    backend::{Action, Edit, NotRunReason, Replan},
    schedule::Calendar,
};

const DAY: f64 = 86_400.0;

/// A laboratory, which begins on Thursday, 2026-01-01, with two nodes and a calendar of these dates.
fn lab(dates: &str) -> Lab {
    let lab = Lab::new(7);
    put(&lab, dates);
    for _ in 0..2 {
        lab.start(|seat, b| {
            let b = b.poll_interval(secs(3_600)).heartbeat(secs(300));
            b.kind("t", seat.handler(ms(10), |_| Ok(())))
        });
    }
    lab
}

/// Puts the calendar into the store. Returns the schedules that are planned anew.
fn put(lab: &Lab, dates: &str) -> Vec<String> {
    let calendar = Calendar::parse(dates).unwrap();
    lab.sim.block_on(schedules(lab).upsert_calendar("days", &calendar)).unwrap()
}

fn text(schedule: &str) -> StoredSchedule {
    StoredSchedule::new("a", "t", schedule)
}

/// The runs: the day of January of each scheduled time, and the day on which it began. Those that began at one
/// moment have no order.
fn runs(lab: &Lab) -> Vec<String> {
    let runs = lab.log.of("a").into_iter();
    let day = |at: allora_core::time::Time| at.format("%-d").to_string();
    let mut runs: Vec<String> =
        runs.map(|run| format!("{} on {}", day(run.at), day(run.began))).collect();
    runs.sort();
    runs
}

#[test]
fn of_occurrences_that_move_to_one_instant_one_runs_or_each() {
    for (each, ran) in [
        ("", ["2 on 2", "5 on 5", "6 on 6"].as_slice()),
        (" each", &["2 on 2", "3 on 5", "4 on 5", "5 on 5", "6 on 6"]),
    ] {
        for at_most_once in [false, true] {
            let lab = lab("except SAT SUN");
            let daily = text(&format!("0 9 * * *; except calendar:days; move next{each}"));
            let daily = daily.starting(at(DAY));
            add(&lab, if at_most_once { daily.at_most_once() } else { daily });
            lab.until(5.5 * DAY);
            assert_eq!(runs(&lab), ran);
            let past = lab.past("a").into_iter();
            let skipped = past.filter(|entry| entry.reason == Some(NotRunReason::Calendar));
            let skipped: u64 = skipped.filter_map(|entry| entry.count).sum();
            assert_eq!(skipped, if each.is_empty() { 2 } else { 0 }, "none is lost silently");
        }
    }
}

#[test]
fn a_calendar_that_changes_moves_what_waits_and_never_repeats_what_ran() {
    let lab = lab("2026-01-02");
    add(&lab, text("0 9 2 * *; except calendar:days; move next"));
    assert_eq!(lab.state("a").next.unwrap().due_at, at(2.375 * DAY));
    lab.until(2.0 * DAY);
    // The 3rd is excluded, and on the 3rd the 4th.
    assert_eq!(put(&lab, "2026-01-02 2026-01-03"), ["a"]);
    lab.until(2.5 * DAY);
    assert_eq!(put(&lab, "2026-01-02 2026-01-03 2026-01-04"), ["a"]);
    lab.until(4.5 * DAY);
    assert_eq!(runs(&lab), ["2 on 5"]);
    // The day on which it ran is excluded, and then no day.
    assert_eq!(put(&lab, "2026-01-02 2026-01-03 2026-01-04 2026-01-05"), [""; 0]);
    assert_eq!(put(&lab, "2026-02-02"), ["a"]);
    assert_eq!(lab.state("a").next.unwrap().due_at, at(33.375 * DAY));
    lab.until(8.0 * DAY);
    assert_eq!(runs(&lab), ["2 on 5"]);
}

#[test]
fn an_occurrence_may_run_before_its_scheduled_time() {
    for at_most_once in [false, true] {
        let lab = lab("except SAT SUN\n2026-01-01");
        let last = text("0 9 4 * *; except calendar:days; move previous");
        add(&lab, if at_most_once { last.at_most_once() } else { last });
        lab.until(1.5 * DAY);
        assert_eq!(runs(&lab), ["4 on 2"]);
        lab.until(6.0 * DAY);
        assert_eq!(runs(&lab), ["4 on 2"], "only once");
        let next = lab.state("a").next.unwrap();
        assert_eq!(next.scheduled_at, at(34.375 * DAY));
    }
}

#[test]
fn an_occurrence_whose_earlier_day_has_passed_runs_at_once() {
    let lab = lab("2026-02-01");
    add(&lab, text("0 9 4 * *; except calendar:days; move previous"));
    lab.until(2.5 * DAY);
    assert_eq!(put(&lab, "2026-01-04 2026-01-03"), ["a"]);
    lab.until(2.6 * DAY);
    assert_eq!(runs(&lab), ["4 on 3"]);
}

#[test]
fn a_schedule_that_is_added_between_the_two_times_runs_at_the_later_one() {
    let lab = lab("2026-01-02 2026-01-03");
    lab.until(2.0 * DAY);
    add(&lab, text("0 9 2 * *; except calendar:days; move next"));
    lab.until(4.0 * DAY);
    assert_eq!(runs(&lab), ["2 on 4"]);
}

/// As if the client had died between its two writes.
#[test]
fn a_calendar_decides_although_the_plan_is_the_former_one() {
    let lab = lab("2026-01-02");
    add(&lab, text("0 9 2 * *; except calendar:days; move next"));
    lab.until(1.5 * DAY);
    let record = "allora:calendar:days";
    let definition = Some(("2026-01-02\n2026-01-03", Replan::default()));
    let mut edit = Edit::of(lab.state(record).generation);
    edit.definition = definition;
    lab.operate(record, Action::Modify(edit)).unwrap();
    lab.until(2.4 * DAY);
    assert_eq!(runs(&lab), [""; 0]);
    // The client repeats its call.
    put(&lab, "2026-01-02\n2026-01-03");
    lab.until(3.5 * DAY);
    assert_eq!(runs(&lab), ["2 on 4"]);
}
