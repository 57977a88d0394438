//! Schedules of every kind: their texts, and the notes about their instants.

use allora_schedule::{
    AnySchedule, Cron, NoteReason, Schedule, Time, at, cron, every, explain, parse,
};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

#[test]
fn a_definition_is_read_back_as_the_same_schedule() {
    let schedules = [
        AnySchedule::Cron(cron("0 9 * * MON-FRI Europe/Rome").unwrap()),
        AnySchedule::Every(every(MINUTE * 90)),
        AnySchedule::Every(every(MINUTE).phase(Duration::ZERO)),
        AnySchedule::Every(every(MINUTE).phase(Duration::from_millis(1500))),
        AnySchedule::Every(every(MINUTE).starting(time("2026-01-01T00:00:00.5Z"))),
        AnySchedule::At(at(time("2026-01-01T00:00:00.123456Z"))),
        AnySchedule::Quartz(Cron::quartz("0 0 12 ? * MON").unwrap()),
    ];
    for written in schedules {
        let definition = written.definition().unwrap();
        assert_eq!(parse(&definition), Ok(written), "{definition}");
    }
}

#[test]
fn texts_that_say_the_same_have_one_definition() {
    let definition = |text: &str| parse(text).unwrap().definition().unwrap();
    assert_eq!(definition("@every 90m"), "@every 1h30m");
    assert_eq!(definition("@EVERY 1w"), "@every 7d");
    assert_eq!(definition("@every PT1H30M"), "@every 1h30m");
    assert_eq!(definition("@every P1W phase PT5M"), "@every 7d phase 5m");
    assert_eq!(definition("@noon"), "0 12 * * * UTC");
    assert_eq!(definition(" @every 5400s\n"), "@every 1h30m");
    assert_eq!(definition("@at 2026-01-01T01:00:00+01:00"), "@at 2026-01-01T00:00:00.000Z");
    assert_eq!(definition("@daily"), definition("00 0 * * *  utc"));
}

#[test]
fn texts_of_other_kinds_are_refused_where_they_stand() {
    for (text, position) in [
        ("@every", 0),
        ("@every 1h30", 9),
        ("  @every 1M", 9),
        ("@every 1h 5m", 10),
        ("@every 1h phase", 10),
        ("@every 1h phase 2h", 10),
        ("@every 1h phase 5m x", 19),
        ("@every 1h from yesterday", 15),
        ("@every 101w9999999d", 7),
        ("@at", 0),
        ("@at tomorrow", 4),
        ("@at 2026-01-01T00:00:00Z twice", 25),
        ("@reboot", 0),
        ("every 5m", 6),
        ("", 0),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.position(), position, "{text}: {error}");
    }
}

#[test]
fn boxes_and_arcs_forward_everything() {
    fn check(schedule: &dyn Schedule) {
        assert!(schedule.check().is_err());
        assert_eq!(schedule.definition().as_deref(), Some("@every 0s"));
    }
    let zero = every(Duration::ZERO);
    check(&(Box::new(zero.clone()) as Box<dyn Schedule>));
    check(&std::sync::Arc::new(zero));
    let rome: Box<dyn Schedule> = Box::new(cron("30 2 * * * Europe/Rome").unwrap());
    assert_eq!(rome.notes(time("2026-01-01T00:00:00Z"), time("2027-01-01T00:00:00Z")).len(), 2);
}

#[test]
fn explain_has_a_note_only_where_the_clock_changes() {
    let nightly = cron("30 2 * * * Europe/Rome").unwrap();
    let (from, until) = (time("2026-03-27T12:00:00Z"), time("2026-03-30T12:00:00Z"));
    let explained: Vec<_> = explain(&nightly, from, until)
        .map(|one| (one.scheduled_at, one.notes.iter().map(|note| note.reason).collect()))
        .collect();
    assert_eq!(
        explained,
        [
            (time("2026-03-28T01:30:00Z"), vec![]),
            (time("2026-03-29T01:00:00Z"), vec![NoteReason::Moved]),
            (time("2026-03-30T00:30:00Z"), vec![]),
        ]
    );
}
