//! The sun: known times, places where it does not rise or set, and rejected texts.

use allora_schedule::{NoteReason, Schedule, Sun, SunEvent, Time, next_n, parse};
use chrono::TimeDelta;

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

/// From the solar calculator of NOAA and the almanac of the US Naval Observatory.
#[test]
fn events_are_within_two_minutes_of_an_almanac() {
    for (text, after, expected) in [
        ("sunrise at 41.9,12.5", "2026-06-21T00:00:00Z", "2026-06-21T03:35:00Z"),
        ("sunset at 41.9,12.5", "2026-06-21T00:00:00Z", "2026-06-21T18:48:00Z"),
        ("sunrise at 51.4779,-0.0015", "2026-12-21T00:00:00Z", "2026-12-21T08:04:00Z"),
        ("sunset at 51.4779,-0.0015", "2026-12-21T00:00:00Z", "2026-12-21T15:53:00Z"),
        ("sunset at -33.8688,151.2093", "2026-12-21T00:00:00Z", "2026-12-21T09:05:00Z"),
        ("sunrise at 40.7128,-74.006", "2026-03-20T00:00:00Z", "2026-03-20T10:59:00Z"),
    ] {
        let at = parse(text).unwrap().next_at(time(after)).unwrap();
        let off = (at - time(expected)).abs();
        assert!(off <= TimeDelta::minutes(2), "{text}: {at} instead of {expected}");
    }
}

#[test]
fn each_day_has_its_event_and_every_search_agrees() {
    for text in ["sunset - 30m at 41.9,12.5", "dawn + 2h at -45,179.9", "dusk at 10,-179.9"] {
        let sun = parse(text).unwrap();
        let (from, until) = (time("2026-01-01T00:00:00Z"), time("2027-01-01T00:00:00Z"));
        let year = next_n(&sun, from, 365);
        assert!(
            year.windows(2)
                .all(|two| (two[1] - two[0] - TimeDelta::days(1)).abs() < TimeDelta::minutes(5))
        );
        assert_eq!(sun.count(from, until), Some(365), "{text}");
        assert_eq!(sun.latest_at(from, year[100]), Some(year[100]));
        assert_eq!(sun.latest_at(from, year[100] - TimeDelta::milliseconds(1)), Some(year[99]));
        assert_eq!(sun.latest_at(from, year[0] - TimeDelta::milliseconds(1)), Some(from));
        assert_eq!(parse(&sun.definition().unwrap()).unwrap(), sun);
    }
}

#[test]
fn polar_days_have_no_occurrence_and_a_note() {
    let sun = Sun::new(SunEvent::Sunset, 78.22, 15.65).unwrap();
    let before = time("2026-04-25T00:00:00Z");
    let next = sun.next_at(before).unwrap();
    assert_eq!(next.format("%Y-%m").to_string(), "2026-08");
    let notes = sun.notes(before, next);
    assert_eq!((notes.len(), notes[0].reason), (1, NoteReason::NoSun));
    let message = &notes[0].message;
    assert!(message.starts_with("no occurrence from 2026-04-25 to 2026-08-2"), "{message}");
    assert!(message.ends_with(": the sun does not set there"), "{message}");
    let winter = sun.notes(time("2026-11-15T00:00:00Z"), time("2026-12-15T00:00:00Z"));
    assert!(winter[0].message.ends_with(": the sun does not rise there"), "{winter:?}");
    assert_eq!(sun.count(before, next), Some(1));
}

#[test]
fn it_says_what_it_is() {
    for (text, canonical, words) in [
        (
            "Sunset  -  30m at 41.900,12.5",
            "sunset - 30m at 41.9,12.5",
            "30m before sunset at 41.9,12.5",
        ),
        ("dawn at -0.5,+7", "dawn at -0.5,7", "at dawn at -0.5,7"),
        (
            "dusk + 90m at 41.1234567,0",
            "dusk + 1h30m at 41.123456,0",
            "1h30m after dusk at 41.123456,0",
        ),
    ] {
        let sun = parse(text).unwrap();
        assert_eq!((&*sun.to_string(), &*sun.describe().unwrap()), (canonical, words));
    }
    let filtered = parse("sunset at 41.9,12.5; except SAT SUN Europe/Rome").unwrap();
    let friday = time("2026-01-02T20:00:00Z");
    assert_eq!(filtered.next_at(friday).unwrap().format("%d").to_string(), "05");
}

#[test]
fn what_is_no_event_of_the_sun_is_rejected() {
    for (text, says) in [
        ("sunset", "stands where `at` and a place are expected; write `sunset - 30m at 41.9,12.5`"),
        ("sunset at rome", "column 11: \"rome\" is not a latitude and a longitude"),
        ("sunset at 91,12", "column 11: \"91\" is off the globe; use a latitude of -90 to 90"),
        ("sunset at 41.9,180.000001", "column 16: \"180.000001\" is off the globe"),
        ("sunset at 41.9,", "is not a number of degrees"),
        ("sunset at NaN,1e3", "\"NaN\" is not a number of degrees"),
        ("sunset - 13h at 1,1", "column 10: \"13h\" is too far from the event; use at most 12h"),
        ("sunset - at 1,1", "column 10"),
        ("sunset at 1,1 Europe/Rome", "\"Europe/Rome\" is one word too many"),
        ("sunset at 90,0", "the sun has no sunset at this place on any day"),
    ] {
        let error = match parse(text) {
            Err(error) => error.to_string(),
            Ok(schedule) => schedule.check().unwrap_err().to_string(),
        };
        assert!(error.contains(says), "{text}: {error}");
    }
    assert!(Sun::new(SunEvent::Dawn, f64::NAN, 0.0).is_err());
    assert!(Sun::new(SunEvent::Dawn, 0.0, 0.0).unwrap().offset(TimeDelta::hours(13)).is_err());
}
