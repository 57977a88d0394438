//! Every row that was observed elsewhere.

use super::{cron, time};
use allora_schedule::{Cron, Dst, Time, between, next_n};

#[test]
fn every_next_instant_is_that_of_debians_cron() {
    let rows = include_str!("../../golden/cron_next.tsv");
    let mut wrong = Vec::new();
    for row in rows.lines() {
        let columns: Vec<&str> = row.split('\t').collect();
        let [expression, zone, after, expected] = columns[..] else { panic!("{row}") };
        let schedule = cron(expression).in_zone(zone).unwrap();
        let expected: Vec<Time> = expected.split(',').map(time).collect();
        let found = next_n(&schedule, time(after), expected.len());
        if found != expected {
            wrong.push(format!("{expression} {zone} {after}:\n {found:?}\n {expected:?}"));
        }
    }
    assert!(rows.lines().count() > 600);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_literal_policy_finds_what_enumeration_found_around_changes_of_the_clock() {
    let rows = include_str!("../../golden/dst_literal_windows.jsonl");
    for row in rows.lines() {
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        let instant = |name: &str| Time::from_timestamp(row[name].as_i64().unwrap(), 0).unwrap();
        let schedule = cron(row["expr"].as_str().unwrap())
            .in_zone(row["tz"].as_str().unwrap())
            .unwrap()
            .dst(Dst::Literal);
        let until = instant("until");
        let found: Vec<i64> =
            between(&schedule, instant("after"), until).map(|at| at.timestamp()).collect();
        let expected: Vec<i64> = row["wall_clock_matches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|second| second.as_i64().unwrap())
            .collect();
        assert_eq!(found, expected, "{row}");
    }
    assert!(rows.lines().count() > 300);
}

#[test]
fn every_text_gets_its_verdict() {
    let rows = include_str!("../../golden/cron_input.tsv");
    for row in rows.lines().skip(1) {
        let mut columns = row.split('\t');
        let (text, verdict) = (unescaped(columns.next().unwrap()), columns.next().unwrap());
        let note = columns.next().unwrap();
        let found = match Cron::parse(&text) {
            Ok(cron) if cron.warnings().is_empty() => "ok".to_owned(),
            Ok(_) => "warn".to_owned(),
            Err(error) => {
                assert!(error.position() <= text.len() && !error.reason().is_empty(), "{note}");
                "err".to_owned()
            }
        };
        assert_eq!(found, verdict, "{text:?} ({note})");
    }
}

/// `\t`, `\n`, `\r`, `\0`, `\u{…}`.
fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (char, taken) = match rest.as_bytes()[0] {
            b't' => ('\t', 1),
            b'n' => ('\n', 1),
            b'r' => ('\r', 1),
            b'0' => ('\0', 1),
            _ => {
                let end = rest.find('}').unwrap();
                (char::from_u32(u32::from_str_radix(&rest[2..end], 16).unwrap()).unwrap(), end + 1)
            }
        };
        plain.push(char);
        rest = &rest[taken..];
    }
    plain + rest
}
