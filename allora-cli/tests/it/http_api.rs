//! The requests of the guide *HTTP API*, made with curl from top to bottom against a daemon.

use crate::{
    listen::address,
    site::{Site, patiently, skipped},
    stored::server,
};
use serde_json::Value;
use std::{collections::HashMap, env, fs, path::Path, process::Command};

/// The commands that begin with `curl`, each with its further lines.
fn requests(page: &str) -> Vec<String> {
    let blocks = page.split("```").skip(1).step_by(2);
    let lines = blocks.filter_map(|block| block.strip_prefix("sh\n")).flat_map(str::lines);
    let mut requests: Vec<String> = Vec::new();
    for line in lines {
        match requests.last_mut() {
            _ if line.starts_with("curl ") => requests.push(line.to_owned()),
            Some(last) if line.starts_with(' ') => last.push_str(&format!("\n{line}")),
            _ => {}
        }
    }
    requests
}

/// An account that makes the requests of the page.
struct Account {
    /// The variables of the page.
    variables: HashMap<&'static str, String>,
}

impl Account {
    fn set(&mut self, name: &'static str, value: impl ToString) {
        self.variables.insert(name, value.to_string());
    }

    /// The status and the body of the answer.
    fn ask(&self, request: &str) -> (u16, Value) {
        let script =
            format!("curl() {{ command curl -sS -w ' %{{http_code}}' \"$@\"; }}\n{request}");
        let mut shell = Command::new("bash");
        let output = shell.args(["-c", &script]).envs(&self.variables).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let (body, status) = said.rsplit_once(' ').unwrap_or_else(|| panic!("{request}: {errors}"));
        (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    }

    /// The body of an answer with this status.
    #[track_caller]
    fn fine(&self, status: u16, request: &str) -> Value {
        let (said, body) = self.ask(request);
        assert_eq!(said, status, "{request}: {body}");
        body
    }
}

#[test]
fn an_account_creates_changes_runs_deletes_and_restores_its_jobs() {
    if !["curl", "bash"]
        .iter()
        .all(|program| Command::new(program).arg("--version").output().is_ok())
    {
        assert!(env::var_os("CI").is_none(), "curl is not installed");
        return skipped("there is no curl or no bash");
    }
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/guide/http_api.md");
    let (hook, came) = server(0);
    let page = fs::read_to_string(guide).unwrap().replace("https://acme.example/report", &hook);
    let requests = requests(&page);
    let site = Site::new("");
    let (line, token) =
        site.token(&["acme", "--scope", "admin", "--prefix", "acme/", "--max-jobs", "3"]);
    site.write("tokens", &line);
    let tokens = site.path("tokens").to_str().unwrap().to_owned();
    let api = ["--stored", "--listen", "127.0.0.1:0", "--api", "--allow-actions"];
    let site = site.with(&[&api[..], &["--tokens", &tokens]].concat());
    let daemon = site.start();
    let mut account = Account { variables: HashMap::new() };
    account.set("api", format!("http://{}/v1", address(&daemon.log()).unwrap()));
    account.set("auth", format!("Authorization: Bearer {token}"));
    account.set("json", "Content-Type: application/json");
    let other = |name: &str| {
        let body = format!(r#"{{"name": "{name}", "kind": "http", "schedule": "@yearly"}}"#);
        format!("curl \"$api/jobs\" -H \"$auth\" -H \"$json\" -d '{body}'")
    };
    patiently("the API answers", || account.ask("curl \"$api/summary\" -H \"$auth\"").0 == 200);
    account.fine(201, &other("acme/a"));
    let page = account.fine(200, "curl \"$api/jobs?limit=1\" -H \"$auth\"");
    assert_eq!(page["next"], Value::Null);
    account.fine(201, &other("acme/b"));
    let page = account.fine(200, "curl \"$api/jobs?limit=1\" -H \"$auth\"");
    account.set("next", page["next"].as_str().unwrap());
    let mut answers = Vec::new();
    for request in &requests {
        let (status, body) = account.ask(request);
        assert!((200..300).contains(&status), "{request}: {status} {body}");
        if request.contains("/job/trigger") {
            // The repetition runs nothing; a deletion would forget the id.
            let deliveries = came.lock().unwrap().len();
            assert!(deliveries >= 1);
            assert_eq!(account.fine(200, request)["status"], "ended");
            assert_eq!(came.lock().unwrap().len(), deliveries);
        }
        if let Some(sequence) = body["sequence"].as_i64() {
            account.set("sequence", sequence);
        }
        answers.push((request.as_str(), status, body));
    }
    let answer = |part: &str| {
        let found = answers.iter().find(|(request, ..)| request.contains(part));
        found.map(|(_, status, body)| (*status, body)).unwrap()
    };
    // Created, counted by account, changed, and run at once.
    assert_eq!(answer("/jobs\" ").0, 201);
    assert_eq!(answer("/summary").1["jobs"]["number"], 3);
    assert_eq!(answer("PATCH").1["schedule"], "0 8 * * *");
    let (status, run) = answer("/job/trigger");
    assert_eq!((status, &run["outcome"]["outcome"]), (200, &Value::from("succeeded")), "{run}");
    // Deleted, listed as such, and taken back.
    assert_eq!(answer("/deleted").1["items"][0]["name"], "acme/report");
    account.fine(200, "curl \"$api/job?name=acme/report\" -H \"$auth\"");
    // The account is full, and the jobs of others do not exist.
    assert_eq!(account.fine(409, &other("acme/c"))["type"], "urn:allora:limit");
    account.fine(422, &other("beta/a"));
    account.fine(404, "curl \"$api/job?name=beta/a\" -H \"$auth\"");
    daemon.stop_well();
}
