//! The operators' commands on jobs, and their output.

use crate::site::{Site, lives, patiently};
use serde_json::Value;

/// The output of a command, one object on each line.
fn json(site: &Site, args: &[&str]) -> Vec<Value> {
    let said = site.allora(&[args, &["--json", "--url", "sqlite:store.db"]].concat()).fine();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn allora(site: &Site, args: &[&str]) -> String {
    site.allora(&[&args[..1], &["--url", "sqlite:store.db"], &args[1..]].concat()).fine()
}

#[test]
fn lines_of_a_crontab_are_shown_paused_triggered_and_resumed() {
    let site = Site::new("@every 1s echo tick >> DIR/ticks\n@daily echo day >> DIR/days; exit 3\n");
    let daemon = site.start();
    patiently("both are in the store", || json(&site, &["list", "--all"]).len() == 2);
    assert!(allora(&site, &["list"]).ends_with("0 entries.\n"), "stored ones alone");
    let jobs = json(&site, &["list", "--all"]);
    let names: Vec<&str> = jobs.iter().map(|job| job["name"].as_str().unwrap()).collect();
    let (tick, day) = (names[0], names[1]);
    allora(&site, &["pause", tick, "-m", "for repairs"]);
    assert!(allora(&site, &["show", tick]).contains(": for repairs\n"));
    // The active run continues.
    patiently("it rests", || json(&site, &["show", tick])[0]["leases"] == Value::Array(vec![]));
    let before = site.lines("ticks");
    allora(&site, &["trigger", day, "--id", "mine"]);
    site.more_lines("days", 1);
    assert_eq!(site.lines("ticks"), before);
    let outcome = || json(&site, &["history", day, "-n", "1"])[0]["outcome"].clone();
    patiently("its failure is recorded", || outcome() == "failed");
    let past = &json(&site, &["history", day])[0];
    assert_eq!(
        (&past["occurrence"]["trigger"], &past["error"]),
        (&"mine".into(), &"exit status: 3".into())
    );
    assert!(past["started_at"].is_string() && past["ended_at"].is_string(), "{past:?}");
    assert_eq!((&past["is_final"], &past["reason"]), (&true.into(), &Value::Null));
    assert!(allora(&site, &["history", day]).contains("exit status: 3"));
    let nodes = json(&site, &["nodes"]);
    assert_eq!((nodes.len(), &nodes[0]["failed"]), (1, &1.into()), "{nodes:?}");
    allora(&site, &["resume", tick]);
    site.more_lines("ticks", 1);
    assert_eq!(daemon.stop(), 0);
    let all = json(&site, &["history"]);
    let cursor = format!("{}:{}", all[0]["fence"], all[0]["name"].as_str().unwrap());
    assert_eq!(json(&site, &["history", "--before", &cursor]), all[1..]);
}

#[test]
fn a_job_that_waits_for_a_far_time_starts_again_from_now() {
    let site = Site::new("");
    allora(&site, &["init"]);
    allora(&site, &["add", "job", "t", "0 9 * * *", "{}", "-a", "2099-01-01T00:00:00Z"]);
    let due = || json(&site, &["show", "job"])[0]["due_at"].as_str().unwrap().to_owned();
    assert_eq!(due(), "2099-01-01T00:00:00Z");
    allora(&site, &["reset", "job"]);
    assert!(*due() < *"2099" && due().ends_with("T09:00:00Z"), "{}", due());
    let missing = site.allora(&["reset", "nothing", "--url", "sqlite:store.db"]).refused(1);
    assert!(missing.contains("nothing"), "{missing}");
}

#[test]
fn a_stored_schedule_is_changed_in_parts() {
    let site = Site::new("");
    allora(&site, &["init"]);
    allora(
        &site,
        &["add", "job", "t", "0 9 * * *", "{\"a\": 1}", "-t", "Asia/Tokyo", "--max-runs", "7"],
    );
    let before = json(&site, &["show", "job"]).remove(0);
    let after = json(&site, &["modify", "job", "--delay", "90s"]).remove(0);
    for same in ["schedule", "zone", "data", "kind"] {
        assert_eq!(before[same], after[same]);
    }
    assert_eq!(before["next"]["scheduled_at"], after["next"]["scheduled_at"]);
    let definition = after["definition"].as_str().unwrap();
    assert!(definition.contains("delay 1m30s") && definition.contains("max-runs 7"));
    assert_ne!(before["due_at"], after["due_at"]);
    let after =
        json(&site, &["modify", "job", "--kind", "u", "--schedule", "0 10 * * *", "--data", "{}"]);
    assert_eq!((&after[0]["kind"], &after[0]["schedule"]), (&"u".into(), &"0 10 * * *".into()));
    let next = allora(&site, &["next", "job", "-n", "2"]);
    assert!(
        next.lines().count() == 2
            && next
                .lines()
                .all(|at| at.contains("T01:00:00Z  due at ") && at.ends_with("T01:01:30Z")),
        "{next}"
    );
}

#[test]
fn a_range_of_the_past_is_run_again() {
    let site = Site::new("");
    allora(&site, &["init"]);
    allora(&site, &["add", "job", "t", "0 * * * *", "{}"]);
    let range = ["--from", "2026-01-01T00:00:00Z", "--until", "2026-01-01T02:00:00Z"];
    let filled = allora(&site, &[&["backfill", "job"], &range[..]].concat());
    assert_eq!(filled, "2026-01-01T01:00:00Z\n2026-01-01T02:00:00Z\n");
    assert_eq!(allora(&site, &[&["backfill", "job"], &range[..]].concat()), filled);
    let said =
        ["backfill", "job", "--from", "2026-01-01T00:00:00Z", "--until", "9999-01-01T00:00:00Z"];
    let said = site.allora(&[&said[..], &["--url", "sqlite:store.db"]].concat()).refused(2);
    assert!(said.contains("is in the future"), "{said}");
}

#[test]
fn changes_are_listed_with_who_made_them_and_taken_back() {
    let site = Site::new("");
    let as_deploy = |args: &[&str]| {
        let mut command = crate::allora::command(args);
        command.current_dir(site.path("")).env("ALLORA_ACTOR", "deploy 7");
        let output = command.args(["--url", "sqlite:store.db"]).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    };
    allora(&site, &["init"]);
    let data = "{\"env\": {\"PASSWORD\": \"hush\"}}";
    as_deploy(&["add", "job", "t", "0 9 * * *", data]);
    allora(&site, &["modify", "job", "--schedule", "0 10 * * *"]);
    as_deploy(&["pause", "job", "-m", "for repairs"]);
    let changes = json(&site, &["changes", "job"]);
    let words: Vec<&str> = changes.iter().map(|it| it["action"].as_str().unwrap()).collect();
    assert_eq!(words, ["pause", "modify", "create"]);
    assert_eq!((&changes[0]["actor"], &changes[0]["via"]), (&"deploy 7".into(), &"command".into()));
    assert_eq!(changes[0]["after"]["paused"]["note"], "for repairs");
    assert!(!changes[2].to_string().contains("hush"), "{}", changes[2]);
    assert_eq!(json(&site, &["changes", "--by", "deploy 7", "-n", "1"]), changes[..1]);
    assert_eq!(json(&site, &["changes", "--by", "nobody"]), Vec::<Value>::new());
    let table = allora(&site, &["changes"]);
    for text in ["modify definition  ", "deploy 7  command  applied  ", "  for repairs\n"] {
        assert!(table.contains(text), "{text}: {table}");
    }
    let undo = |change: &Value| {
        let sequence = change["sequence"].to_string();
        let url = ["--url", "sqlite:store.db"];
        site.allora(&[&["undo", "job", &*sequence, "--json"], &url[..]].concat())
    };
    for change in &changes[..2] {
        assert!(undo(change).fine().contains(r#""change":"undone""#));
    }
    let state = json(&site, &["show", "job"]).remove(0);
    assert_eq!((&state["paused"], &state["schedule"]), (&Value::Null, &"0 9 * * *".into()));
    assert!(undo(&changes[2]).refused(1).contains("only pauses"));
    allora(&site, &["delete", "job"]);
    let deletion = json(&site, &["changes", "job", "-n", "1"]).remove(0);
    undo(&deletion).fine();
    assert_eq!(json(&site, &["show", "job"])[0]["next"], state["next"]);
}

#[test]
fn the_doctor_lists_the_checks_that_passed() {
    let site = Site::new("");
    allora(&site, &["init"]);
    let said = allora(&site, &["doctor"]);
    for what in ["store", "rights", "latency", "clock", "wake-ups"] {
        assert!(said.lines().any(|line| line.starts_with(&format!("ok  {what}"))), "{said}");
    }
    assert!(json(&site, &["list", "--all"]).is_empty(), "nothing is left of it");
}

#[test]
fn names_that_could_harm_a_terminal_are_shown_harmless() {
    let site = Site::new("");
    allora(&site, &["init"]);
    allora(&site, &["add", "--", "--help", "t", "@daily", "{\"a\": \"\\u001b[31m\"}"]);
    assert!(allora(&site, &["list"]).contains("--help  t  "));
    assert!(!allora(&site, &["show", "--", "--help"]).contains('\u{1b}'));
    let said =
        site.allora(&["add", "a\u{1b}[31mb", "t", "@daily", "{}", "--url", "sqlite:store.db"]);
    assert!(!said.refused(2).contains('\u{1b}'));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    use std::process::Stdio;
    let mut command = crate::allora::command(&["next", "@every 1s", "-n", "10000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn a_cancelled_command_is_ended_and_recorded() {
    let site = Site::new("@every 1s echo $$ >> DIR/begun; echo it waits; sleep 1000\n")
        .with(&["--lost-after", "6s"]);
    let daemon = site.start();
    site.more_lines("begun", 1);
    daemon.says("it waits");
    let name = json(&site, &["list", "--all"])[0]["name"].as_str().unwrap().to_owned();
    allora(&site, &["pause", &name]);
    let active = json(&site, &["show", &name])[0]["leases"].as_array().unwrap().len();
    let said = allora(&site, &["cancel", &name]);
    assert!(active >= 1 && said.contains("being cancelled"), "{active}: {said}");
    assert!(said.contains(&format!("{name:?}")), "{said}");
    patiently("the commands have ended", || !site.read("begun").lines().any(lives));
    let ended = || json(&site, &["history", &name]);
    patiently("they are recorded", || ended().iter().all(|past| past["outcome"] == "cancelled"));
    for past in ended() {
        assert_eq!((&past["reason"], &past["is_final"]), (&"operator".into(), &true.into()));
        assert_eq!(past["output"], "it waits");
    }
    let said = allora(&site, &["cancel", &name]);
    assert_eq!(said, format!("no run of {name:?} is active, and none waits\n"));
    assert_eq!(daemon.stop(), 0);
    let missing = site.allora(&["cancel", "nothing", "--url", "sqlite:store.db"]).refused(1);
    assert!(missing.contains("there is no job \"nothing\""), "{missing}");
}

#[test]
fn occurrences_are_left_out_and_a_trigger_is_withdrawn() {
    let site = Site::new("");
    allora(&site, &["init"]);
    allora(&site, &["add", "job", "t", "0 9 1 1 *", "{}"]);
    let coming = allora(&site, &["next", "job", "-n", "3"]);
    let coming: Vec<&str> = coming.lines().collect();
    let said = allora(&site, &["skip", "job", "-n", "2", "--note", "the mail server moves"]);
    let expected = format!(
        "left out: 2, the last of them that of {}; the next is that of {}\n",
        coming[1], coming[2]
    );
    assert_eq!(said, expected);
    let skipped = &json(&site, &["skip", "job"])[0];
    assert_eq!((&skipped["change"], &skipped["count"]), (&"skipped".into(), &1.into()));
    assert_eq!(skipped["last"], coming[2]);
    let past = &json(&site, &["history", "job"])[1];
    assert_eq!(
        (&past["outcome"], &past["reason"], &past["count"]),
        (&"skipped".into(), &"operator".into(), &2.into())
    );
    let table = allora(&site, &["history", "job", "--outcome", "skipped"]);
    assert!(table.contains(": the mail server moves"), "{table}");
    allora(&site, &["trigger", "job", "--id", "mine"]);
    assert_eq!(
        allora(&site, &["cancel", "job", "--trigger", "mine"]),
        "1 run of \"job\" is being cancelled\n"
    );
    assert_eq!(json(&site, &["history", "job"])[0]["occurrence"]["trigger"], "mine");
    let missing = site.allora(&["skip", "nothing", "--url", "sqlite:store.db"]).refused(1);
    assert!(missing.contains("there is no job \"nothing\""), "{missing}");
    site.allora(&["skip", "job", "-n", "0", "--url", "sqlite:store.db"]).refused(2);
}

#[test]
fn a_prefix_ends_at_a_word_and_a_deletion_of_many_is_confirmed() {
    let site = Site::new("");
    allora(&site, &["init"]);
    for name in ["acme7/mail", "acme7/report", "acme70/mail"] {
        allora(&site, &["add", name, "t", "@every 1h", "{}"]);
    }
    let refused =
        |args: &[&str]| site.allora(&[args, &["--url", "sqlite:store.db"]].concat()).refused(1);
    for change in [&["delete", "--name", "acme7", "--yes"][..], &["pause", "--name", "acme7"]] {
        let said = refused(change);
        assert!(said.contains("ends within a word of \"acme70/mail\""), "{said}");
    }
    let said = refused(&["delete", "--name", "acme7/"]);
    assert!(said.contains("this would delete 2 jobs, such as \"acme7/mail\""), "{said}");
    assert_eq!(json(&site, &["list", "--name", "acme7"]).len(), 3);
    assert!(json(&site, &["list", "--state", "paused"]).is_empty());
    let both = allora(&site, &["delete", "--name", "acme7*", "--dry-run"]);
    assert!(both.ends_with("3 jobs would be changed.\n"), "{both}");
    allora(&site, &["delete", "--name", "acme7/", "--yes"]);
    assert_eq!(json(&site, &["list"]).len(), 1);
}

#[test]
fn one_command_changes_all_schedules_that_options_select() {
    let site = Site::new("");
    allora(&site, &["init"]);
    let add = |name: &str, kind: &str, more: &[&str]| {
        let new = [&["add", name, kind, "@every 1h", "{}"], more].concat();
        allora(&site, &new);
    };
    add("acme/mail", "mail", &["--tag", "eu", "--tag", "gold", "--owner", "sales"]);
    add("acme/report", "report", &["--tag", "eu"]);
    add("beta/mail", "mail", &[]);
    let acme = ["--name", "acme/"];
    let dry = allora(&site, &[&["pause", "--dry-run"], &acme[..]].concat());
    assert_eq!(dry, "acme/mail\nacme/report\n2 jobs would be changed.\n");
    assert!(json(&site, &["list", "--state", "paused"]).is_empty());
    allora(&site, &[&["pause", "-m", "repairs"], &acme[..]].concat());
    assert_eq!(json(&site, &["list", "--state", "paused"]).len(), 2);
    let resumed = allora(&site, &["resume", "--tag", "gold"]);
    assert_eq!(resumed, "acme/mail\n1 job changed.\n");
    assert_eq!(json(&site, &["list", "--owner", "sales"]).len(), 1);
    for name in ["acme/mail", "acme/report"] {
        allora(&site, &["skip", name]);
    }
    let past = json(&site, &["history", "--owner", "sales"]);
    assert_eq!((past.len(), &past[0]["name"]), (1, &"acme/mail".into()));
    assert!(allora(&site, &["show", "acme/mail"]).contains("tags eu,gold"));
    allora(&site, &["trigger", "--kind", "mail", "--id", "now"]);
    assert_eq!(json(&site, &["show", "beta/mail"])[0]["head"]["trigger"], "now");
    let args = ["trigger", "--name", "", "--id", "now", "--url", "sqlite:store.db"];
    let again = site.allora(&args);
    assert!(again.err.contains("2 jobs had a trigger with this id before"), "{again:?}");
    assert_eq!((again.code, again.out.as_str()), (0, "acme/report\n1 job changed.\n"));
    allora(&site, &["delete", "--state", "paused", "--yes"]);
    assert_eq!(json(&site, &["list"]).len(), 2);
    let url = ["--url", "sqlite:store.db"];
    let none = site.allora(&[&["pause"], &url[..]].concat()).refused(2);
    assert!(none.contains("--name"), "{none}");
    let both =
        site.allora(&[&["delete", "beta/mail", "--kind", "mail"], &url[..]].concat()).refused(2);
    assert!(both.contains("cannot be used with"), "{both}");
}

#[test]
fn a_pause_of_one_job_or_of_all_ends_at_a_time() {
    let site = Site::new("");
    allora(&site, &["init"]);
    for name in ["a", "b", "c"] {
        allora(&site, &["add", name, "t", "@every 1h", "{}"]);
    }
    allora(&site, &["pause", "a", "--until", "2100-01-01T00:00:00Z", "-m", "moving"]);
    assert!(allora(&site, &["show", "a"]).contains(", until 2100-01-01T00:00:00Z: moving"));
    assert_eq!(json(&site, &["show", "a"])[0]["paused"]["until"], "2100-01-01T00:00:00Z");
    let why = site.allora(&["why", "a", "--url", "sqlite:store.db"]);
    assert!(why.out.contains("and is until 2100-01-01T00:00:00Z: moving"), "{}", why.out);
    allora(&site, &["pause", "b"]);
    let window = ["pause", "--all", "--until", "2099-01-01T00:00:00Z"];
    let dry = allora(&site, &[&window[..], &["--dry-run"]].concat());
    assert_eq!(dry, "c\n1 job would be changed.\n", "no pause is shortened");
    assert_eq!(allora(&site, &window), "c\n1 job changed.\n");
    assert_eq!(json(&site, &["list", "--state", "paused"]).len(), 3);
    let url = ["--url", "sqlite:store.db"];
    for jobs in ["a", "--all"] {
        let past = ["pause", jobs, "--until", "2020-01-01T00:00:00Z"];
        let past = site.allora(&[&past[..], &url[..]].concat()).refused(2);
        assert!(past.contains("give a later time"), "{past}");
    }
    let both = site.allora(&[&["pause", "a", "--all"], &url[..]].concat()).refused(2);
    assert!(both.contains("cannot be used with"), "{both}");
    assert_eq!(allora(&site, &["resume", "--all"]), "a\nb\nc\n3 jobs changed.\n");
}

#[test]
fn a_list_has_the_state_and_the_time_left_and_is_sorted() {
    let site = Site::new("");
    allora(&site, &["init"]);
    for (name, schedule, more) in [
        ("b", "@every 3h", &[][..]),
        ("c", "@every 5h", &[]),
        ("a", "0 15 * * *", &["-s", "2012-12-31T15:00:00Z"]),
        ("d", "30 15 * * *", &["-s", "2012-12-31T15:00:00Z"]),
    ] {
        allora(&site, &[&["add", name, "t", schedule, "{}"], more].concat());
    }
    allora(&site, &["pause", "c"]);
    let list = |more: &[&str]| allora(&site, &[&["list"], more].concat());
    let sorted = |more: &[&str]| -> String {
        let json = json(&site, &[&["list"], more].concat());
        json.iter().map(|job| job["name"].as_str().unwrap()).collect()
    };
    assert_eq!(sorted(&[]), "adbc", "due first");
    assert_eq!(sorted(&["--reverse"]), "cbda");
    assert_eq!(sorted(&["--sort", "name"]), "abcd");
    assert_eq!(sorted(&["--sort", "name", "-n", "2"]), "ab");
    assert_eq!(sorted(&["--sort", "name", "--reverse", "-n", "2"]), "dc");
    assert_eq!(sorted(&["--sort", "state"]), "cadb", "by urgency");
    assert_eq!(sorted(&["--sort", "next", "-n", "1"]), "a");
    let cells = |name: &str| -> Vec<String> {
        let list = list(&[]);
        let row = list.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        row.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
    };
    assert_eq!(cells("a")[2..4], ["overdue", ">99d ago"]);
    assert_eq!(cells("c")[2..4], ["paused", "-"]);
    let b = cells("b");
    assert_eq!(b[2], "waiting");
    assert!(b[3].starts_with("2h 5") || b[3] == "3h 0m", "{b:?}");
    assert_eq!(json(&site, &["list", "--name", "c"])[0]["state"], "paused");
}

/// The fields of an object in the schema of the guide.
fn fields(schema: &Value, object: &str) -> Vec<String> {
    let properties = schema["$defs"][object]["properties"].as_object().unwrap();
    properties.keys().cloned().collect()
}

#[test]
fn the_json_is_that_of_the_guide() {
    let schema: Value = serde_json::from_str(allora_core::JSON_SCHEMA).unwrap();
    let site = Site::new("@every 1s true\n");
    let daemon = site.start();
    patiently("it has run", || !json(&site, &["history", "-n", "1"]).is_empty());
    let described = ["schedule", "description", "zone", "is_orphaned"];
    let list = json(&site, &["list", "--all"]).remove(0);
    let name = list["name"].as_str().unwrap().to_owned();
    for (object, is, more) in [
        ("JobState", list, &[&described[..], &["state"]].concat()[..]),
        (
            "JobState",
            json(&site, &["show", &name]).remove(0),
            &[&described[..], &["line", "concurrency_key", "progress"]].concat(),
        ),
        (
            "HistoryEntry",
            json(&site, &["history", "-n", "1"]).remove(0),
            &["exit_status", "signal"],
        ),
        ("NodeInfo", json(&site, &["nodes"]).remove(0), &["state", "succeeded", "failed", "seen"]),
    ] {
        let mut said = fields(&schema, object);
        said.extend(more.iter().map(|field| (*field).to_owned()));
        said.sort();
        let is: Vec<String> = is.as_object().unwrap().keys().cloned().collect();
        assert_eq!(is, said, "{object}");
    }
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn what_changes_jobs_prints_an_object_for_each() {
    let site = Site::new("");
    allora(&site, &["init"]);
    for name in ["a", "b"] {
        allora(&site, &["add", name, "t", "@every 1h", "{}"]);
    }
    let change = |args: &[&str]| {
        let objects = json(&site, args);
        let of = |object: &Value| {
            assert_eq!((&object["error"], object["name"].is_string()), (&Value::Null, true));
            let dry = if object["is_dry_run"] == true { "?" } else { "" };
            format!(
                "{} {}{dry}",
                object["name"].as_str().unwrap(),
                object["change"].as_str().unwrap()
            )
        };
        objects.iter().map(of).collect::<Vec<_>>().join(", ")
    };
    for (args, is) in [
        (&["pause", "--name", "", "--dry-run"][..], "a paused?, b paused?"),
        (&["pause", "a"], "a paused"),
        (&["pause", "--name", ""], "b paused"),
        (&["resume", "a"], "a resumed"),
        (&["resume", "--name", ""], "b resumed"),
        (&["trigger", "a", "--id", "x"], "a triggered"),
        (&["rerun", "a"], "a rerun"),
        (&["rerun", "--name", ""], ""),
        (&["reset", "b"], "b reset"),
        (&["delete", "b"], "b deleted"),
    ] {
        assert_eq!(change(args), is, "{args:?}");
    }
    allora(&site, &["add", "b", "t", "@every 1h", "{}"]);
    let url = ["--json", "--url", "sqlite:store.db"];
    let many = site.allora(&[&["trigger", "--name", "", "--id", "x"], &url[..]].concat());
    let many: Vec<Value> =
        many.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |object: &Value| format!("{} {}", object["name"], object["change"]);
    let many: Vec<String> = many.iter().map(of).collect();
    assert_eq!(many, ["\"b\" \"triggered\"", "\"a\" \"triggered_before\""]);
    let again = site.allora(&[&["trigger", "a", "--id", "x"], &url[..]].concat());
    let again: Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!((&again["change"], &again["id"]), (&"triggered_before".into(), &"x".into()));
    assert!(again["scheduled_at"].is_string(), "{again}");
    let cancelled = json(&site, &["cancel", "a"]).remove(0);
    assert_eq!((&cancelled["change"], &cancelled["runs"]), (&"cancelled".into(), &1.into()));
    let missing = site.allora(&[&["pause", "nothing"], &url[..]].concat()).refused(1);
    assert!(missing.contains("nothing"), "{missing}");

    site.write("all", r#"[{"name": "a", "kind": "t", "schedule": "@every 2h"}, {"name": "c", "kind": "u", "schedule": "@daily"}]"#);
    let sync = json(&site, &["sync", "all", "--complete", "", "--dry-run"]);
    let of = |object: &Value| {
        format!("{} {} {}", object["name"], object["change"], object["is_dry_run"])
    };
    let mut words: Vec<String> = sync.iter().map(of).collect();
    words.sort();
    assert_eq!(
        words,
        ["\"a\" \"modified\" true", "\"b\" \"orphaned\" true", "\"c\" \"added\" true"]
    );
    let a = sync.iter().find(|object| object["name"] == "a").unwrap();
    let changed = &a["definition"];
    assert!(changed["before"].as_str().unwrap().contains("@every 1h"), "{a}");
    assert!(changed["after"].as_str().unwrap().contains("@every 2h"), "{a}");
    assert_eq!(a["kind"], Value::Null);
}

#[test]
fn a_trigger_that_is_waited_for_prints_the_entry_and_gc_what_it_removed() {
    let site =
        Site::new("ALLORA_NAME=rare\n0 0 1 1 * echo said; exit 7\n").with(&["--heartbeat", "1s"]);
    let daemon = site.start();
    let url = ["--json", "--url", "sqlite:store.db"];
    let allora = |args: &[&str]| site.allora(&[args, &url].concat());
    patiently("it is registered", || allora(&["show", "jobs:rare"]).code == 0);
    let said = allora(&["trigger", "jobs:rare", "--wait"]);
    let objects: Vec<Value> =
        said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((said.code, objects.len()), (7, 2), "{said:?}");
    assert_eq!((&objects[1]["exit_status"], &objects[1]["output"]), (&7.into(), &"said".into()));
    site.write("jobs", "ALLORA_NAME=other\n0 0 1 1 * true\n");
    let is_kept = |objects: &[Value]| {
        objects.len() == 1 && objects[0]["name"] == "jobs:rare" && objects[0]["change"] == "kept"
    };
    patiently("its orphan is young", || is_kept(&json(&site, &["gc"])));
    daemon.stop_well();
}
