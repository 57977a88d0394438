//! Named calendars: put, shown, used and moved to another store.

use crate::site::{Site, patiently};
use chrono::NaiveDate;
use serde_json::Value;

const URL: [&str; 2] = ["--url", "sqlite:store.db"];

fn site() -> Site {
    let site = Site::new("");
    site.allora(&[&["init"], &URL[..]].concat()).fine();
    site
}

fn allora(site: &Site, args: &[&str]) -> crate::allora::Observed {
    site.allora(&[args, &URL[..]].concat())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

const HOLIDAYS: &str = "# Germany\n2099-12-26 2099-12-25 # Christmas\n\n2100-01-01\n";

/// With a calendar, and a schedule that uses it.
fn with_holidays() -> Site {
    let site = site();
    site.write("holidays", HOLIDAYS);
    let said = allora(&site, &["calendar", "put", "holidays-de", "holidays"]).fine();
    assert_eq!(said, "holidays-de: 3 dates.\n");
    let add = ["add", "report", "t", "0 9 * * *", "{}", "-s", "2099-12-24T00:00:00Z"];
    allora(&site, &[&add[..], &["--except", "calendar:holidays-de"]].concat()).fine();
    site
}

#[test]
fn a_calendar_is_put_listed_shown_and_deleted() {
    let site = with_holidays();
    let dates = ["calendar", "put", "office", "--dates", "2026-12-24 UTC", "--dates", "2026-12-25"];
    let put = allora(&site, &[&dates[..], &["--json"]].concat()).fine();
    assert_eq!(json(&put), json(r#"{"name": "office", "dates": 2, "rules": 0, "replanned": []}"#));
    let list = allora(&site, &["calendar", "list"]).fine();
    assert_eq!(list, "name         size\nholidays-de  3 dates\noffice       2 dates\n");
    let list = allora(&site, &["calendar", "list", "--json"]).fine();
    assert_eq!(json(list.lines().next().unwrap())["name"], "holidays-de");
    let shown = allora(&site, &["calendar", "show", "holidays-de"]).fine();
    assert_eq!(shown, "2099-12-25\n2099-12-26\n2100-01-01\n");
    // `put` reads the output of `show`.
    site.write("again", &shown);
    allora(&site, &["calendar", "put", "copy", "again"]).fine();
    assert_eq!(allora(&site, &["calendar", "show", "copy"]).fine(), shown);
    let shown = allora(&site, &["calendar", "show", "holidays-de", "--json"]).fine();
    assert_eq!(json(&shown)["users"], json(r#"["report"]"#));
    let said = allora(&site, &["calendar", "delete", "holidays-de"]).refused(1);
    assert!(said.contains("is used by \"report\""), "{said}");
    allora(&site, &["calendar", "delete", "office"]).fine();
    let said = allora(&site, &["calendar", "show", "office"]).refused(1);
    assert!(said.contains("the calendar \"office\" is not in the store"), "{said}");
    // They are no jobs.
    let list = allora(&site, &["list", "--all"]).fine();
    assert!(!list.contains("calendar:copy") && list.ends_with("1 entry.\n"), "{list}");
    assert_eq!(allora(&site, &["names"]).fine(), "report\n");
    let bad = allora(&site, &["calendar", "put", "bad", "--dates", "2026-02-30"]).refused(2);
    assert!(bad.contains("--dates: ") && bad.contains("(line 1)"), "{bad}");
}

#[test]
fn a_business_day_is_shown_with_both_times() {
    let site = site();
    let dates = ["--dates", "2099-08-03"];
    allora(&site, &[&["calendar", "put", "italy"][..], &dates].concat()).fine();
    // 2099-08-01 is a Saturday, and the Monday a holiday.
    let rules = ["--except", "weekends", "--except", "calendar:italy", "--move", "next"];
    let add = ["add", "pay", "t", "0 9 1 8 *", "{}", "-s", "2099-07-01T00:00:00Z"];
    allora(&site, &[&add[..], &rules].concat()).fine();
    let after = ["--after", "2099-07-01T00:00:00Z"];
    let next = ["next", "pay", "-n", "1", "--explain"];
    assert_eq!(
        allora(&site, &[&next[..], &after].concat()).out,
        "2099-08-01T09:00:00Z  2099-08-01T09:00:00Z is moved to 2099-08-04T09:00:00Z, the next day \
         that is allowed: every Saturday and Sunday in UTC is excluded; due at 2099-08-04T09:00:00Z\n"
    );
    let phrase = "first business day of every month at 9:00; except calendar:italy";
    allora(&site, &["add", "phrase", "t", phrase, "{}", "-s", "2099-07-15T00:00:00Z"]).fine();
    let next = allora(&site, &["next", "phrase", "-n", "1"]).fine();
    assert_eq!(next, "2099-08-01T09:00:00Z  due at 2099-08-04T09:00:00Z\n");
    let said = allora(&site, &["calendar", "put", "italy", "--dates", "2099-08-04"]).fine();
    assert!(said.contains("pay") && said.contains("phrase"), "{said}");
    let next = allora(&site, &["next", "phrase", "-n", "1"]).fine();
    assert_eq!(next, "2099-08-01T09:00:00Z  due at 2099-08-03T09:00:00Z\n");
    let why = allora(&site, &["why", "phrase", "--at", "2099-08-01T09:00:00Z"]).fine();
    assert!(why.contains("is moved to 2099-08-03T09:00:00Z"), "{why}");
    let add = ["add", "no", "t", "0 9 1 * *", "{}", "--except", "SAT", "--move", "monday"];
    let said = allora(&site, &add).refused(2);
    assert!(said.contains("\"monday\" names no direction; write `move next`"), "{said}");
}

#[test]
fn a_schedule_says_which_calendar_excludes_what() {
    let site = with_holidays();
    let unknown = ["add", "other", "t", "@daily", "{}", "--except", "calendar:none"];
    let said = allora(&site, &unknown).refused(2);
    assert!(said.contains("the calendar \"none\" is not in the store"), "{said}");
    let next = allora(&site, &["next", "report", "-n", "2"]).fine();
    assert_eq!(next, "2099-12-24T09:00:00Z\n2099-12-27T09:00:00Z\n");
    let next = allora(&site, &["next", "report", "-n", "2", "--explain", "--json"]);
    let second = json(next.out.lines().nth(1).unwrap());
    let reason = second["reasons"][0].as_str().unwrap();
    assert!(reason.contains("(calendar \"holidays-de\")"), "{reason}");
    let after =
        ["next", "0 9 * * *; except calendar:holidays-de", "--after", "2099-12-24T12:00:00Z"];
    let next = allora(&site, &[&after[..], &["-n", "1"]].concat()).fine();
    assert_eq!(next, "2099-12-27T09:00:00Z\n");
    let why = allora(&site, &["why", "report", "--at", "2099-12-25T09:00:00Z"]).fine();
    assert!(
        why.starts_with("2099-12-25T09:00:00Z is left out: ")
            && why.contains("(calendar \"holidays-de\"); the next one after it is 2099-12-27"),
        "{why}"
    );
    // Without the calendar it is unreadable, and says so.
    let gone = allora(&site, &["delete", "allora:calendar:holidays-de", "--force"]);
    assert_eq!(gone.code, 0, "{gone:?}");
    let why = allora(&site, &["why", "report"]).fine();
    assert!(
        why.contains("cannot be read: the calendar \"holidays-de\" is not in the store"),
        "{why}"
    );
    let doctor = allora(&site, &["doctor"]);
    assert!(doctor.out.contains("BAD job-invalid"), "{doctor:?}");
    assert!(allora(&site, &["list", "--state", "unreadable"]).out.contains("report"));
    // The list of the same state for programs.
    let said = allora(&site, &["calendar", "put", "holidays-de", "--dates", "2100-01-01"]).fine();
    assert_eq!(said, "holidays-de: 1 date.\n");
    assert!(allora(&site, &["doctor"]).out.contains("none of them unreadable"));
}

#[test]
fn a_daemon_follows_a_calendar_that_changes() {
    let site = site();
    let put = |dates: &str| allora(&site, &["calendar", "put", "x", "--dates", dates]).fine();
    put("2000-01-01");
    let add = ["add", "job", "command", "@every 1s", r#"{"command": ["true"]}"#];
    allora(&site, &[&add[..], &["--except", "calendar:x UTC"]].concat()).fine();
    let started = || {
        let said = allora(&site, &["show", "job", "--json"]).fine();
        json(&said)["counters"]["started"].as_u64().unwrap()
    };
    let daemon = site.begin(&["--stored", "--heartbeat", "1s"]);
    patiently("it runs", || started() > 1);
    let said = allora(&site, &["show", "job", "--json"]).fine();
    let today =
        json(&said)["next"]["scheduled_at"].as_str().unwrap()[..10].parse::<NaiveDate>().unwrap();
    let days: Vec<String> = today.iter_days().take(3).map(|day| day.to_string()).collect();
    put(&days.join(" "));
    let history = || allora(&site, &["history", "job", "--json"]).out;
    patiently("the rest of the day is skipped", || history().contains(r#""reason":"calendar""#));
    let before = started();
    let said = put("2000-01-01");
    assert_eq!(said, "x: 1 date.\njob is planned anew.\n");
    patiently("it runs again", || started() > before);
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn calendars_move_with_the_schedules() {
    let site = with_holidays();
    let exported = allora(&site, &["export"]).fine();
    let lines: Vec<&str> = exported.lines().collect();
    assert_eq!((lines.len(), &json(lines[0])["calendar"]), (2, &"holidays-de".into()));
    site.write("all.jsonl", &exported);
    let other = ["--url", "sqlite:other.db"];
    site.allora(&[&["init"], &other[..]].concat()).fine();
    let import =
        |more: &[&str]| site.allora(&[&["import", "all.jsonl"], more, &other[..]].concat());
    assert_eq!(import(&["--dry-run"]).fine(), "2 readable, 0 rejected.\n");
    assert_eq!(import(&[]).fine(), "2 imported, 0 rejected.\n");
    let shown = site.allora(&[&["calendar", "show", "holidays-de"], &other[..]].concat()).fine();
    assert_eq!(shown.lines().count(), 3);
    assert_eq!(import(&["--skip-existing"]).fine(), "1 imported, 1 exist already, 0 rejected.\n");
    // Another one of the name stays.
    let put = ["calendar", "put", "holidays-de", "--dates", "2100-01-02"];
    site.allora(&[&put[..], &other[..]].concat()).fine();
    let refused = import(&[]);
    assert!(refused.err.contains("all.jsonl:1: the store has another calendar"), "{refused:?}");
    assert_eq!(import(&["--skip-existing"]).fine(), "0 imported, 2 exist already, 0 rejected.\n");
}
