//! Any bytes: an answer, never a panic; and whatever is accepted can be asked.

use super::{Dice, at, time};
use allora_schedule::{AnySchedule, Cron, Schedule, Time, next_n, parse};

const SEEDS: [&str; 16] = [
    "*/15 9-17 * * MON-FRI",
    "0 0 L-3,15W JAN,FEB 5L,MON#2 Europe/Rome dst=literal",
    "H H(1-4) * * * +05:45",
    "@every 1h30m phase 5m",
    "@every 1d from 2026-01-01T00:00:00.000Z",
    "@at 2026-01-01T00:00:00+01:00",
    "@quartz 0 0/5 14,18,3-9,22 ? JAN,MAR,SEP MON-FRI 2002-2080",
    "59 59 23 31 12 * America/New_York",
    "@daily UTC",
    "0 22-6/2 1,2,3 NOV-FEB 0-7/7",
    "0 0 29 2 */7",
    "5/15 * ? * ?",
    "every tuesday, thursday and saturday at 9:30 and 17:30 Europe/Rome",
    "last weekday of every month at 9pm",
    "every 5 minutes",
    "@quartz 0/10 0 9 L-2 * ? 2026-2030/2 Europe/Rome",
];
const PIECES: [&str; 32] = [
    "*",
    "/",
    "-",
    ",",
    "#",
    "?",
    "L",
    "W",
    "H",
    "(",
    ")",
    " ",
    "\t",
    "0",
    "7",
    "31",
    "59",
    "60",
    "4294967296",
    "MON",
    "jan",
    "@",
    "@every",
    "dst=",
    "+14:00",
    "UTC",
    "\n",
    "\0",
    "é",
    "\u{202e}",
    "99999999999999999999",
    "Etc/GMT+5",
];

fn mutated(dice: &mut Dice) -> String {
    let mut text: Vec<char> = dice.choose(&SEEDS).chars().collect();
    for _ in 0..dice.within(0..=6) {
        let place = dice.within(0..=text.len() as i64) as usize;
        match dice.within(1..=4) {
            1 if place < text.len() => _ = text.remove(place),
            2 if place < text.len() => {
                text[place] = char::from_u32(dice.within(0..=0x2ff) as u32).unwrap();
            }
            3 => {
                let end = dice.within(place as i64..=text.len() as i64) as usize;
                let part = text[place..end].to_vec();
                text.splice(place..place, part);
            }
            _ => _ = text.splice(place..place, dice.choose(&PIECES).chars()),
        }
    }
    text.into_iter().collect()
}

/// Whatever it is: an answer, in order, and a text that is read back.
fn ask(schedule: &AnySchedule, after: Time) {
    let found = next_n(schedule, after, 3);
    assert!(found.iter().all(|at| *at > after) && found.is_sorted(), "{schedule}");
    let until = after + chrono::TimeDelta::days(30);
    assert!(schedule.latest_at(after, until).is_some_and(|at| at >= after && at <= until));
    let again = parse(&schedule.to_string());
    assert_eq!(again.as_ref(), Ok(schedule));
}

#[test]
fn mutated_texts_are_read_or_refused() {
    let mut dice = Dice(7);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..40_000 {
        let text = mutated(&mut dice);
        match AnySchedule::for_job("job", &text) {
            Ok(schedule) => {
                read += 1;
                ask(&schedule, at(dice.within(0..=4_000_000_000)));
            }
            Err(error) => {
                refused += 1;
                assert!(error.position() <= text.len(), "{text:?}: {error}");
                assert!(!error.to_string().chars().any(char::is_control), "{text:?}: {error}");
            }
        }
    }
    assert!(read > 5_000 && refused > 5_000, "{read} read, {refused} refused");
}

#[test]
fn random_bytes_are_refused() {
    let mut dice = Dice(8);
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..dice.within(0..=40)).map(|_| dice.roll() as u8).collect();
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(schedule) = parse(&text) {
            ask(&schedule, time("2026-01-01T00:00:00Z"));
        }
        assert!(
            Cron::parse(&text.repeat(100)).is_err() || bytes.is_empty() || text.trim().is_empty()
        );
    }
}

#[test]
fn the_ends_of_time_are_instants_like_others() {
    for text in SEEDS {
        let schedule = AnySchedule::for_job("job", text).unwrap();
        let ends = [Time::MIN_UTC, at(-1), at(253_402_300_799), Time::MAX_UTC];
        for (from, until) in ends.iter().flat_map(|from| ends.map(|until| (*from, until))) {
            let next = schedule.next_at(from);
            assert!(next.is_none_or(|next| next > from), "{text} {from}");
            assert!(schedule.latest_at(from, until).is_none_or(|latest| latest >= from));
            _ = schedule.count(
                from,
                until.min(from.checked_add_signed(chrono::TimeDelta::days(365)).unwrap_or(until)),
            );
            _ = schedule.notes(from, until);
        }
    }
    for text in ["* * * * * *", "0 0 0 29 2 ? 2004", "0 0 0 1 1 ? 2199 Asia/Tokyo"] {
        let quartz = Cron::quartz(text).unwrap();
        assert!(quartz.next_at(Time::MIN_UTC).is_none_or(|next| next > Time::MIN_UTC), "{text}");
        assert_eq!(quartz.next_at(Time::MAX_UTC), None, "{text}");
    }
}
