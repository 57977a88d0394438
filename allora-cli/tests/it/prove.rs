//! `allora prove`, on a store of its own.

use crate::{
    allora::{allora, allora_in, command, said},
    site::patiently,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use std::{fs, path::Path, process::Stdio};

/// The names of the tables in a database.
fn tables(file: &Path) -> Vec<String> {
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
        let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
        sqlx::query_scalar(names).fetch_all(&pool).await.unwrap()
    })
}

#[test]
fn a_store_holds_while_workers_die_and_nothing_of_the_trial_stays() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let url = format!("sqlite:{}", file.display());
    allora(&["init", "--url", &url]).fine();
    allora(&["add", "mine", "mail", "@daily", "{}", "--url", &url]).fine();
    let before = tables(&file);
    let page = folder.path().join("report.html").display().to_string();
    let said = allora(&[
        "prove",
        "--url",
        &url,
        "--minutes",
        "0.3",
        "--rate",
        "14",
        "--seed",
        "1",
        "--without-cases",
        "--json",
        "--report",
        &page,
    ]);
    assert_eq!(said.code, 0, "{said:?}");
    let verdict: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&verdict["twice"], &verdict["lost"]), (&0.into(), &0.into()), "{verdict:#}");
    assert!(verdict["due"].as_u64() > Some(100), "{verdict:#}");
    assert!(verdict["processes"].as_u64() > Some(4), "{verdict:#}");
    assert!(verdict["faults"][0]["what"].as_str().unwrap().contains("is killed"), "{verdict:#}");
    let report = fs::read_to_string(&page).unwrap();
    assert!(report.contains("Nothing ran twice, and nothing was lost."), "{report}");
    assert!(report.contains("<svg") && report.contains("is killed"), "{report}");
    assert_eq!(tables(&file), before);
    assert!(allora(&["list", "--url", &url]).fine().contains("mine"));
}

#[test]
fn what_cannot_be_proven_is_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    for (args, says) in [
        (&["--prefix", "mine"] as &[&str], "leave out --prefix"),
        (&["--url", "postgres://u:hush@db.example/d"], "on another machine: add --yes"),
        (&["--url", "redis://u:hush@db.example"], "on another machine: add --yes"),
        (&["--url", "sqlite:missing/store.db"], "missing/store.db"),
        (&["--url", "oracle://u:hush@localhost/d"], "begins with `oracle:`"),
        (&["--report", "missing/report.html"], "cannot write missing/report.html"),
    ] {
        let said = allora_in(folder.path(), &[&["prove"], args].concat());
        let complaint = said.err.lines().last().unwrap_or_default().to_owned();
        assert!(complaint.starts_with("error: ") && complaint.contains(says), "{args:?}: {said:?}");
        assert!(!said.err.contains("hush"), "{args:?}: {said:?}");
        assert_eq!(said.out, "");
    }
    let usage = allora(&["prove", "--minutes", "0"]);
    assert!(usage.err.contains("write minutes from 0.3 to 360"), "{usage:?}");
}

#[test]
fn a_store_that_cannot_be_written_is_said_to_be_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let url = format!("sqlite:{}?mode=ro", file.display());
    allora(&["init", "--url", &format!("sqlite:{}", file.display())]).fine();
    let before = tables(&file);
    let said = allora(&["prove", "--url", &url, "--minutes", "0.3"]);
    let complaint = said.err.lines().last().unwrap_or_default().to_owned();
    assert!(said.code != 0 && complaint.starts_with("error: "), "{said:?}");
    assert_eq!((said.err.matches("error: ").count(), tables(&file)), (1, before), "{said:?}");
}

#[test]
fn an_interrupted_trial_removes_what_it_has_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let url = format!("sqlite:{}", file.display());
    allora(&["init", "--url", &url]).fine();
    let before = tables(&file);
    // In the cases, and in the campaign.
    for more in [&[] as &[&str], &["--without-cases"]] {
        let mut trial = command(&[&["prove", "--url", &url], more].concat());
        let trial = trial.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let trial = trial.spawn().unwrap();
        patiently("a scratch store is made", || tables(&file) != before);
        kill(Pid::from_raw(trial.id().try_into().unwrap()), Signal::SIGINT).unwrap();
        let said = said(&trial.wait_with_output().unwrap());
        let complaint = said.err.lines().last().unwrap_or_default().to_owned();
        assert!(said.code == 1 && complaint.contains("interrupted before its end"), "{said:?}");
        assert_eq!(tables(&file), before);
    }
}
