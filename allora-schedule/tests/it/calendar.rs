//! Calendars: what is left out, and how it is said.

use allora_schedule::{
    AnySchedule, Calendar, Dates, Field, NoteReason, Schedule, Time, at, between, cron, every,
    explain, next_n, parse,
};
use chrono::{TimeDelta, Timelike};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

/// The next occurrences after the start of 2026, without their zeros.
fn next(text: &str, count: usize) -> String {
    let schedule = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let found = next_n(&schedule, time("2026-01-01T00:00:00Z"), count);
    let shown = found.iter().map(|at| at.format("%m-%dT%H:%M").to_string());
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn dates_hours_periods_and_schedules_are_left_out() {
    for (text, expected) in [
        ("0 9 * * *; except 2026-01-01 2026-01-03", "01-02T09:00 01-04T09:00"),
        // 23:30 UTC is the next day in Rome.
        ("30 23 * * *; except 2026-01-03 Europe/Rome", "01-01T23:30 01-03T23:30"),
        ("30 0 * * * Europe/Rome; except 2026-01-03", "01-01T23:30 01-03T23:30"),
        ("0 9 * * *; except 0 9 * * FRI", "01-01T09:00 01-03T09:00"),
        ("0 9 * * *; except every friday at 9:00", "01-01T09:00 01-03T09:00"),
        ("0 */6 * * *; only-within 9:00-18:00", "01-01T12:00 01-02T12:00"),
        ("0 */6 * * *; only-within 9:00-18:01", "01-01T12:00 01-01T18:00"),
        ("0 */6 * * *; only-within 18:00-6:00", "01-01T18:00 01-02T00:00"),
        ("0 */6 * * *; only-within 7:00-24:00 +06:00", "01-01T06:00 01-01T12:00"),
        ("@every 1h; only-within 9:00-10:00 Europe/Rome", "01-01T08:00 01-02T08:00"),
        ("@daily; blackout 2026-01-02T00:00:00Z/2026-02-01T00:00:00Z", "02-01T00:00 02-02T00:00"),
        (
            "@daily; blackout 2026-01-02T00:00:00Z/2026-01-03T00:00:00Z 2026-01-04T00:00:00Z/2026-01-05T00:00:01Z",
            "01-03T00:00 01-06T00:00",
        ),
        (
            "0 9 * * *; except 2026-01-01; except 2026-01-02; only-within 8:00-10:00; except @at 2026-01-03T09:00:00Z",
            "01-04T09:00 01-05T09:00",
        ),
        ("@at 2026-01-01T09:00:00Z; except 2026-01-02", "01-01T09:00"),
        ("every monday at 9am; except 2026-01-05", "01-12T09:00 01-19T09:00"),
        ("@quartz 0 0 9 ? * MON; except 2026-01-05", "01-12T09:00 01-19T09:00"),
    ] {
        assert_eq!(next(text, 2), expected, "{text}");
    }
}

#[test]
fn combinators_in_code_say_the_same_as_texts() {
    let (from, until) = (time("2026-01-02T00:00:00Z"), time("2026-02-01T00:00:00Z"));
    let office = cron("0 9 * * * Europe/Rome")
        .unwrap()
        .except(Dates::parse("2026-02-03 2026-02-02").unwrap())
        .only_within("9:00-17:30", "Europe/Rome")
        .unwrap()
        .blackout(from, until)
        .except(cron("0 9 * * FRI Europe/Rome").unwrap());
    let text = office.definition().unwrap();
    assert_eq!(
        text,
        "0 9 * * * Europe/Rome; except 2026-02-02 2026-02-03; only-within 9:00-17:30 Europe/Rome; \
         blackout 2026-01-02T00:00:00Z/2026-02-01T00:00:00Z; except 0 9 * * 5 Europe/Rome"
    );
    let read = parse(&text).unwrap();
    assert_eq!((read.definition(), parse(&read.to_string())), (Some(text), Ok(read.clone())));
    assert_eq!(next_n(&read, from, 50), next_n(&office, from, 50));
    assert_eq!(
        read.describe().unwrap(),
        "every day at 9:00 Europe/Rome, except on 2026-02-02 and 2026-02-03, only from 9:00 until \
         17:30 in Europe/Rome, not from 2026-01-02T00:00:00Z until 2026-02-01T00:00:00Z, except \
         every Friday at 9:00 Europe/Rome"
    );
    assert!((|after: Time| Some(after)).blackout(from, until).definition().is_none());
}

#[test]
fn a_calendar_keeps_the_chain_of_a_period() {
    // The chain of 7 hours goes on through what is left out.
    let schedule = every(Duration::from_secs(7 * 3600)).only_within("0:00-6:00", "UTC").unwrap();
    let from = time("2026-01-01T01:00:00Z");
    let chain = every(Duration::from_secs(7 * 3600));
    let expected: Vec<Time> =
        next_n(&chain, from, 400).into_iter().filter(|at| at.hour() < 6).take(50).collect();
    assert_eq!(next_n(&schedule, from, 50), expected);
}

#[test]
fn the_occurrences_are_those_that_no_rule_excludes() {
    // A walk over every occurrence, beside the jumps of the library, across changes of the clock.
    let zone = jiff::tz::TimeZone::get("Europe/Rome").unwrap();
    let local = |at: Time| zone.to_datetime(jiff::Timestamp::from_second(at.timestamp()).unwrap());
    let plain = cron("*/20 * * * *").unwrap();
    let rules = "except 2026-03-29 2026-10-25 2026-03-30; only-within 1:30-3:10; \
                 except 20 2 * * * Europe/Rome; \
                 blackout 2026-03-27T02:00:00Z/2026-03-28T01:10:00Z";
    let filtered = parse(&format!("*/20 * * * * Europe/Rome; {rules}")).unwrap();
    let blackout = time("2026-03-27T02:00:00Z")..time("2026-03-28T01:10:00Z");
    let keeps = |at: &Time| {
        let wall = local(*at);
        let minutes = i64::from(wall.hour()) * 60 + i64::from(wall.minute());
        let date = wall.date().to_string();
        !["2026-03-29", "2026-10-25", "2026-03-30"].contains(&&*date)
            && (90..190).contains(&minutes)
            && minutes != 140
            && !blackout.contains(at)
    };
    for (from, until) in [
        ("2026-03-20T00:00:00Z", "2026-04-05T00:00:00Z"),
        ("2026-10-20T00:00:00Z", "2026-10-30T00:00:00Z"),
    ] {
        let (from, until) = (time(from), time(until));
        let expected: Vec<Time> = between(&plain, from, until).filter(keeps).collect();
        let found: Vec<Time> = between(&filtered, from, until).collect();
        assert_eq!(found, expected);
        assert_eq!(filtered.count(from, until), Some(expected.len() as u64));
        let mut end = from;
        while end < until {
            let latest = expected.iter().rev().find(|at| **at <= end).unwrap_or(&from);
            assert_eq!(filtered.latest_at(from, end), Some(*latest), "{end}");
            end += TimeDelta::minutes(37);
        }
    }
}

#[test]
fn explain_shows_what_is_left_out_and_why() {
    let notes = |text: &str, from: &str| -> Vec<String> {
        let schedule = parse(text).unwrap();
        let first = explain(&schedule, time(from), Time::MAX_UTC).next().unwrap();
        assert!(first.notes.iter().all(|note| note.reason == NoteReason::Excluded));
        first.notes.into_iter().map(|note| note.message).collect()
    };
    assert_eq!(
        notes("0 9 * * * Europe/Rome; except 2026-12-25", "2026-12-24T12:00:00Z"),
        ["2026-12-25T08:00:00Z is left out: 2026-12-25 in Europe/Rome is an excluded date"]
    );
    assert_eq!(
        notes("0 9 * * *; except 2026-12-25 2026-12-26", "2026-12-24T12:00:00Z"),
        [
            "2 occurrences from 2026-12-25T09:00:00Z to 2026-12-26T09:00:00Z are left out: the dates \
             from 2026-12-25 to 2026-12-26 in UTC are excluded"
        ]
    );
    assert_eq!(
        // A rule is named for as long as it excludes.
        notes("@hourly; except 2026-01-02; only-within 9:00-17:00", "2026-01-01T16:30:00Z"),
        [
            "16 occurrences from 2026-01-01T17:00:00Z to 2026-01-02T08:00:00Z are left out: only \
             the hours 9:00-17:00 of UTC are kept",
            "15 occurrences from 2026-01-02T09:00:00Z to 2026-01-02T23:00:00Z are left out: \
             2026-01-02 in UTC is an excluded date",
            "9 occurrences from 2026-01-03T00:00:00Z to 2026-01-03T08:00:00Z are left out: only the \
             hours 9:00-17:00 of UTC are kept",
        ]
    );
    assert_eq!(
        notes("@daily; blackout 2026-01-02T00:00:00Z/2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        [
            "30 occurrences from 2026-01-02T00:00:00Z to 2026-01-31T00:00:00Z are left out: the time \
             from 2026-01-02T00:00:00Z until 2026-02-01T00:00:00Z is a blackout period"
        ]
    );
    assert_eq!(
        notes("@noon; except 0 12 * * FRI", "2026-01-02T00:00:00Z"),
        ["2026-01-02T12:00:00Z is left out: `0 12 * * 5 UTC` excludes its own times"]
    );
    let nightly = parse("30 2 * * * Europe/Rome; except 2026-03-30").unwrap();
    let (from, until) = (time("2026-03-28T12:00:00Z"), time("2026-04-01T00:00:00Z"));
    let reasons: Vec<NoteReason> =
        nightly.notes(from, until).into_iter().map(|note| note.reason).collect();
    assert_eq!(reasons, [NoteReason::Moved, NoteReason::Excluded]);
}

#[test]
fn what_is_excluded_between_two_occurrences_is_one_range() {
    let christmas = ("2026-12-25T09:00:00Z", "2026-12-26T09:00:00Z", Some(2));
    for (text, after, expected) in [
        ("0 9 * * *; except 2026-12-25 2026-12-26", "2026-12-24T09:00:00Z", Some(christmas)),
        (
            "0 9 * * *; except 2026-12-25; except 2026-12-26",
            "2026-12-24T09:00:00Z",
            Some(christmas),
        ),
        ("0 9 * * *; except 2026-12-25 2026-12-26", "2026-12-23T09:00:00Z", None),
        ("0 9 * * *", "2026-12-24T09:00:00Z", None),
        (
            "* * * * * *; only-within 9:00-17:00",
            "2026-01-05T16:59:59Z",
            Some(("2026-01-05T17:00:00Z", "2026-01-06T08:59:59Z", Some(16 * 3_600))),
        ),
        (
            "*/30 * * * *; except 0 * * * *",
            "2026-01-05T16:30:00Z",
            Some(("2026-01-05T17:00:00Z", "2026-01-05T17:00:00Z", Some(1))),
        ),
    ] {
        let schedule = parse(text).unwrap();
        let after = time(after);
        let found = schedule.excluded(after, schedule.next_at(after).unwrap());
        let found = found.map(|it| (it.first, it.last, it.count));
        let expected = expected.map(|(first, last, count)| (time(first), time(last), count));
        assert_eq!(found, expected, "{text}");
    }
    // A calendar around a calendar.
    let dates = |text| Dates::parse(text).unwrap();
    let daily = cron("0 9 * * *").unwrap();
    let daily = Box::new(daily.except(dates("2026-12-25"))) as Box<dyn Schedule>;
    let daily = daily.except(dates("2026-12-26"));
    let found = daily.excluded(time("2026-12-24T09:00:00Z"), time("2026-12-27T09:00:00Z")).unwrap();
    assert_eq!(
        (found.first, found.last, found.count),
        (time(christmas.0), time(christmas.1), Some(2))
    );
}

#[test]
fn what_a_schedule_cannot_count_is_searched_in_a_bounded_number_of_calls() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let seconds = move |after: Time| {
        counted.fetch_add(1, Ordering::Relaxed);
        Some(after + TimeDelta::seconds(1))
    };
    let office = seconds.only_within("9:00-17:00", "UTC").unwrap();
    let (evening, morning) = (time("2026-01-05T16:59:59Z"), time("2026-01-06T09:00:00Z"));
    let found = office.excluded(evening, morning).unwrap();
    assert_eq!((found.first, found.count), (evening + TimeDelta::seconds(1), None));
    assert!(calls.load(Ordering::Relaxed) <= 10_001, "{calls:?}");
    let found = office.excluded(evening, time("2026-01-05T17:00:05Z")).unwrap();
    assert_eq!(found.count, Some(6));
}

#[test]
fn a_calendar_that_leaves_nothing_is_rejected() {
    for text in [
        "0 9 * * *; except 0 9 * * *",
        "0 3 * * *; only-within 9:00-17:00",
        "@at 2026-01-01T09:00:00Z; except 2026-01-01",
    ] {
        let error = parse(text).unwrap().check().expect_err(text).to_string();
        assert!(error.contains("every occurrence is excluded"), "{error}");
    }
    let (from, until) = (time("2026-01-01T00:00:00Z"), time("2027-01-01T00:00:00Z"));
    let error = cron("@daily").unwrap().blackout(until, from).check().unwrap_err();
    assert!(error.to_string().contains("is empty"), "{error}");
    assert!(at(from).blackout(until, Time::MAX_UTC).check().is_ok());
    assert!(parse("@daily; except 2026-01-01").unwrap().check().is_ok());
}

#[test]
fn a_long_exclusion_is_passed_over_at_once() {
    let seconds = parse("* * * * * *; blackout 1971-01-01T00:00:00Z/9000-01-01T00:00:00Z").unwrap();
    let (from, end) = (time("1971-01-01T00:00:00Z"), time("9000-01-01T00:00:00Z"));
    assert_eq!(seconds.next_at(from), Some(end));
    assert_eq!(
        seconds.latest_at(time("1970-12-31T23:59:58Z"), end - TimeDelta::days(1)),
        Some(from - TimeDelta::seconds(1))
    );
    let night = parse("* * * * * *; only-within 9:00-9:01; except 2026-01-01").unwrap();
    assert_eq!(night.next_at(time("2025-12-31T09:01:00Z")), Some(time("2026-01-02T09:00:00Z")));
    // A schedule excludes instant by instant.
    let minutes = parse("* * * * *; except * * * 12 *").unwrap();
    assert_eq!(minutes.next_at(time("2026-11-30T23:59:00Z")), Some(time("2027-01-01T00:00:00Z")));
    assert_eq!(night.next_at(time("9999-12-31T10:00:00Z")), None);
}

#[test]
fn the_zone_of_a_definition_is_that_of_its_calendar() {
    let in_rome = |text: &str| parse(text).unwrap().in_zone("Europe/Rome").map(|it| it.to_string());
    assert_eq!(
        in_rome("0 9 * * *; except 2026-12-25").unwrap(),
        "0 9 * * * Europe/Rome; except 2026-12-25"
    );
    assert_eq!(
        in_rome("@every 1h; only-within 9:00-17:00; except 2026-12-25 UTC").unwrap(),
        "@every 1h; only-within 9:00-17:00 Europe/Rome; except 2026-12-25 UTC"
    );
    assert!(in_rome("@every 1h; only-within 9:00-17:00 UTC").is_err());
    let lacks = |text: &str| parse(text).unwrap().lacks_zone();
    assert!(lacks("0 9 * * *; except 2026-12-25") && lacks("@every 1h; only-within 9:00-17:00"));
    assert!(!lacks("0 9 * * * UTC; except 2026-12-25") && !lacks("@every 1h; except @daily"));
}

#[test]
fn a_rule_that_cannot_be_read_is_rejected_where_it_stands() {
    for (text, field, position, says) in [
        ("0 9 * * *;", Field::Setting, 10, "nothing after a semicolon"),
        ("0 9 * * *; holidays", Field::Setting, 11, "is not a rule of a calendar"),
        ("0 9 * * *; holidays it", Field::Setting, 11, "is not a rule of a calendar"),
        ("0 9 * * *; except", Field::Setting, 11, "has no value"),
        ("0 9 * * *; except easter", Field::Text, 18, "\"easter\""),
        ("0 9 * * *; except 2026-02-30", Field::Setting, 18, "is not a day of the calendar"),
        ("0 9 * * *; except 2026-02-28 tomorrow", Field::Zone, 29, "is not an IANA time zone"),
        ("0 9 * * *; except 2026-02-28 Europe/Rom", Field::Zone, 29, "write Europe/Rome"),
        ("0 9 * * *; except 61 * * * *", Field::Minute, 18, "is not within 0 to 59"),
        ("0 9 * * *; only-within 9-17", Field::Setting, 23, "is not a span of hours"),
        ("0 9 * * *; only-within 9:00-24:30", Field::Setting, 23, "is not a span of hours"),
        ("0 9 * * *; only-within 9:00-9:00", Field::Setting, 23, "has no hours inside it"),
        ("0 9 * * *; only-within 9:00-17:00 UTC x", Field::Setting, 38, "one word too many"),
        ("0 9 * * *; blackout 2026-01-01", Field::Setting, 20, "is not a period of time"),
        ("0 9 * * *; blackout 2026-01-01T00:00:00Z/2026", Field::Instant, 41, "RFC 3339"),
        (
            "0 9 * * *; blackout 2026-01-02T00:00:00Z/2026-01-01T00:00:00Z",
            Field::Setting,
            20,
            "ends before it begins",
        ),
        ("61 * * * *; except 2026-01-01", Field::Minute, 0, "is not within 0 to 59"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!((error.field(), error.position()), (field, position), "{text}: {error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    let dates: Vec<String> = (1..=65)
        .map(|day| (time("2026-01-01T00:00:00Z") + TimeDelta::days(day)).date_naive().to_string())
        .collect();
    assert!(Dates::parse(&dates[..64].join(" ")).is_ok());
    let error = Dates::parse(&dates.join(" ")).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("one date more than the 64"), "{text}");
    assert!(text.contains("`allora calendar put`, and write except calendar:NAME"), "{text}");
    let hashed = AnySchedule::for_job("job", "0 9 * * *; except H 9 * * *");
    assert!(hashed.is_ok() && parse("0 9 * * *; except H 9 * * *").is_err());
}

#[test]
fn mutated_rules_are_read_back_or_rejected() {
    let full = "0 9 * * MON; except 2026-12-25 2026-12-26 Europe/Rome; only-within 9:00-17:30; \
                except @noon; blackout 2026-12-20T00:00:00Z/2027-01-07T00:00:00Z";
    let mut seed = 5_u64;
    let mut below = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    let (mut read, mut rejected) = (0, 0);
    for _ in 0..4_000 {
        let mut bytes = full.as_bytes().to_vec();
        for _ in 0..=below(2) {
            let at = below(bytes.len());
            match below(3) {
                0 => bytes[at] = below(256) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"; -:/0Z9T"[below(9)]),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        match parse(&text) {
            Ok(schedule) => {
                assert_eq!(parse(&schedule.to_string()), Ok(schedule), "{text}");
                read += 1;
            }
            Err(error) => {
                assert!(error.position() <= text.len(), "{text}: {error}");
                rejected += 1;
            }
        }
    }
    assert!(read > 30 && rejected > 1_000, "{read} read, {rejected} rejected");
}

/// The schedule of a text with one calendar.
fn with(text: &str, calendar: &str) -> AnySchedule {
    let calendar = Arc::new(Calendar::parse(calendar).unwrap());
    let schedule = parse(text).unwrap();
    assert_eq!(schedule.calendars().into_iter().collect::<Vec<_>>(), ["x"]);
    schedule.with_calendars(|name| (name == "x").then(|| calendar.clone()))
}

#[test]
fn a_named_calendar_excludes_what_its_rules_exclude() {
    let calendar = "# Holidays\n2026-01-02 2026-01-01 # two\n\nonly-within 8:00-17:30\n\
                    blackout 2026-01-04T00:00:00Z/2026-01-05T00:00:00Z\nexcept 0 9 6 1 *\n";
    let inline = "except 2026-01-01 2026-01-02; only-within 8:00-17:30; \
                  blackout 2026-01-04T00:00:00Z/2026-01-05T00:00:00Z; except 0 9 6 1 *";
    let (from, until) = (time("2025-12-30T00:00:00Z"), time("2026-01-20T00:00:00Z"));
    for schedule in ["0 9 * * *", "*/30 * * * * Europe/Rome", "@every 7h"] {
        let named = with(&format!("{schedule}; except calendar:x"), calendar);
        let plain = parse(&format!("{schedule}; {inline}")).unwrap();
        let times: Vec<Time> = between(&plain, from, until).collect();
        assert_eq!(between(&named, from, until).collect::<Vec<_>>(), times, "{schedule}");
        assert_eq!(named.latest_at(from, until), plain.latest_at(from, until));
        assert_eq!(named.excluded(from, until), plain.excluded(from, until));
        assert!(times.iter().all(|at| !named.is_excluded(*at)));
        assert!(named.is_excluded(time("2026-01-01T09:00:00Z")));
        assert!(!plain.is_excluded(time("2026-01-01T09:00:00Z")), "it is in the text");
        assert!(named.check().is_ok());
    }
    let named = with("0 9 * * *; except calendar:x", calendar);
    let mut explained = explain(&named, time("2025-12-31T12:00:00Z"), until);
    let first = explained.next().unwrap();
    assert_eq!((first.notes.len(), first.notes[0].reason), (1, NoteReason::Excluded));
    let message = &first.notes[0].message;
    assert!(
        message.ends_with(
            "the dates from 2026-01-01 to 2026-01-02 in UTC are excluded (calendar \"x\")"
        ),
        "{message}"
    );
}

#[test]
fn the_text_of_a_named_calendar_comes_back() {
    for (text, canonical) in [
        ("0 9 * * * UTC;  except  calendar:de", "0 9 * * * UTC; except calendar:de"),
        (
            "@every 1h; except calendar:\u{e9} Europe/Rome; except 2026-01-01 UTC",
            "@every 1h; except calendar:\u{e9} Europe/Rome; except 2026-01-01 UTC",
        ),
    ] {
        let read = parse(text).unwrap();
        assert_eq!(read.to_string(), canonical);
        assert_eq!(parse(canonical).unwrap(), read);
    }
    assert_eq!(
        parse("0 9 * * *; except calendar:x").unwrap().describe().unwrap(),
        "every day at 9:00 UTC, except by the calendar x"
    );
    let in_rome = parse("@every 1h; except calendar:x").unwrap().in_zone("Europe/Rome").unwrap();
    assert_eq!(in_rome.to_string(), "@every 1h; except calendar:x Europe/Rome");
    // Its dates are in the zone that is given where it is named, unless they have one of their own.
    let calendar = "2026-01-02\n2026-01-03 UTC";
    let zoned = with("30 23 * * *; except calendar:x Asia/Tokyo", calendar);
    let times = next_n(&zoned, time("2025-12-31T00:00:00Z"), 4);
    let days: Vec<String> = times.iter().map(|at| at.format("%m-%d").to_string()).collect();
    assert_eq!(days, ["12-31", "01-02", "01-04", "01-05"]);
    for (text, says) in [
        ("@daily; except calendar:", "names no calendar"),
        ("@daily; except calendar:x Mars/X", "Mars/X"),
        ("@daily; except calendar:x UTC y", "one word too many"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_schedule_without_its_calendar_never_runs_and_says_so() {
    let unknown = parse("* * * * *; except calendar:none").unwrap();
    let (from, until) = (time("2026-01-01T00:00:00Z"), time("2026-01-02T00:00:00Z"));
    assert_eq!((unknown.next_at(from), unknown.latest_at(from, until)), (None, Some(from)));
    assert_eq!((unknown.count(from, until), unknown.excluded(from, until)), (Some(0), None));
    let error = unknown.check().unwrap_err().to_string();
    assert!(error.contains("the calendar \"none\" is known by its name alone"), "{error}");
    let error = with("0 9 * * *; except calendar:x", "except 0 9 * * *").check().unwrap_err();
    assert!(error.to_string().contains("every occurrence is excluded"), "{error}");
}

#[test]
fn a_calendar_is_read_line_by_line() {
    let text = "# dates\n2026-12-26 2026-12-25\n  2026-12-31 Europe/Rome # in Rome\r\n\
                2027-01-01\nexcept 2026-12-24\nexcept 0 12 * * * UTC\nonly-within 9:00-17:30";
    let calendar = Calendar::parse(text).unwrap();
    assert_eq!((calendar.dates(), calendar.rules()), (5, 2));
    let canonical = calendar.to_string();
    assert_eq!(
        canonical,
        "2026-12-24\n2026-12-25\n2026-12-26\n2027-01-01\n2026-12-31 Europe/Rome\n\
         except 0 12 * * * UTC\nonly-within 9:00-17:30"
    );
    assert_eq!(canonical.parse(), Ok(calendar));
    for (text, says) in [
        ("", "has no date and no rule"),
        ("# nothing\n\n", "has no date and no rule"),
        (
            "2026-12-25\nchristmas",
            "\"christmas\" is neither a date nor a rule of a calendar (line 2)",
        ),
        ("2026-12-25\n\n2026-02-30", "is not a day of the calendar (line 3)"),
        ("only-within 9-17", "is not a span of hours (line 1)"),
        ("except calendar:other", "is another calendar"),
        ("except H 9 * * *", "(line 1)"),
    ] {
        let error = Calendar::parse(text).expect_err(text).to_string();
        assert!(error.contains(says), "{error}");
    }
    let dates = |count: i64| -> String {
        let first = time("2000-01-01T00:00:00Z");
        (0..count).map(|day| format!("{}\n", (first + TimeDelta::days(day)).date_naive())).collect()
    };
    let many = Calendar::parse(&dates(10_000)).unwrap();
    assert_eq!((many.dates(), many.to_string() + "\n"), (10_000, dates(10_000)));
    let error = Calendar::parse(&dates(10_001)).unwrap_err().to_string();
    assert!(error.contains("the 10,000 of a calendar (line 10001)"), "{error}");
    let rules = "only-within 9:00-17:30\n".repeat(1_001);
    let error = Calendar::parse(&rules).unwrap_err().to_string();
    assert!(error.contains("the 1,000 of a calendar (line 1001)"), "{error}");
}
