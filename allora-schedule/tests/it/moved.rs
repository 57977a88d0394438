//! Occurrences that move to another day: what is due when, and what is said about it.

use allora_schedule::{
    Calendar, Dates, Move, NoteReason, Schedule, Time, Weekdays, cron, next_n, parse,
};
use std::sync::Arc;

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

/// The next scheduled times after the middle of January 2026, each with the time to which it is moved.
fn moved(text: &str, count: usize) -> String {
    let schedule = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    schedule.check().unwrap_or_else(|error| panic!("{text}: {error}"));
    let found = next_n(&schedule, time("2026-01-15T00:00:00Z"), count);
    let day = |at: Time| at.format("%m-%dT%H:%M").to_string();
    let shown = found.iter().map(|at| match schedule.moved(*at) {
        Some(to) if to != *at => format!("{}>{}", day(*at), day(to)),
        _ => day(*at),
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn an_occurrence_moves_to_a_day_that_nothing_excludes() {
    for (text, expected) in [
        // 2026-02-01 and 2026-03-01 are Sundays.
        (
            "0 9 1 * *; except SAT SUN; move next",
            "02-01T09:00>02-02T09:00 03-01T09:00>03-02T09:00 04-01T09:00",
        ),
        (
            "0 9 1 * *; except weekends; except 2026-02-02; move previous",
            "02-01T09:00>01-30T09:00 03-01T09:00>02-27T09:00 04-01T09:00",
        ),
        // The wall clock keeps its time where the clocks change.
        (
            "30 2 28 3 * Europe/Rome; except sat; move next",
            "03-28T01:30>03-29T01:00 03-28T01:00 03-28T00:30",
        ),
        // Of Saturday, Sunday and Monday, one runs on Monday.
        ("0 9 * * *; except SAT SUN; move next", "01-15T09:00 01-16T09:00 01-19T09:00"),
        ("0 9 * * *; except SAT SUN; move previous", "01-15T09:00 01-16T09:00 01-19T09:00"),
        (
            "0 9 * * FRI-MON; except SAT SUN; move next each",
            "01-16T09:00 01-17T09:00>01-19T09:00 01-18T09:00>01-19T09:00",
        ),
        (
            "first business day of every month",
            "02-01T00:00>02-02T00:00 03-01T00:00>03-02T00:00 04-01T00:00",
        ),
        (
            "third business day of every month at 9:00 UTC; except 2026-02-03",
            "02-01T09:00>02-05T09:00 03-01T09:00>03-04T09:00 04-01T09:00>04-03T09:00",
        ),
        (
            "last business day of every month at 17:00",
            "01-31T17:00>01-30T17:00 02-28T17:00>02-27T17:00 03-31T17:00",
        ),
        // February 2026 has 20 business days.
        (
            "22nd business day of every month",
            "03-01T00:00>03-31T00:00 04-01T00:00>04-30T00:00 06-01T00:00>06-30T00:00",
        ),
        ("@at 2026-02-01T09:00:00Z; except weekends; move next", "02-01T09:00>02-02T09:00"),
    ] {
        assert_eq!(moved(text, 3), expected, "{text}");
    }
}

#[test]
fn code_and_text_say_the_same() {
    let payday = cron("0 9 1 * * Europe/Rome")
        .unwrap()
        .except(Weekdays::weekend())
        .moved(Move::next().nth(2).in_month())
        .except(Dates::parse("2026-02-02").unwrap());
    let text = payday.definition().unwrap();
    assert_eq!(
        text,
        "0 9 1 * * Europe/Rome; except SAT SUN; except 2026-02-02; move next 2 in-month"
    );
    let read = parse(&text).unwrap();
    assert_eq!((read.definition(), read.to_string()), (Some(text.clone()), text));
    assert_eq!(
        read.describe().unwrap(),
        "first day of every month at 9:00 Europe/Rome, except on Saturday and Sunday, except on 2026-02-02, moved to the 2nd \
         next day of the month that is allowed"
    );
    let phrase = "second business day of every month at 9:00 Europe/Rome; except 2026-02-02";
    assert_eq!(parse(phrase).unwrap(), read);
}

#[test]
fn explanations_name_both_times_and_the_reason() {
    let text = "first business day of every month at 9:00; except calendar:italy";
    let calendar = Arc::new(Calendar::parse("2026-06-02\n2026-06-01").unwrap());
    let schedule = parse(text).unwrap().with_calendars(|_| Some(calendar.clone()));
    let (from, until) = (time("2026-05-31T12:00:00Z"), time("2026-06-01T12:00:00Z"));
    let notes = schedule.notes(from, until);
    assert_eq!(notes[0].reason, NoteReason::OtherDay);
    assert_eq!(
        notes[0].message,
        "2026-06-01T09:00:00Z is moved to 2026-06-03T09:00:00Z, the next day of the month that is \
         allowed: 2026-06-01 in UTC is an excluded date (calendar \"italy\")"
    );
    let daily = parse("0 9 * * *; except SAT SUN; move next").unwrap();
    let notes = daily.notes(time("2026-01-02T10:00:00Z"), time("2026-01-05T10:00:00Z"));
    assert_eq!(notes[0].reason, NoteReason::Excluded);
    assert_eq!(
        notes[0].message,
        "2 occurrences from 2026-01-03T09:00:00Z to 2026-01-04T09:00:00Z are left out: another \
         occurrence runs at 2026-01-05T09:00:00Z"
    );
}

#[test]
fn moves_that_mean_nothing_are_rejected() {
    for (text, says) in [
        ("0 9 1 * *; move next", "nothing excludes an occurrence that could move"),
        ("0 9 1 * *; except SAT; move", "\"move\" names no direction; write `move next`"),
        ("0 9 1 * *; except SAT; move back", "\"back\" names no direction"),
        ("0 9 1 * *; except SAT; move next 24", "\"24\" is nothing that `move` has"),
        ("0 9 1 * *; except SAT; move next 1", "\"1\" is nothing that `move` has"),
        ("0 9 1 * *; except SAT; move next each each", "\"each\" is nothing that `move` has"),
        (
            "0 9 1 * *; except SAT; move next; except SUN",
            "column 35: \"except\" stands behind `move`",
        ),
        ("0 9 1 * *; except SAT; move next; move next", "\"move\" stands behind `move`"),
        ("0 9 1 * *; except MON TUE WED THU FRI SAT SUN", "leaves no day of the week"),
        ("0 9 1 * *; except SAT funday", "\"funday\" is not an IANA time zone"),
        ("@every 1h; except SAT; move next", "without a time of day it cannot move"),
        ("*/30 * * * *; except SAT; move next", "more than 24 times on one day cannot move"),
        (
            "0 9,18 * * *; except SAT; move next each",
            "several times on one day cannot each be kept",
        ),
        ("@at 2026-02-01T09:00:00Z; except 0 9 * * *; move next", "every occurrence is excluded"),
        ("24th business day of every month", "is more than the business days of any month"),
        ("first business monday of every month", "where `business day of every month` is expected"),
    ] {
        let error = match parse(text) {
            Err(error) => error.to_string(),
            Ok(schedule) => schedule.check().unwrap_err().to_string(),
        };
        assert!(error.contains(says), "{text}: {error}");
    }
    assert!(Calendar::parse("move next").unwrap_err().to_string().contains("about one schedule"));
    assert!(Calendar::parse("except weekends\n2026-12-25").is_ok());
}
