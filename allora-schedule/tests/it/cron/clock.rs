//! Changes of the clock, and the order of instants.

use super::{
    Dice, at, cron,
    oracle::{self, Expression},
    time,
};
use allora_schedule::{Cron, Dst, NoteReason, Schedule, Time, between, next_n};

/// Zones whose changes are awkward: half an hour, at midnight, a missing day, negative "summer"
/// time, twice a year around Ramadan, odd minutes.
const ZONES: [&str; 16] = [
    "UTC",
    "Europe/Rome",
    "Europe/Dublin",
    "America/New_York",
    "America/St_Johns",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Havana",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kwajalein",
    "Africa/Casablanca",
    "Africa/Cairo",
    "Antarctica/Troll",
    "Asia/Gaza",
];

fn check(expression: &str, after: &str, expected: &[&str]) {
    let found = next_n(&cron(expression), time(after), expected.len());
    let expected: Vec<Time> = expected.iter().map(|text| time(text)).collect();
    assert_eq!(found, expected, "{expression}");
}

#[test]
fn times_in_the_gap_run_once_together_at_the_first_instant_after_it() {
    let after = "2026-03-28T12:00:00Z";
    check("0,30 2 * * * Europe/Rome", after, &["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
    check("30 2,3 * * * Europe/Rome", after, &["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]);
    check("0 2,3 * * * Europe/Rome", after, &["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
    check("*/20 30 2 * * * Europe/Rome", after, &["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
}

#[test]
fn a_search_that_begins_at_the_change_itself_does_not_run_the_gap_again() {
    check("30 2 * * * Europe/Rome", "2026-03-29T00:59:59.999Z", &["2026-03-29T01:00:00Z"]);
    check("30 2 * * * Europe/Rome", "2026-03-29T01:00:00Z", &["2026-03-30T00:30:00Z"]);
    check("30 2 * * * Europe/Rome", "2026-03-29T01:00:00.001Z", &["2026-03-30T00:30:00Z"]);
}

#[test]
fn a_repeated_time_runs_the_first_time_only() {
    let after = "2026-10-31T12:00:00Z";
    check("30 1 * * * America/New_York", after, &["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]);
    check("30 1 * * * America/New_York", "2026-11-01T06:00:00Z", &["2026-11-02T06:30:00Z"]);
    check(
        "0,30 1,2 * * * America/New_York",
        "2026-11-01T05:00:00Z",
        &["2026-11-01T05:30:00Z", "2026-11-01T07:00:00Z", "2026-11-01T07:30:00Z"],
    );
    // A repeated hour that begins before midnight.
    check(
        "30 23 * * * America/Havana",
        "2026-10-31T12:00:00Z",
        &["2026-11-01T03:30:00Z", "2026-11-02T04:30:00Z"],
    );
}

#[test]
fn wildcards_follow_elapsed_time() {
    check(
        "*/30 * * * * Europe/Rome",
        "2026-10-25T00:00:00Z",
        &[
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-25T02:00:00Z",
        ],
    );
    check("0 */2 * * * Europe/Rome", "2026-03-28T23:00:00Z", &["2026-03-29T02:00:00Z"]);
    check("* 2 * * * Europe/Rome", "2026-03-28T12:00:00Z", &["2026-03-30T00:00:00Z"]);
}

#[test]
fn a_day_that_does_not_exist_has_one_run() {
    // Apia left out 30 December 2011.
    check(
        "0 12 * * * Pacific/Apia",
        "2011-12-29T00:00:00Z",
        &["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"],
    );
    check(
        "0 * * * * Pacific/Apia",
        "2011-12-30T09:00:00Z",
        &["2011-12-30T10:00:00Z", "2011-12-30T11:00:00Z"],
    );
    check("0 12 30 12 * Pacific/Apia", "2011-12-01T00:00:00Z", &["2011-12-30T10:00:00Z"]);
}

#[test]
fn the_literal_policy_skips_the_gap_and_runs_the_overlap_twice() {
    check("30 2 * * * Europe/Rome dst=literal", "2026-03-28T12:00:00Z", &["2026-03-30T00:30:00Z"]);
    check(
        "30 1 * * * America/New_York dst=literal",
        "2026-10-31T12:00:00Z",
        &["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"],
    );
    // The second pass is found although the next first pass is a year away.
    check(
        "30 1 1 11 * America/New_York dst=literal",
        "2026-11-01T05:30:00Z",
        &["2026-11-01T06:30:00Z", "2027-11-01T05:30:00Z"],
    );
    check(
        "15 2 * 10 SUN Australia/Lord_Howe dst=literal",
        "2026-10-01T00:00:00Z",
        &["2026-10-10T15:15:00Z"],
    );
}

/// The window of a few days around one of the zone's changes, or anywhere.
fn window(dice: &mut Dice, rules: &jiff::tz::TimeZone) -> std::ops::Range<i64> {
    let somewhere = dice.within(0..=2_208_988_800);
    let next = rules.following(jiff::Timestamp::from_second(somewhere).unwrap()).next();
    let middle = next.map_or(somewhere, |change| change.timestamp().as_second());
    let start = (middle - dice.within(4..=40) * 3600) / 60 * 60;
    start..start + 3 * 86_400
}

#[test]
fn both_policies_agree_with_looking_at_every_minute() {
    let mut dice = Dice(1);
    let mut instants = 0;
    for zone in ZONES {
        let rules = oracle::rules(zone);
        for _ in 0..25 {
            let window = window(&mut dice, &rules);
            let expression = Expression::random(&mut dice);
            let Ok(schedule) = Cron::parse(&expression.text) else { continue };
            let schedule = schedule.in_zone(zone).unwrap();
            let found = |schedule: &Cron| -> Vec<i64> {
                between(schedule, at(window.start), at(window.end))
                    .map(|at| at.timestamp())
                    .collect()
            };
            let literal = oracle::literal(&expression, &rules, window.clone());
            let context = format!("{} {zone} {window:?}", expression.text);
            assert_eq!(found(&schedule.clone().dst(Dst::Literal)), literal, "literal {context}");
            let debian = if expression.is_wildcard() {
                literal
            } else {
                oracle::once(&expression, &rules, window.clone())
            };
            instants += debian.len();
            assert_eq!(found(&schedule), debian, "debian {context}");
            let count = schedule.count(at(window.start), at(window.end));
            assert_eq!(count, Some(debian.len() as u64), "count {context}");
        }
    }
    assert!(instants > 2_000, "the windows are not empty: {instants}");
}

#[test]
fn a_fixed_daily_job_runs_once_for_every_local_day() {
    let from = jiff::civil::date(1970, 1, 3);
    for zone in ZONES {
        let rules = oracle::rules(zone);
        for (hour, minute) in [(0, 0), (0, 30), (1, 30), (2, 15), (3, 0), (12, 0), (23, 45)] {
            let schedule = cron(&format!("{minute} {hour} * * *")).in_zone(zone).unwrap();
            let mut expected: Vec<i64> = from
                .series(jiff::Span::new().days(1))
                .take_while(|day| day.year() < 2050)
                .map(|day| oracle::first_shown(&rules, day.at(hour, minute, 0, 0)))
                .collect();
            // Two days may share an instant: one that does not exist, and midnight after it.
            expected.dedup();
            let found = between(&schedule, at(expected[0] - 1), at(expected[expected.len() - 1]));
            assert!(found.map(|at| at.timestamp()).eq(expected), "{zone} {hour}:{minute}");
        }
    }
}

#[test]
fn an_hourly_job_keeps_its_rhythm_where_the_changes_are_whole_hours() {
    for zone in ["America/New_York", "Europe/Dublin", "Pacific/Apia", "Africa/Casablanca"] {
        let schedule = cron("@hourly").in_zone(zone).unwrap();
        let mut last = time("1974-01-01T00:00:00Z");
        for next in between(&schedule, last, time("2050-01-01T00:00:00Z")) {
            assert_eq!((next - last).num_seconds(), 3600, "{zone} {next}");
            last = next;
        }
    }
}

#[test]
fn the_latest_instant_is_the_one_that_a_walk_finds() {
    let mut dice = Dice(2);
    let mut moved = 0;
    for _ in 0..600 {
        let expression = Expression::random(&mut dice);
        let Ok(schedule) = Cron::parse(&expression.text) else { continue };
        let zone = dice.choose(&ZONES);
        let policy = if dice.one_in(2) { Dst::Debian } else { Dst::Literal };
        let schedule = schedule.in_zone(zone).unwrap().dst(policy);
        let from = at(dice.within(0..=2_000_000_000)) + chrono::TimeDelta::milliseconds(500);
        let until = from + chrono::TimeDelta::seconds(dice.within(-10..=40 * 86_400));
        let walked = between(&schedule, from, until).last();
        assert_eq!(schedule.latest_at(from, until), Some(walked.unwrap_or(from)), "{schedule}");
        let counted = between(&schedule, from, until).count() as u64;
        assert_eq!(schedule.count(from, until), Some(counted), "{schedule} {from} {until}");
        moved += usize::from(walked.is_some());
    }
    assert!(moved > 200, "{moved}");
}

#[test]
fn the_latest_of_ten_years_of_seconds_is_found() {
    let schedule = cron("* * * * * * Europe/Rome");
    let (from, until) = (time("2020-01-01T00:00:00Z"), time("2030-01-01T00:00:00.250Z"));
    assert_eq!(schedule.latest_at(from, until), Some(time("2030-01-01T00:00:00Z")));
    assert_eq!(schedule.count(from, until), Some(3653 * 86_400));
}

#[test]
fn rare_dates_are_found_across_2100() {
    check("0 0 29 2 *", "2096-02-29T00:00:00Z", &["2104-02-29T00:00:00Z"]);
    check("0 0 29 2 */7", "2092-01-01T00:00:00Z", &["2128-02-29T00:00:00Z"]);
    check("0 0 * 2 MON#5", "2088-03-01T00:00:00Z", &["2112-02-29T00:00:00Z"]);
    check("0 0 29 2 * Europe/Rome", "2096-03-01T00:00:00Z", &["2104-02-28T23:00:00Z"]);
    check("0 0 L-30 * *", "2026-01-02T00:00:00Z", &["2026-03-01T00:00:00Z"]);
}

#[test]
fn the_year_9999_ends_every_schedule() {
    check("59 59 23 31 12 *", "9998-12-31T23:59:59Z", &["9999-12-31T23:59:59Z"]);
    for zone in ["UTC", "Asia/Tokyo", "America/New_York", "+14:00"] {
        let every_minute = cron("* * * * *").in_zone(zone).unwrap();
        let last = time("9999-12-31T23:59:00Z");
        assert_eq!(every_minute.next_at(time("9999-12-31T23:58:00Z")), Some(last), "{zone}");
        for after in [last, time("9999-12-31T23:59:59.999Z"), Time::MAX_UTC] {
            assert_eq!(every_minute.next_at(after), None, "{zone}");
        }
    }
    assert_eq!(cron("0 0 29 2 *").next_at(time("9996-02-29T00:00:00Z")), None);
}

#[test]
fn far_years_follow_the_rules_of_today() {
    // The second Sunday of March 9999 is the 14th.
    check(
        "30 2 * * * America/New_York",
        "9999-03-13T12:00:00Z",
        &["9999-03-14T07:00:00Z", "9999-03-15T06:30:00Z"],
    );
    check(
        "30 2 * 3 * America/New_York dst=literal",
        "2499-12-31T00:00:00Z",
        &["2500-03-01T07:30:00Z"],
    );
}

#[test]
fn what_literal_never_finds_in_a_gap_ends_in_none() {
    // 02:30 on the second Sunday of March: New York's clocks never show it since 2007.
    let never = cron("30 2 * 3 SUN#2 America/New_York dst=literal");
    assert_eq!(never.next_at(time("2007-01-01T00:00:00Z")), None);
    assert_eq!(never.next_at(time("2700-01-01T00:00:00Z")), None);
    assert_eq!(never.next_at(time("2006-01-01T00:00:00Z")), Some(time("2006-03-12T07:30:00Z")));
    check(
        "30 2 * 3 SUN#2 America/New_York",
        "2007-01-01T00:00:00Z",
        &["2007-03-11T07:00:00Z", "2008-03-09T07:00:00Z"],
    );
}

#[test]
fn instants_before_1970_are_instants() {
    check("* * * * *", "1969-12-31T23:59:59.5Z", &["1970-01-01T00:00:00Z"]);
    check("0 0 1 1 *", "0001-01-01T00:00:00Z", &["0002-01-01T00:00:00Z"]);
    check("0 12 * * * Europe/Rome", "1850-01-01T00:00:00Z", &["1850-01-01T11:10:04Z"]);
    for zone in ["UTC", "Europe/Rome"] {
        let next = cron("* * * * *").in_zone(zone).unwrap().next_at(Time::MIN_UTC);
        assert!(next.is_some_and(|next| next > Time::MIN_UTC), "{zone}");
    }
}

#[test]
fn counts_go_on_beyond_the_tables() {
    let daily = cron("30 2 * * * America/New_York");
    let (from, until) = (time("2026-01-01T12:00:00Z"), time("9999-12-31T12:00:00Z"));
    assert_eq!(daily.count(from, until), Some((until - from).num_days() as u64));
    assert_eq!(daily.count(until, from), Some(0));
    assert_eq!(daily.count(from, Time::MAX_UTC), Some((until - from).num_days() as u64));
}

#[test]
fn notes_say_what_a_change_of_the_clock_does() {
    let kinds = |text: &str| -> Vec<NoteReason> {
        let (from, until) = (time("2026-01-01T00:00:00Z"), time("2027-01-01T00:00:00Z"));
        cron(text).notes(from, until).into_iter().map(|note| note.reason).collect()
    };
    assert_eq!(kinds("30 2 * * * Europe/Rome"), [NoteReason::Moved, NoteReason::Once]);
    assert_eq!(kinds("*/30 2 * * * Europe/Rome"), [NoteReason::Skipped, NoteReason::Twice]);
    assert_eq!(
        kinds("30 2 * * * Europe/Rome dst=literal"),
        [NoteReason::Skipped, NoteReason::Twice]
    );
    assert_eq!(kinds("30 4 * * * Europe/Rome"), []);
    assert_eq!(kinds("30 2 * 1 * Europe/Rome"), []);
    assert_eq!(kinds("* * * * * UTC"), []);
    let note = &cron("30 2 * * * Europe/Rome")
        .notes(time("2026-03-01T00:00:00Z"), time("2026-04-01T00:00:00Z"))[0];
    assert_eq!(note.at, time("2026-03-29T01:00:00Z"));
    assert_eq!(
        note.message,
        "2026-03-29 02:30 does not exist in Europe/Rome, whose clocks go from 2026-03-29 02:00 to \
         2026-03-29 03:00: what falls into the gap runs once, at 2026-03-29T01:00:00Z",
    );
}
