//! `allora next`.

use crate::allora::allora;

#[test]
fn the_next_instants_are_one_a_line_in_utc() {
    let line = "30 2 * * *";
    let args = ["next", line, "--zone", "America/New_York", "--after", "2026-03-07T12:00:00Z"];
    let said = allora(&[&args[..], &["--count", "3"]].concat()).fine();
    assert_eq!(said, "2026-03-08T07:00:00Z\n2026-03-09T06:30:00Z\n2026-03-10T06:30:00Z\n");
}

#[test]
fn the_policy_for_changes_of_the_clock_can_be_chosen() {
    let args =
        ["next", "30 2 * * * America/New_York", "--after", "2026-03-07T12:00:00Z", "-n", "1"];
    for (dst, first) in
        [("debian", "2026-03-08T07:00:00Z\n"), ("literal", "2026-03-09T06:30:00Z\n")]
    {
        assert_eq!(allora(&[&args[..], &["--dst", dst]].concat()).fine(), first);
    }
    let literal = "30 2 * * * America/New_York dst=literal";
    let said = allora(&["next", literal, "--after", "2026-03-07T12:00:00Z", "-n", "1"]).fine();
    assert_eq!(said, "2026-03-09T06:30:00Z\n", "the text's own policy is kept");
}

#[test]
fn reasons_are_given_when_asked_for() {
    let args = ["next", "30 2 * * *", "--zone", "America/New_York", "-n", "2", "--explain"];
    let said = allora(&[&args[..], &["--after", "2026-03-07T12:00:00Z"]].concat());
    assert_eq!(said.err, "note: every day at 2:30 America/New_York\n");
    let said = said.out;
    let (first, second) = said.split_once('\n').unwrap();
    assert!(first.starts_with("2026-03-08T07:00:00Z  2026-03-08 02:30 does not exist"), "{said}");
    assert_eq!(second, "2026-03-09T06:30:00Z\n");
}

#[test]
fn a_phrase_is_a_schedule_and_a_schedule_is_described_in_words() {
    let args = ["next", "every monday at 9am Europe/Rome", "--after", "2026-01-01T00:00:00Z"];
    let said = allora(&[&args[..], &["-n", "1", "--explain"]].concat());
    assert_eq!((said.code, said.out.as_str()), (0, "2026-01-05T08:00:00Z\n"));
    assert_eq!(said.err, "note: every Monday at 9:00 Europe/Rome\n");
    let said = allora(&["next", "every mondays at 9"]).refused(2);
    assert!(said.contains("write `every monday at 9:00`"), "{said}");
}

#[test]
fn programs_get_json() {
    let args = ["next", "@every 1500ms", "--after", "0", "-n", "2", "--json"];
    let said = allora(&args).fine();
    let at = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["scheduled_at"].clone()
    };
    let at: Vec<_> = said.lines().map(at).collect();
    assert_eq!(at, ["1970-01-01T00:00:01.500Z", "1970-01-01T00:00:03Z"]);
}

#[test]
fn a_hashed_value_needs_a_name_and_stays_the_same() {
    let named = ["next", "H 4 * * *", "--name", "invoices", "--after", "0", "-n", "1"];
    assert_eq!(allora(&named).fine(), allora(&named).fine());
    let said = allora(&["next", "H 4 * * *"]).refused(2);
    assert!(said.contains("H"), "{said}");
}

#[test]
fn a_legal_but_unlikely_expression_has_a_warning() {
    let said = allora(&["next", "*/90 * * * *", "--after", "0", "-n", "1"]);
    assert_eq!((said.code, said.out.as_str()), (0, "1970-01-01T01:00:00Z\n"));
    assert!(said.err.starts_with("warning: "), "{said:?}");
    let said = allora(&["next", "@at 2020-01-01T00:00:00Z", "--after", "2021-01-01T00:00:00Z"]);
    assert_eq!((said.code, said.out.as_str()), (0, ""));
    assert_eq!(said.err, "note: the schedule has no occurrence after 2021-01-01T00:00:00Z\n");
}

#[test]
fn bad_input_is_one_line_that_says_where() {
    for (args, code, says) in [
        (&["next", "61 * * * *"][..], 2, "minute, column 1: \"61\""),
        (&["next", "0 0 30 2 *"], 2, "day"),
        (&["next", "nowhere", "--url", "sqlite:none.db"], 1, "`nowhere` is one word"),
        (&["next", "* * * * *", "--zone", "Mars/Olympus"], 2, "--zone: time zone"),
        (
            &["next", "@every 1h", "--zone", "Europe/Rome"],
            2,
            "only cron expressions and recurrences have a zone",
        ),
        (&["next", "* * * * *", "--after", "tomorrow"], 2, "--after"),
        (&["next", "* * * * *", "--count", "0"], 2, "--count"),
        (&["next", "* * * * *", "--dst", "x"], 2, "--dst"),
        (&["next"], 2, "<SCHEDULE>"),
        (&["next", "* * * * *", "--cuont", "1"], 2, "--cuont"),
        (&["nxet"], 2, "nxet"),
        (&[], 2, "--help"),
    ] {
        let said = allora(args).refused(code);
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    assert!(allora(&["--version"]).fine().starts_with("allora "));
    for command in ["--help", "next --help", "run --help"] {
        let args: Vec<&str> = command.split(' ').collect();
        assert!(allora(&args).fine().contains("Usage: allora"));
    }
}

#[test]
fn times_are_shown_in_the_zone_and_up_to_an_instant_and_for_all_lines_of_a_crontab() {
    let after = ["--after", "2026-03-27T12:00:00Z"];
    let next = |args: &[&str]| crate::allora::allora(&[&["next"], args, &after].concat()).fine();
    let local = next(&["30 4 * * *", "--zone", "Europe/Rome", "--local", "-n", "2"]);
    assert_eq!(local, "2026-03-28T04:30:00+01:00 CET\n2026-03-29T04:30:00+02:00 CEST\n");
    let until = next(&["0 0 * * *", "--until", "2026-03-29T00:00:00Z"]);
    assert_eq!(until, "2026-03-28T00:00:00Z\n2026-03-29T00:00:00Z\n");
    let site = crate::site::Site::new(
        "ALLORA_NAME=day\n@daily a\nALLORA_NAME=hour\n0 */12 * * * b\n@reboot c\n",
    );
    let crontab = ["next", "--crontab", "jobs", "--zone", "UTC", "-n", "4"];
    let lines = site.allora(&[&crontab, &after[..]].concat()).fine();
    assert_eq!(
        lines,
        "2026-03-28T00:00:00Z  jobs:day\n2026-03-28T00:00:00Z  jobs:hour\n\
         2026-03-28T12:00:00Z  jobs:hour\n2026-03-29T00:00:00Z  jobs:day\n"
    );
    site.write(
        "more",
        "ALLORA_NAME=past\n@at 2020-01-01T00:00:00Z d\nALLORA_NAME=boot\n@reboot e\n",
    );
    let each = ["next", "--crontab", "jobs", "--crontab", "more", "--zone", "UTC"];
    let rows = site.allora(&[&each, &after[..]].concat()).fine();
    let rows: Vec<&str> = rows.lines().collect();
    let times = ["2026-03-28T00:00:00Z  jobs:day", "2026-03-28T00:00:00Z  jobs:hour"];
    assert_eq!(rows[..2], times);
    assert!(rows[2].starts_with("@reboot               jobs:c-"), "{rows:?}");
    let none = ["never                 more:past", "@reboot               more:boot"];
    assert_eq!(rows[3..], none);
    let json = site.allora(&[&each, &after[..], &["--json"]].concat()).fine();
    assert_eq!(json.matches("\"scheduled_at\":null").count(), 3, "{json}");
}

#[test]
fn an_interval_goes_on_from_its_own_phase_with_its_delay() {
    let site = crate::site::Site::new("");
    let url = ["--url", "sqlite:store.db"];
    let allora = |args: &[&str]| site.allora(&[args, &url].concat()).fine();
    allora(&["init"]);
    allora(&["add", "job", "t", "@every 7h", "{}", "-s", "2099-01-01T01:23:45Z", "-d", "90"]);
    let next = allora(&["next", "job", "-n", "2", "--json"]);
    let next: Vec<serde_json::Value> =
        next.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first: chrono::DateTime<chrono::Utc> =
        next[0]["scheduled_at"].as_str().unwrap().parse().unwrap();
    let second: chrono::DateTime<chrono::Utc> =
        next[1]["scheduled_at"].as_str().unwrap().parse().unwrap();
    let due: chrono::DateTime<chrono::Utc> = next[1]["due_at"].as_str().unwrap().parse().unwrap();
    let stored = allora(&["show", "job", "--json"]);
    assert!(stored.contains(next[0]["scheduled_at"].as_str().unwrap()), "{stored}");
    assert_eq!(((second - first).num_hours(), (due - second).num_seconds()), (7, 90));
    // Before and after its next occurrence, the times are whole periods away from that.
    for (after, expected) in [
        ("2099-01-08T00:00:00Z", "2099-01-08T01:23:45Z  due at 2099-01-08T01:25:15Z\n"),
        ("2098-12-31T18:00:00Z", "2099-01-01T01:23:45Z  due at 2099-01-01T01:25:15Z\n"),
    ] {
        let next = allora(&["next", "job", "-n", "1", "--after", after]);
        assert_eq!(next, expected);
    }
    let until = ["next", "job", "--until", "2050-01-01T00:00:00Z"];
    let none = site.allora(&[&until[..], &url].concat());
    assert!(none.out.is_empty() && none.err.contains("up to 2050-01-01T00:00:00Z"), "{none:?}");
}
