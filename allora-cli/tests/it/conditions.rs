//! Conditions where an operator looks for them: status, doctor, why and the pages of the daemon.

use crate::site::{Site, patiently};
use serde_json::Value;
use sqlx::{Connection, SqliteConnection};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

const URL: [&str; 2] = ["--url", "sqlite:store.db"];

fn allora(site: &Site, args: &[&str]) -> crate::allora::Observed {
    site.allora(&[args, &URL].concat())
}

fn json(site: &Site, args: &[&str]) -> Vec<Value> {
    let said = allora(site, &[args, &["--json"]].concat());
    said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The text of a check of `doctor`, if it is bad.
fn bad(site: &Site, check: &str) -> Option<String> {
    let checks = json(site, &["doctor"]).into_iter();
    let mut bad = checks.filter(|one| one["check"] == check && one["state"] == "bad");
    bad.next().map(|one| one["text"].as_str().unwrap().to_owned())
}

fn states(site: &Site) -> Vec<(String, bool)> {
    let jobs = json(site, &["list", "--all"]).into_iter();
    jobs.map(|job| (job["name"].as_str().unwrap().into(), job["is_orphaned"] == true)).collect()
}

/// A page of the daemon.
fn page(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn until_bad(site: &Site, check: &str, says: &str) {
    let mut said = None;
    patiently(says, || {
        said = bad(site, check);
        said.as_ref().is_some_and(|said| said.contains(says))
    });
}

const GOOD: &str = "ALLORA_NAME=one\n@every 1s echo one >> DIR/one\n";

#[test]
fn a_bad_crontab_is_a_condition_until_it_is_corrected_and_its_jobs_are_no_orphans() {
    let address = free_address();
    let both = format!("{GOOD}ALLORA_NAME=two\n0 4 * * * echo two\n");
    let site = Site::new(&both).with(&["--heartbeat", "1s", "--listen", &address]);
    let daemon = site.start();
    let is_fine = || bad(&site, "condition").is_none();
    let names = || states(&site).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    patiently("both are registered", || names() == ["jobs:one", "jobs:two"]);
    assert!(is_fine());
    assert!(page(&address, "/metrics").contains("\nallora_crontab_errors 0\n"));
    daemon.stop_well();

    // A start runs the good lines.
    site.write("jobs", &both.replace("0 4", "0 24"));
    let daemon = site.start();
    site.more_lines("one", 1);
    let says = "jobs:4:3: hour: \"24\"";
    until_bad(&site, "condition", says);
    let status = allora(&site, &["status"]).fine();
    assert!(status.contains(says), "{status}");
    let ready = page(&address, "/readyz");
    assert!(
        ready.starts_with("HTTP/1.1 200 ") && ready.contains(": crontab jobs:4:3: "),
        "{ready}"
    );
    assert!(ready.contains("what runs is 1 line without an error"), "{ready}");
    let metrics = page(&address, "/metrics");
    assert!(metrics.contains("\nallora_crontab_errors 1\n"), "{metrics}");
    assert!(metrics.contains("\nallora_conditions{code=\"program-report\"} 1\n"), "{metrics}");
    assert!(metrics.contains("\nallora_healthy 0\n"), "{metrics}");
    let orphans = [("jobs:one".to_owned(), false), ("jobs:two".to_owned(), false)];
    assert_eq!(states(&site), orphans);
    let why = allora(&site, &["why", "jobs:two"]).fine();
    assert!(why.contains("none of them runs it now: ") && why.contains(says), "{why}");

    // A reload keeps what runs, and a correction ends the condition.
    site.write("jobs", "ALLORA_NAME=one\n@every 1s echo other >> DIR/other\n0 24 * * * x\n");
    daemon.signal("-HUP");
    daemon.says("of the version before");
    site.more_lines("one", 2);
    assert_eq!(site.lines("other"), 0);
    site.write("jobs", &both);
    daemon.signal("-HUP");
    patiently("the condition is over", is_fine);
    assert!(page(&address, "/metrics").contains("\nallora_crontab_errors 0\n"));
    daemon.stop_well();
}

/// Changes columns of the state of a job, as time or another clock would have.
fn alter(site: &Site, job: &str, set: &str) {
    let sql = format!(
        "UPDATE allora_state SET {set} WHERE id = (SELECT id FROM allora_job WHERE CAST(name AS TEXT) = '{job}')"
    );
    let url = format!("sqlite:{}", site.path("store.db").display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
        let done = sqlx::Executor::execute(&mut connection, statement).await.unwrap();
        assert_eq!(done.rows_affected(), 1, "{job}");
        connection.close().await.unwrap();
    });
}

#[test]
fn a_job_that_waits_for_its_key_is_not_overdue_and_why_names_the_holder() {
    let site = Site::new(
        "ALLORA_CONCURRENCY_KEY=tapes\nALLORA_NAME=holder\nALLORA_MAX_RUNS=1\n\
         @every 1s echo $$ >> DIR/begun; exec sleep 1000\n\
         ALLORA_MAX_RUNS=\nALLORA_NAME=waiter\n0 4 * * * echo x\n",
    );
    let daemon = site.start();
    site.more_lines("begun", 1);
    let registered = || allora(&site, &["show", "jobs:waiter"]).code == 0;
    patiently("the waiter is registered", registered);
    // Its lease lasts for another half minute.
    daemon.kill();
    let ago = "(CAST(strftime('%s') AS INTEGER) - 3600) * 1000";
    let due = ["index_at", "wake_at", "cursor_scheduled_at", "cursor_due_at"];
    alter(&site, "jobs:waiter", &due.map(|column| format!("{column} = {ago}")).join(", "));
    let page = json(&site, &["status"]).remove(0);
    assert_eq!(
        (&page["overdue"], &page["due"], &page["key_waits"]),
        (&0.into(), &0.into(), &1.into()),
        "{page}"
    );
    let listed = json(&site, &["list", "--all"]);
    let waiter = listed.iter().find(|job| job["name"] == "jobs:waiter").unwrap();
    assert_eq!(waiter["state"], "key_wait");
    let why = allora(&site, &["why", "jobs:waiter"]).fine();
    let says = "waits for the concurrency key tapes, held by jobs:holder on ";
    assert!(why.contains(says) && !why.contains("doctor"), "{why}");
    let doctor = allora(&site, &["doctor"]).out;
    let says = "1 waiting for a busy concurrency key (jobs:waiter for tapes)";
    assert!(doctor.contains(says) && !doctor.contains("BAD job-overdue"), "{doctor}");
    let pid = site.read("begun");
    crate::site::send("-KILL", pid.trim().parse().unwrap());
}

#[test]
fn why_tells_a_run_on_a_live_node_from_one_on_a_dead_node_and_counts_no_healthy_run_as_failed() {
    let site = Site::new(
        "ALLORA_DELIVERY=at-least-once\nALLORA_LEASE=60s\nALLORA_NAME=long\n\
         @every 1s echo $$ >> DIR/begun; exec sleep 1000\n",
    )
    .with(&["--heartbeat", "1s"]);
    let first = site.begin(&["--node-name", "first"]);
    site.more_lines("begun", 1);
    let why = || allora(&site, &["why", "jobs:long"]).fine();
    patiently("it runs", || why().contains("it runs now: "));
    assert!(why().contains("its schedule continues when the run ends"), "{}", why());
    assert!(!why().contains("failed"), "{}", why());
    let second = site.begin(&["--node-name", "second"]);
    second.says("has reached its store");
    first.kill();
    let says = "which is dead or does not reach the store; its lease ends at ";
    patiently("its node is dead", || why().contains(says));
    assert!(
        why().contains("then another node runs it again") && !why().contains("it runs now"),
        "{}",
        why()
    );
    drop(second);
    for pid in site.read("begun").lines() {
        crate::site::send("-KILL", pid.parse().unwrap());
    }
}

#[test]
fn a_line_whose_label_no_node_has_is_not_orphaned_and_why_names_the_label() {
    let site = Site::new("ALLORA_LABEL=gpu\nALLORA_NAME=train\n0 4 * * * echo x\n")
        .with(&["--heartbeat", "1s"]);
    let gpu = site.begin(&["--node-label", "gpu"]);
    patiently("it is registered", || allora(&site, &["show", "jobs:train"]).code == 0);
    gpu.stop_well();
    let plain = site.start();
    until_bad(&site, "label-unmatched", "\"gpu\"");
    assert_eq!(states(&site), [("jobs:train".to_owned(), false)]);
    let why = allora(&site, &["why", "jobs:train"]).fine();
    assert!(why.contains("need the label gpu") && why.contains("--node-label gpu"), "{why}");
    assert!(!why.contains("gc"), "{why}");
    assert_eq!(bad(&site, "jobs-orphaned"), None);
    plain.stop_well();
}

#[test]
fn a_job_that_waits_for_a_time_of_a_clock_that_was_ahead_is_named() {
    let site = Site::new("ALLORA_NAME=hourly\n0 * * * * echo x\n");
    let daemon = site.start();
    patiently("it is registered", || allora(&site, &["show", "jobs:hourly"]).code == 0);
    daemon.stop_well();
    assert_eq!(bad(&site, "clock-was-ahead"), None);
    let year = 31_536_000_000_i64;
    let times = ["index_at", "wake_at", "cursor_scheduled_at", "cursor_due_at"];
    let times = times.map(|column| format!("{column} = {column} + {year}")).join(", ");
    alter(&site, "jobs:hourly", &format!("fence = fence + {year} * 1000, {times}"));
    let says = bad(&site, "clock-was-ahead").unwrap();
    assert!(says.contains("jobs:hourly") && says.contains("allora reset"), "{says}");
    let why = allora(&site, &["why", "jobs:hourly"]).fine();
    assert!(why.contains("the store's clock was ahead when its record was written"), "{why}");
    assert!(!why.contains("scheduled at"), "{why}");
    assert!(why.contains("`allora reset jobs:hourly`"), "{why}");
}

#[test]
fn daemons_that_disagree_and_daemons_of_one_name_are_conditions_with_both_texts() {
    let site = Site::new(GOOD).with(&["--heartbeat", "1s", "--node-name", "twin"]);
    let one = site.start();
    let other = site.begin(&["--at-least-once"]);
    other.says("has reached its store");
    let mut conditions = String::new();
    patiently("doctor names both", || {
        let doctor = allora(&site, &["doctor"]).out;
        conditions = doctor.lines().filter(|line| line.starts_with("BAD condition")).collect();
        conditions.contains("two live nodes have the name \"twin\": twin-")
            && conditions.contains("live nodes differ in the options of lines: ")
    });
    for part in ["the defaults on twin-", "at-least-once 30", "crontab jobs: 1 line ("] {
        assert!(conditions.contains(part), "{part}: {conditions}");
    }
    let page = json(&site, &["status"]).remove(0);
    assert!(page["disagreements"].as_array().unwrap().len() >= 2, "{page}");
    other.stop_well();
    patiently("they are over", || bad(&site, "condition").is_none());
    // One that was killed and started again is no twin of itself.
    one.kill();
    let again = site.start();
    assert_eq!(bad(&site, "condition"), None);
    again.stop_well();
}

#[test]
fn run_status_and_doctor_name_the_store_and_mark_a_local_file() {
    let site = Site::new(GOOD);
    let daemon = site.start();
    let url = format!("sqlite:{}", site.path("store.db").display());
    daemon.says(&format!("store={url}"));
    let store = |args: &[&str]| {
        let mut command = crate::allora::command(args);
        command.current_dir(site.path("")).env("STATE_DIRECTORY", site.path(""));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let status = store(&["status", "--url", &url]);
    assert!(status.contains(&format!("\nstore      {url}\n")), "{status}");
    std::os::unix::fs::symlink(site.path("store.db"), site.path("allora.db")).unwrap();
    for command in ["status", "doctor"] {
        let said = store(&[command]);
        assert!(said.contains("allora.db (a file of this machine, since "), "{said}");
    }
    daemon.stop_well();
}
