//! Schedules of every kind: their texts, and what explains them.

use allora_core::{
    AnySchedule, At, Error, Every, Schedule, Settings, Time, at, cron, every,
    schedule::{self, explain, spread_of},
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
        AnySchedule::Quartz(schedule::Cron::quartz("0 0 12 ? * MON").unwrap()),
    ];
    for written in schedules {
        let definition = written.definition().unwrap();
        assert_eq!(schedule::parse(&definition), Ok(written), "{definition}");
    }
}

#[test]
fn texts_that_say_the_same_have_one_definition() {
    let definition = |text: &str| schedule::parse(text).unwrap().definition().unwrap();
    assert_eq!(definition("@every 90m"), "@every 1h30m");
    assert_eq!(definition("@EVERY 1w"), "@every 7d");
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
        ("every 5m", 0),
        ("", 0),
    ] {
        let error = schedule::parse(text).expect_err(text);
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
fn explain_gives_due_times_and_their_reasons() {
    let settings = Settings {
        delay: MINUTE,
        spread: MINUTE,
        start: Some(time("2026-01-02T00:00:00Z")),
        max_runs: Some(2),
        ..Settings::default()
    };
    let explained =
        explain("job", &cron("@daily").unwrap(), &settings, time("2026-01-01T12:00:00Z"), 5);
    assert_eq!(explained.len(), 2);
    assert_eq!(explained[0].nominal, time("2026-01-02T00:00:00Z"));
    for occurrence in &explained {
        let spread = spread_of("job", occurrence.nominal, MINUTE);
        assert_eq!(occurrence.due, occurrence.nominal + MINUTE + spread);
        assert!(occurrence.reasons.iter().any(|reason| reason.contains("delayed by 60s")));
    }
    assert!(explained[0].reasons.contains(&"the first since the job's start".to_owned()));
    assert!(explained[1].reasons.contains(&"the last of 2 runs".to_owned()));
}

#[test]
fn a_period_counts_from_the_start() {
    let settings = Settings { start: Some(time("2026-01-01T03:00:30Z")), ..Settings::default() };
    let explained = explain("job", &every(MINUTE), &settings, time("2026-01-01T00:00:10Z"), 1);
    assert_eq!(explained[0].nominal, time("2026-01-01T03:01:30Z"));
    let settings = Settings { start: Some(Time::MIN_UTC), ..Settings::default() };
    assert_eq!(explain("job", &every(MINUTE), &settings, Time::UNIX_EPOCH, 1).len(), 1);
}

#[test]
fn explain_ends_with_the_job() {
    let (noon, hourly) = (time("2026-01-01T12:00:00Z"), cron("@hourly").unwrap());
    let settings = Settings { end: Some(noon), ..Settings::default() };
    let explained = explain("job", &hourly, &settings, time("2026-01-01T10:00:00Z"), 5);
    assert_eq!(explained.len(), 2);
    assert_eq!(explained[1].nominal, noon);
    assert_eq!(explained[1].reasons, ["the last before the job's or the schedule's end"]);
    assert_eq!(explain("job", &hourly, &settings, noon, 5), []);
    assert_eq!(
        explain("job", &hourly, &Settings { max_runs: Some(0), ..Settings::default() }, noon, 5),
        []
    );
}

#[test]
fn explain_names_the_change_of_the_clock() {
    let nightly = cron("30 2 * * * Europe/Rome").unwrap();
    let explained = explain("job", &nightly, &Settings::default(), time("2026-03-27T12:00:00Z"), 3);
    let with_reasons: Vec<_> = explained.iter().filter(|one| !one.reasons.is_empty()).collect();
    assert_eq!(with_reasons.len(), 1);
    assert_eq!(with_reasons[0].nominal, time("2026-03-29T01:00:00Z"));
}

#[test]
fn the_library_takes_errors_of_schedules_with_a_question_mark() -> Result<(), Error> {
    assert_eq!(Every::parse("90m")?.period(), MINUTE * 90);
    assert_eq!(At::parse("2026-01-01T00:00:00Z")?.instant(), time("2026-01-01T00:00:00Z"));
    assert!(matches!(cron("nonsense"), Err(error) if error.to_string().contains("column 1")));
    Ok(())
}
