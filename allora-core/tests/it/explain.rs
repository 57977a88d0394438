//! Occurrences under a job's settings, explained, and errors of schedules as those of the library.

use allora_core::{At, Error, ErrorKind, Every, Settings, Time, cron, every, schedule::jitter};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

#[test]
fn explain_gives_due_times_and_their_reasons() {
    let settings = settings(|job| {
        (job.delay, job.jitter) = (MINUTE, MINUTE);
        (job.start, job.max_runs) = (Some(time("2026-01-02T00:00:00Z")), Some(2));
    });
    let explained =
        settings.explain("job", &cron("@daily").unwrap(), time("2026-01-01T12:00:00Z"), 5);
    assert_eq!(explained.len(), 2);
    assert_eq!(explained[0].nominal, time("2026-01-02T00:00:00Z"));
    for occurrence in &explained {
        let spread = jitter("job", occurrence.nominal, MINUTE);
        assert_eq!(occurrence.due, occurrence.nominal + MINUTE + spread);
        assert!(occurrence.reasons.iter().any(|reason| reason.contains("delayed by 60s")));
    }
    assert!(explained[0].reasons.contains(&"the first since the job's start".to_owned()));
    assert!(explained[1].reasons.contains(&"the last of 2 runs".to_owned()));
}

#[test]
fn a_period_begins_at_the_start() {
    let late = settings(|job| job.start = Some(time("2026-01-01T03:00:30Z")));
    let explained = late.explain("job", &every(MINUTE), time("2026-01-01T00:00:10Z"), 1);
    assert_eq!(explained[0].nominal, time("2026-01-01T03:00:30Z"));
    let early = settings(|job| job.start = Some(Time::MIN_UTC));
    assert_eq!(early.explain("job", &every(MINUTE), Time::UNIX_EPOCH, 1).len(), 1);
}

#[test]
fn explain_ends_with_the_job() {
    let (noon, hourly) = (time("2026-01-01T12:00:00Z"), cron("@hourly").unwrap());
    let ending = settings(|job| job.end = Some(noon));
    let explained = ending.explain("job", &hourly, time("2026-01-01T10:00:00Z"), 5);
    assert_eq!(explained.len(), 2);
    assert_eq!(explained[1].nominal, noon);
    assert_eq!(explained[1].reasons, ["the last before the job's or the schedule's end"]);
    assert_eq!(ending.explain("job", &hourly, noon, 5), []);
    let never = settings(|job| job.max_runs = Some(0));
    assert_eq!(never.explain("job", &hourly, noon, 5), []);
}

#[test]
fn explain_names_the_change_of_the_clock() {
    let nightly = cron("30 2 * * * Europe/Rome").unwrap();
    let explained = Settings::default().explain("job", &nightly, time("2026-03-27T12:00:00Z"), 3);
    let with_reasons: Vec<_> = explained.iter().filter(|one| !one.reasons.is_empty()).collect();
    assert_eq!(with_reasons.len(), 1);
    assert_eq!(with_reasons[0].nominal, time("2026-03-29T01:00:00Z"));
}

#[test]
fn the_library_takes_errors_of_schedules_with_a_question_mark() -> Result<(), Error> {
    assert_eq!(Every::parse("90m")?.period(), MINUTE * 90);
    assert_eq!(At::parse("2026-01-01T00:00:00Z")?.instant(), time("2026-01-01T00:00:00Z"));
    let read = |text: &str| -> Result<_, Error> { Ok(cron(text)?) };
    let error = read("nonsense").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("column 1"), "{error}");
    Ok(())
}
