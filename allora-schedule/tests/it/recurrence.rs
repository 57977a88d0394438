//! Recurrence rules: held to python-dateutil, to RFC 5545 and to ISO 8601.

use allora_schedule::{
    AnySchedule, NoteReason, Recurrence, Schedule, Time, explain, next_n, parse,
};

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

fn rule(text: &str) -> Recurrence {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The first times of a schedule, in its zone's wall clock or in UTC.
fn times(text: &str, count: usize) -> Vec<String> {
    let schedule = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let times = next_n(&schedule, Time::UNIX_EPOCH, count);
    times.iter().map(|at| at.format("%Y-%m-%d %H:%M").to_string()).collect()
}

/// `golden/recurrence.py` says how the rows were made, and where allora deviates from dateutil.
#[test]
fn times_of_random_rules_are_those_of_dateutil() {
    let rows = include_str!("../golden/recurrence.tsv");
    let mut wrong = Vec::new();
    for row in rows.lines() {
        let columns: Vec<&str> = row.split('\t').collect();
        let [text, after, steps] = columns[..] else { panic!("{row}") };
        let mut at: i64 = after.parse().unwrap();
        let after = Time::from_timestamp(at, 0).unwrap();
        let expected: Vec<Time> = steps
            .split(' ')
            .map(|step| {
                at += step.parse::<i64>().unwrap();
                Time::from_timestamp(at, 0).unwrap()
            })
            .collect();
        let rule = rule(text);
        let found = next_n(&rule, after, expected.len());
        if found != expected {
            wrong.push(format!("{row}\n {found:?}\n {expected:?}"));
        }
        assert_eq!(rule.to_string().parse(), Ok(rule), "{text}");
    }
    assert!(rows.lines().count() >= 2_000);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(8)].join("\n"));
}

#[test]
fn rules_with_their_lists_have_the_times_of_the_standard() {
    for (text, expected) in [
        (
            "DTSTART;TZID=Europe/Rome:20260302T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE",
            vec![
                "2026-03-02 08:00",
                "2026-03-04 08:00",
                "2026-03-16 08:00",
                "2026-03-18 08:00",
                "2026-03-30 07:00",
            ],
        ),
        (
            "DTSTART:20260131T120000Z RRULE:FREQ=MONTHLY;BYMONTHDAY=-1;COUNT=3",
            vec!["2026-01-31 12:00", "2026-02-28 12:00", "2026-03-31 12:00"],
        ),
        // The standard takes days that are either, dateutil those that are both.
        (
            "DTSTART:20260301T000000Z RRULE:FREQ=MONTHLY;BYDAY=1MO,FR;UNTIL=20260313T000000Z",
            vec!["2026-03-02 00:00", "2026-03-06 00:00", "2026-03-13 00:00"],
        ),
        (
            "DTSTART:20260302T000000Z RRULE:FREQ=DAILY;COUNT=3 \
             EXDATE;TZID=Europe/Rome:20260303T010000 RDATE:20260310T063000Z,20260302T003000Z",
            vec!["2026-03-02 00:00", "2026-03-02 00:30", "2026-03-04 00:00", "2026-03-10 06:30"],
        ),
        ("@rrule\nDTSTART:20260302T000000Z\r\nRRULE:FREQ=YEARLY;COUNT=1", vec!["2026-03-02 00:00"]),
        // Rules of a calendar, and settings, follow a semicolon and a blank.
        (
            "DTSTART:20260302T000000Z RRULE:FREQ=DAILY;COUNT=3; except 2026-03-03",
            vec!["2026-03-02 00:00", "2026-03-04 00:00"],
        ),
        ("R2/2026-03-02T09:00:00Z/PT90M", vec!["2026-03-02 09:00", "2026-03-02 10:30"]),
        ("r2/2026-03-02T09:00:00+01:00/P1M", vec!["2026-03-02 08:00", "2026-04-02 08:00"]),
        ("R2/2026-03-28T09:00/P1D Europe/Rome", vec!["2026-03-28 08:00", "2026-03-29 07:00"]),
    ] {
        assert_eq!(times(text, 5), expected, "{text}");
    }
}

#[test]
fn changes_of_the_clock_are_those_of_cron_and_have_notes() {
    let notes = |text: &str, from: &str| {
        let rule = rule(text);
        let found: Vec<_> = explain(&rule, time(from), Time::MAX_UTC).take(3).collect();
        let reasons = found.iter().flat_map(|one| &one.notes).map(|note| note.reason);
        let hours = found.iter().map(|one| one.scheduled_at.format("%H:%M").to_string());
        (hours.collect::<Vec<_>>().join(" "), reasons.collect::<Vec<_>>())
    };
    let daily = "DTSTART;TZID=Europe/Rome:20260101T023000 RRULE:FREQ=DAILY";
    let hourly = "DTSTART;TZID=Europe/Rome:20260101T003000 RRULE:FREQ=HOURLY;INTERVAL=2";
    let (spring, autumn) = ("2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z");
    assert_eq!(notes(daily, spring), ("01:00 00:30 00:30".into(), vec![NoteReason::Moved]));
    assert_eq!(notes(daily, autumn), ("00:30 01:30 01:30".into(), vec![NoteReason::Once]));
    let night = "2026-03-28T23:00:00Z";
    assert_eq!(notes(hourly, night), ("23:30 02:30 04:30".into(), vec![NoteReason::Skipped]));
    let night = "2026-10-24T23:00:00Z";
    assert_eq!(notes(hourly, night), ("00:30 01:30 03:30".into(), vec![NoteReason::Twice]));
}

#[test]
fn a_zone_that_is_given_apart_moves_the_local_times() {
    let floating = "DTSTART:20260302T090000 RRULE:FREQ=DAILY EXDATE:20260303T090000";
    let rome = parse(floating).unwrap();
    assert!(rome.lacks_zone());
    let rome = rome.in_zone("Europe/Rome").unwrap();
    let named = "DTSTART;TZID=Europe/Rome:20260302T090000 RRULE:FREQ=DAILY \
                 EXDATE;TZID=Europe/Rome:20260303T090000";
    assert_eq!(rome, parse(named).unwrap());
    assert_eq!(rome.to_string(), format!("@rrule {named}"));
    let next = rome.next_at(time("2026-03-02T08:00:00Z"));
    assert_eq!(next, Some(time("2026-03-04T08:00:00Z")));
}

#[test]
fn a_text_with_two_readings_or_no_occurrence_is_rejected_at_its_place() {
    let start = "DTSTART:20260302T090000Z ";
    for (text, column, says) in [
        ("RRULE:FREQ=WEEKLY", 18, "has no start to count from; write DTSTART in front"),
        ("DTSTART:20260302T090000Z", 25, "has no rule"),
        ("DTSTART:20260302 RRULE:FREQ=DAILY", 9, "is not a date and time"),
        ("DTSTART;VALUE=DATE:20260302 RRULE:FREQ=DAILY", 9, "without a time"),
        ("DTSTART;TZID=Europe/Pari:20260302T090000 RRULE:FREQ=DAILY", 14, "write Europe/Paris"),
        ("DTSTART;TZID=Europe/Rome:20260302T090000Z RRULE:FREQ=DAILY", 14, "a zone and a Z"),
        (
            "DTSTART;TZID=Europe/Rome:20260302T090000 RRULE:FREQ=DAILY;UNTIL=20260401T000000",
            65,
            "write the instant in UTC, with a Z",
        ),
        (&format!("{start}RRULE:FREQ=DALY"), 37, "write YEARLY, MONTHLY"),
        (&format!("{start}RRULE:FREQ"), 32, "write a name, = and a value, such as FREQ=WEEKLY"),
        (&format!("{start}RRULE:INTERVAL=2"), 32, "has no frequency"),
        (&format!("{start}RRULE:FREQ=DAILY;INTERVAL=0"), 52, "write 1 to 1000000"),
        (&format!("{start}RRULE:FREQ=DAILY;BYHOUR=9,24"), 52, "write 0 to 23"),
        (&format!("{start}RRULE:FREQ=DAILY;BYMONTHDAY=0"), 54, "write 1 to 31, or -31 to -1"),
        (&format!("{start}RRULE:FREQ=WEEKLY;BYDAY=1MO"), 26, "which only FREQ=MONTHLY and YEARLY"),
        (&format!("{start}RRULE:FREQ=YEARLY;BYWEEKNO=20"), 26, "that of DTSTART to others"),
        (
            &format!("{start}RRULE:FREQ=DAILY;COUNT=2;UNTIL=20270101T000000Z"),
            26,
            "both COUNT and UNTIL",
        ),
        (&format!("{start}RRULE:FREQ=DAILY;BYSETPOS=1"), 26, "without another BY part"),
        (&format!("{start}RRULE:FREQ=DAILY;SKIP=OMIT"), 43, "is no part of a rule"),
        (&format!("{start}RRULE:FREQ=DAILY EXRULE:FREQ=DAILY"), 43, "is no line of a recurrence"),
        (&format!("{start}RRULE:FREQ=DAILY;delay 30s"), 49, "a semicolon and a blank"),
        (&format!("{start}RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"), 26, "has no occurrence"),
        (&format!("{start}RRULE:FREQ=HOURLY;INTERVAL=24;BYHOUR=10"), 26, "has no occurrence"),
        (&format!("{start}RRULE:FREQ=DAILY;UNTIL=20260301T000000Z"), 26, "has no occurrence"),
        ("R5/PT1H", 1, "write R5/2026-03-02T09:00:00Z/PT1H"),
        ("R0/2026-03-02T09:00:00Z/PT1H", 1, "write R and 1 to 100000"),
        ("R/2026-03-02T09:00/PT1H Europe/Rome", 3, "hours and minutes are elapsed time"),
        ("R/2026-03-02T09:00:00Z/P1M2D", 24, "days and months cannot be mixed"),
        ("R/2026-01-31T09:00:00Z/P1M", 3, "is on a day that not every month has"),
        ("R/2026-01-31/P1D", 3, "is not a start"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.to_string().contains(says), "{text}: {error}");
        assert_eq!(error.position() + 1, column, "{text}: {error}");
    }
}

#[test]
fn a_start_that_is_no_time_of_the_rule_has_a_warning() {
    let warned = rule("DTSTART:20260303T090000Z RRULE:FREQ=WEEKLY;BYDAY=MO");
    assert_eq!(warned.warnings()[0].code, "start-outside-rule");
    assert_eq!(warned.first(), Some(time("2026-03-09T09:00:00Z")));
    assert!(rule("DTSTART:20260302T090000Z RRULE:FREQ=WEEKLY;BYDAY=MO").warnings().is_empty());
}

#[test]
fn phrases_that_count_from_a_date_are_rules() {
    for (phrase, same) in [
        (
            "every 2 weeks on monday at 9am Europe/Rome from 2026-03-02",
            "DTSTART;TZID=Europe/Rome:20260302T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO",
        ),
        (
            "every other friday from 2026-03-06",
            "DTSTART:20260306T000000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=FR",
        ),
        (
            "every other weekday at 9:00 from 2026-03-02",
            "DTSTART:20260302T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,TU,WE,TH,FR",
        ),
        (
            "every 3 months on the 1st from 2026-01-01",
            "DTSTART:20260101T000000 RRULE:FREQ=MONTHLY;INTERVAL=3;BYMONTHDAY=1",
        ),
        (
            "every month on the 15th and last day from 2026-01-15 at noon",
            "DTSTART:20260115T120000 RRULE:FREQ=MONTHLY;BYMONTHDAY=-1,15",
        ),
        (
            "every 2 months on the first monday at 9:00 and 17:00 from 2026-01-05",
            "DTSTART:20260105T090000 RRULE:FREQ=MONTHLY;INTERVAL=2;BYDAY=1MO;BYHOUR=9,17",
        ),
        (
            "every 2 weeks from 2026-03-02T09:00 Europe/Rome",
            "DTSTART;TZID=Europe/Rome:20260302T090000 RRULE:FREQ=WEEKLY;INTERVAL=2",
        ),
        ("every month from 2026-01-05T09:00:00Z", "DTSTART:20260105T090000Z RRULE:FREQ=MONTHLY"),
        ("Every Other Day From 2026-03-02", "DTSTART:20260302T000000 RRULE:FREQ=DAILY;INTERVAL=2"),
        (
            "every year from 2026-03-02T09:00+02:00",
            "DTSTART;TZID=+02:00:20260302T090000 RRULE:FREQ=YEARLY",
        ),
    ] {
        let read = parse(phrase).unwrap_or_else(|error| panic!("{phrase}: {error}"));
        assert_eq!(read, parse(same).unwrap(), "{phrase}");
        assert_eq!(read.warnings(), [], "{phrase}");
        let described = read.describe().unwrap();
        assert_eq!(parse(&described), Ok(read), "{described}");
    }
}

#[test]
fn a_phrase_without_a_first_run_or_with_another_day_says_which_to_write() {
    for (phrase, advice) in [
        (
            "every 3 months",
            "write `every 3 months from 2026-01-01`, with the date of the first run",
        ),
        (
            "every other friday",
            "write `every other friday from 2026-01-02`, with the date of the first run",
        ),
        (
            "every 2 weeks on monday and friday at 9:00",
            "write `every 2 weeks on monday and friday at 9:00 from 2026-01-05`, with the date of the first run",
        ),
        (
            "every 2 weeks",
            "write `every 2 weeks from 2026-01-01`, with the date of the first run, or `every 336 hours` in \
             elapsed time",
        ),
        ("every other friday from 2026-03-02", "write from 2026-03-06"),
        // To some, the Monday after it would be in the same week.
        ("every 2 weeks on monday and friday from 2026-03-06", "write from 2026-03-09"),
        ("every 3 months on the 1st from 2026-01-15", "write from 2026-02-01"),
        (
            "every month from 2026-01-31",
            "begin on another day, or name the days, as in `on the last day`",
        ),
        (
            "every 2 weks on monday",
            "write `every 2 weeks on monday from 2026-01-05`, with the date of the first run",
        ),
        (
            "fortnightly",
            "write `every 2 weeks from 2026-01-01`, with the date of the first run, or `every 336 hours` in elapsed time",
        ),
        (
            "31st day of every month",
            "write `0 0 31 * *` for the months that have it, or `last day of every month`",
        ),
        (
            "fifth monday of every month",
            "write `0 0 * * 1#5` for the months that have it, or `last monday of every month`",
        ),
        ("every day at 9:00 and 17:30", "write two schedules, one with each of the times"),
    ] {
        let error = parse(phrase).expect_err(phrase);
        assert_eq!(error.advice(), advice, "{phrase}: {error}");
    }
}

#[test]
fn rules_are_described_in_english() {
    for (text, description) in [
        (
            "DTSTART;TZID=Europe/Rome:20260302T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;COUNT=5",
            "every 2 weeks on Monday and Wednesday at 9:00 Europe/Rome from 2026-03-02, 5 times",
        ),
        (
            "DTSTART:20260302T090000Z RRULE:FREQ=YEARLY;BYMONTH=1,3;BYDAY=-1FR;UNTIL=20300101T000000Z",
            "every year, on the last Friday of the month, in January and March at 9:00 UTC from 2026-03-02, until 2030-01-01 00:00 UTC",
        ),
        (
            "DTSTART:20260302T090000Z RRULE:FREQ=MINUTELY;INTERVAL=20;BYHOUR=9,10,11 EXDATE:20260302T092000Z",
            "every 20 minutes, at hours 9 to 11 from 2026-03-02T09:00 UTC, except 1 time",
        ),
        (
            "DTSTART:20260302T090000Z RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
            "every month, on every Monday, every Tuesday, every Wednesday, every Thursday and every Friday at \
             9:00 UTC from 2026-03-02, of these only number 1 from the end of each month",
        ),
    ] {
        assert_eq!(parse(text).unwrap().describe().as_deref(), Some(description), "{text}");
    }
}

#[test]
fn latest_and_count_are_those_of_a_walk() {
    let rule =
        parse("DTSTART;TZID=Europe/Rome:20260302T090000 RRULE:FREQ=WEEKLY;BYDAY=MO,WE").unwrap();
    let (from, until) = (time("2026-03-02T08:00:00Z"), time("2027-03-02T08:00:00Z"));
    let walked = next_n(&rule, from, 200);
    let walked: Vec<_> = walked.into_iter().filter(|at| *at <= until).collect();
    assert_eq!(rule.latest_at(from, until), walked.last().copied());
    assert_eq!(rule.count(from, until), Some(walked.len() as u64));
    let AnySchedule::Recurrence(rule) = rule else { panic!("no rule") };
    assert_eq!(rule.first(), Some(from));
}
