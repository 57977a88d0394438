//! Which names are zones.

use super::cron;
use allora_schedule::{Cron, tz_version, zone_name};

#[test]
fn every_name_of_the_database_is_taken_in_any_case() {
    let names: Vec<String> =
        jiff::tz::TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect();
    assert!(names.len() > 500);
    for name in names {
        if ["Factory", "Etc/Unknown", "localtime", "posixrules"].contains(&name.as_str()) {
            continue;
        }
        assert_eq!(cron("@daily").in_zone(&name).unwrap().zone(), name);
        let lower = cron("@daily").in_zone(&name.to_lowercase()).unwrap();
        assert_eq!(lower.zone(), name);
        assert_eq!(cron(&format!("0 0 * * * {name}")), lower);
    }
}

#[test]
fn names_that_differ_from_host_to_host_are_refused_by_name() {
    for name in [
        "",
        " UTC",
        "UTC ",
        "UTC\n",
        "\n",
        "Z",
        "z",
        "JST",
        "JST-9",
        "CET-1CEST,M3.5.0,M10.5.0/3",
        "GMT+1",
        "gmt-3",
        "UTC+1",
        "UTC+01:00",
        "Tokyo",
        "Europe",
        "Europe/",
        "/Europe/Rome",
        "../etc/passwd",
        "Europe/../Europe/Rome",
        "/etc/localtime",
        "UTC\0",
        "\0",
        "right/UTC",
        "posix/UTC",
        "tzdata.zi",
        "leapseconds",
        "zone.tab",
        "localtime",
        "LOCALTIME",
        "posixrules",
        "Factory",
        "Etc/Unknown",
        "Local",
        "Europe/Röm",
        "Europe\\Rome",
        "+1",
        "+01",
        "+0100",
        "+1:00",
        "+18:01",
        "-1Κ-x",
        "-18:01",
        "+19:00",
        "+01:60",
        "01:00",
        "+01:00:00",
        "++1:00",
        "+é:00",
        "+٠١:00",
    ] {
        let error = cron("@daily").in_zone(name).expect_err(name);
        assert!(error.to_string().contains("; "), "no remedy: {error}");
    }
    assert!(cron("@daily").in_zone("GMT+5").unwrap_err().to_string().contains("Etc/GMT+5"));
    assert!(cron("@daily").in_zone(&"A".repeat(1000)).is_err());
}

#[test]
fn an_unknown_zone_gets_the_nearest_one_as_a_remedy() {
    let remedy = |name: &str| zone_name(name).expect_err(name).advice().to_owned();
    for (name, near) in [
        ("Europe/Pari", "Europe/Paris"),
        ("europe/pariss", "Europe/Paris"),
        ("Erope/Rome", "Europe/Rome"),
        ("/Europe/Rome", "Europe/Rome"),
        ("Rome", "Europe/Rome"),
        ("tokyo", "Asia/Tokyo"),
        ("New York", "America/New_York"),
        ("newyork", "America/New_York"),
        ("America/NewYork", "America/New_York"),
        ("America/Los-Angeles", "America/Los_Angeles"),
        ("Amercia/Sao_Paulo", "America/Sao_Paulo"),
    ] {
        let expected = format!("write {near}, or another IANA name, UTC, or +02:00");
        assert_eq!(remedy(name), expected, "{name}");
    }
    for name in ["Mars/Olympus", "IST", "Middle_Earth/Shire", &"x".repeat(60)] {
        assert!(remedy(name).starts_with("write a name such as"), "{name}");
    }
    let error = cron_error("0 9 * * * Europe/Pari");
    assert_eq!(
        error,
        "time zone, column 11: \"Europe/Pari\" is not an IANA time zone; write Europe/Paris, or \
         another IANA name, UTC, or +02:00"
    );
}

fn cron_error(text: &str) -> String {
    Cron::parse(text).unwrap_err().to_string()
}

#[test]
fn offsets_count_to_eighteen_hours() {
    for name in ["+18:00", "-18:00", "+05:45", "-00:30"] {
        assert_eq!(Cron::parse(&format!("@daily {name}")).unwrap().zone(), name);
    }
    assert_eq!(cron("@daily").in_zone("-00:00").unwrap().zone(), "UTC");
}

#[test]
fn the_database_says_its_version() {
    let version = tz_version().unwrap();
    assert!(version >= "2024a" && version.len() <= 8, "{version}");
}
