//! Beside two other crates, where all should agree.

use super::{Dice, at, oracle::Expression};
use allora_schedule::{Cron, Schedule, Time, next_n};
use std::str::FromStr;

/// Croner answers for the day fields as Debian's cron does, except for `*/n` in them.
fn croner_agrees(text: &str) -> bool {
    let words: Vec<&str> = text.split(' ').collect();
    !words[2].starts_with("*/") && !words[4].starts_with("*/")
}

#[test]
fn croner_finds_the_same_instants_in_utc() {
    let mut dice = Dice(4);
    let mut compared = 0;
    while compared < 3_000 {
        let text = Expression::random(&mut dice).text;
        let (true, Ok(ours)) = (croner_agrees(&text), Cron::parse(&text)) else { continue };
        let Ok(theirs) = croner::Cron::from_str(&text) else { continue };
        let mut after = at(dice.within(0..=4_000_000_000));
        for _ in 0..4 {
            let Ok(expected) = theirs.find_next_occurrence(&after, false) else { break };
            assert_eq!(ours.next_at(after), Some(expected), "{text} after {after}");
            after = expected;
        }
        compared += 1;
    }
}

#[test]
fn croner_finds_the_same_instants_in_a_new_york_winter() {
    let mut dice = Dice(5);
    let mut compared = 0;
    let east = chrono::FixedOffset::west_opt(5 * 3600).unwrap();
    while compared < 1_000 {
        let text = Expression::random(&mut dice).text;
        let (true, Ok(ours)) = (croner_agrees(&text), Cron::parse(&text)) else { continue };
        let ours = ours.in_zone("America/New_York").unwrap();
        let theirs = croner::Cron::from_str(&text).unwrap();
        // Between 2 December and 28 February there is no change of the clock.
        let mut after = at(1_796_212_800 + dice.within(0..=80 * 86_400));
        for _ in 0..3 {
            let expected = theirs.find_next_occurrence(&after.with_timezone(&east), false);
            let Some(expected) = expected.ok().filter(|at| at.timestamp() < 1_803_790_800) else {
                break;
            };
            assert_eq!(ours.next_at(after), Some(expected.to_utc()), "{text} after {after}");
            after = expected.to_utc();
            compared += 1;
        }
    }
}

#[test]
fn the_cron_crate_finds_the_same_instants_where_its_dialect_is_ours() {
    let mut dice = Dice(6);
    let mut compared = 0;
    while compared < 2_000 {
        let text = Expression::random(&mut dice).text;
        let mut words: Vec<&str> = text.split(' ').collect();
        // It numbers weekdays from 1 and wants both day fields.
        words[4] = dice.choose(&["*", "MON-FRI", "SUN", "TUE,SAT"]);
        if words[4] != "*" && !words[2].starts_with('*') {
            continue;
        }
        let text = words.join(" ");
        let Ok(ours) = Cron::parse(&text) else { continue };
        let Ok(theirs) = cron::Schedule::from_str(&format!("0 {text}")) else { continue };
        let after = at(dice.within(0..=3_500_000_000));
        let expected: Vec<Time> = theirs.after(&after).take(3).collect();
        assert_eq!(next_n(&ours, after, expected.len()), expected, "{text} after {after}");
        compared += 1;
    }
}

#[test]
fn the_cron_crate_finds_the_same_instants_in_the_quartz_dialect() {
    let mut dice = Dice(9);
    let mut compared = 0;
    while compared < 2_000 {
        let text = Expression::random(&mut dice).text;
        let mut words: Vec<&str> = text.split(' ').collect();
        words[4] = dice.choose(&["?", "*", "2-6", "1", "7,MON", "2/3", "Tues-Saturday/2", "1-7/2"]);
        let second = dice.choose(&["0", "*/20", "5,59", "30-40/3"]);
        let year = dice.choose(&["", " *", " 2027", " 2028-2090/4", " 1971,2050-2099"]);
        let text = format!("{second} {}{year}", words.join(" "));
        let Ok(ours) = Cron::quartz(&text) else { continue };
        let theirs = cron::Schedule::from_str(&text).unwrap();
        let mut after = at(dice.within(0..=3_500_000_000));
        for _ in 0..3 {
            let Some(expected) = theirs.after(&after).next() else { break };
            assert_eq!(ours.next_at(after), Some(expected), "{text} after {after}");
            after = expected;
            compared += 1;
        }
    }
}
