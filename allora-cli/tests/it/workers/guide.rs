//! The requests of the guide *Workers in any language*, made with curl, and its answers.

use super::with_key;
use crate::{
    listen::address,
    site::{Site, patiently, skipped},
};
use serde_json::{Value, json};
use std::{env, fs, path::Path, process::Command};

/// The token of a run in the page.
const TOKEN: &str = "q83v…";

/// The definition of `ask` on the page, and each of its requests with the answer below it.
fn conversation(page: &str) -> (String, Vec<(String, Value)>) {
    let mut blocks = page.split("```console\n").filter_map(|block| block.split("```").next());
    let block = blocks.find(|block| block.starts_with("$ ask()")).unwrap();
    let mut parts = block.trim_start_matches("$ ").split("\n$ ");
    let definition = parts.next().unwrap().to_owned();
    let asked = parts.map(|part| {
        let (request, answer) = part.split_once('\n').unwrap();
        // The answer to a claim is abridged, so it is no JSON.
        (request.to_owned(), serde_json::from_str(answer).unwrap_or_default())
    });
    (definition, asked.collect())
}

#[test]
fn the_requests_of_the_guide_on_workers_are_answered_as_it_says() {
    let curl = Command::new("bash").args(["-c", "curl --help all | grep -q -- --json"]).status();
    if !curl.is_ok_and(|status| status.success()) {
        assert!(env::var_os("CI").is_none(), "curl with --json is not installed");
        return skipped("there is no curl with --json");
    }
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/guide/workers.md");
    let (definition, asked) = conversation(&fs::read_to_string(guide).unwrap());
    let site = with_key(Site::new("")).with(&["--listen", "127.0.0.1:0", "--tokens", "tokens"]);
    let (line, token) = site.token(&["web", "--scope", "work"]);
    site.write("tokens", &line);
    let daemon = site.start();
    let address = address(&daemon.log()).unwrap();
    daemon.says("has reached its store");
    for name in ["a", "b", "c"] {
        let job = ["add", name, "report", "@every 1s", r#"{"to": "ann"}"#, "--lease", "30s"];
        let said = site.allora(&[&job[..], &["--url", &site.args[1]]].concat());
        assert_eq!(said.code, 0, "{said:?}");
    }
    let ask = |request: &str| -> Value {
        let definition = definition.replace("127.0.0.1:9117", &address);
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("{definition}\n{request}")]).env("TOKEN", &token);
        serde_json::from_slice(&shell.output().unwrap().stdout).unwrap_or_default()
    };
    let mut runs: Vec<Value> = Vec::new();
    patiently("three runs are claimed", || {
        let claim = asked[0].0.replace("4f1c", &runs.len().to_string());
        runs.extend(ask(&claim)["runs"].as_array().cloned().unwrap_or_default());
        runs.len() >= 3
    });
    assert_eq!(runs[0]["data"], json!({ "to": "ann" }));
    let mut ended = 0;
    for (request, answer) in &asked[1..] {
        // A heartbeat ends nothing, so the next request may have the same run.
        let token = runs[ended]["token"].as_str().unwrap();
        let said = ask(&request.replace(TOKEN, token));
        let expected = answer.to_string().replace(TOKEN, token);
        assert_eq!(said.to_string(), expected, "{request}");
        ended += usize::from(!request.contains("heartbeat"));
    }
    assert_eq!(ended, 3);
    daemon.stop_well();
}
