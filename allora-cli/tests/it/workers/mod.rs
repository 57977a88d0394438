//! `allora run --workers`: the option, and workers in other languages by the clients in `examples/clients`.

mod clients;
#[cfg(feature = "redis")]
mod faults;
mod generated;
mod guide;

use crate::{
    allora::command,
    listen::{address, get, send},
    site::{Site, skipped},
};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A language that has a client.
#[derive(Clone, Copy, Debug)]
enum Language {
    Python,
    Ruby,
}

impl Language {
    /// The command of a worker or an editor in this language; `None`, with a line that says so, where the language is not
    /// installed.
    fn command(self, what: &str, gateways: &[u16]) -> Option<Command> {
        let (program, end, folder) = match self {
            Self::Python => ("python3", "py", "python"),
            Self::Ruby => ("ruby", "rb", "ruby"),
        };
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            assert!(std::env::var_os("CI").is_none(), "{program} is not installed");
            skipped(&format!("{program} is not installed"));
            return None;
        }
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let urls: Vec<String> =
            gateways.iter().map(|port| format!("http://127.0.0.1:{port}")).collect();
        let mut command = Command::new(program);
        command.arg(here.join("tests/it/workers").join(format!("recorder.{end}")));
        command.arg(here.join("../examples/clients").join(folder)).arg(what).arg(urls.join(","));
        command.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
        Some(command)
    }
}

/// A worker in a process of its own, which is killed when it is dropped.
struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    /// It takes at most so many runs of the kind `work` at a time.
    fn start(
        language: Language,
        gateways: &[u16],
        max: usize,
        log: PathBuf,
        token: Option<&str>,
    ) -> Option<Self> {
        let mut command = language.command("work", gateways)?;
        command.args(["work", &max.to_string()]).arg(&log);
        command.envs(token.map(|token| ("TOKEN", token)));
        command.stdout(Stdio::null());
        Some(Self { child: command.spawn().unwrap(), log })
    }

    fn has(&self, job: &str, what: &str) -> bool {
        let lines = lines(&self.log);
        lines.iter().any(|line| line["job"] == job && line["what"] == what)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole lines that a worker has written.
fn lines(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Makes the key of the gateways of this site.
fn with_key(site: Site) -> Site {
    let made = command(&["token", "key"]).output().unwrap();
    let path = site.path("workers-key");
    fs::write(&path, made.stdout).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    site.with(&["--workers", "--workers-key", "workers-key"])
}

fn post(address: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let head = format!(
        "POST /v1{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let answer = send(address, (head + &body).as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn a_daemon_gives_runs_to_workers_and_runs_its_lines_as_before() {
    let site = with_key(Site::new("@every 1s echo >> DIR/ticks\n")).with(&[
        "--listen",
        "127.0.0.1:0",
        "--stored",
    ]);
    let daemon = site.start();
    let address = address(&daemon.log()).unwrap();
    daemon.says("the API is below http://");
    let data = r#"{"command": ["touch", "touched"], "folder": "DIR"}"#;
    let data = data.replace("DIR", site.path("").to_str().unwrap());
    let url = ["--url", &site.args[1]];
    site.allora(&[&["add", "own", "command", "@every 1s", &data], &url[..]].concat()).fine();
    // No node handles the kind yet, which is said.
    let far = ["add", "far", "report", "@every 1s", "{}"];
    assert_eq!(site.allora(&[&far, &url[..]].concat()).code, 0);
    let ask = json!({ "worker": "w", "kinds": ["rep*"], "claim_id": "1", "wait_ms": 30_000 });
    let (status, answer) = post(&address, "/claims", &ask);
    assert_eq!((status, &answer["runs"][0]["name"]), (200, &json!("far")), "{answer}");
    let end = json!({ "token": answer["runs"][0]["token"], "output": "done" });
    assert_eq!(post(&address, "/claim/complete", &end), (200, json!({ "outcome": "succeeded" })));
    // A kind that the daemon runs itself is not given away.
    let own = json!({ "worker": "w", "kinds": ["command"], "claim_id": "2" });
    let (status, answer) = post(&address, "/claims", &own);
    assert_eq!((status, &answer["field"]), (422, &json!("kinds")), "{answer}");
    site.more_lines("ticks", 2);
    crate::site::patiently("its own kind has run", || site.path("touched").exists());
    // No pages, and no changes: those need --console and --allow-actions.
    assert!(get(&address, "/jobs").starts_with("HTTP/1.1 4"));
    assert_eq!(post(&address, "/job/trigger?name=far", &json!({})).0, 403);
    daemon.stop_well();
}

#[test]
fn without_workers_the_api_has_no_work() {
    let site = Site::new("").with(&["--listen", "127.0.0.1:0", "--api"]);
    let daemon = site.start();
    let ask = json!({ "worker": "w", "kinds": ["a"], "claim_id": "1" });
    let (status, answer) = post(&address(&daemon.log()).unwrap(), "/claims", &ask);
    assert!(status == 501 && answer["remedy"].to_string().contains("--workers"), "{answer}");
    daemon.stop_well();
}

#[test]
fn more_requests_wait_for_work_than_pages_are_made_at_a_time() {
    let site = with_key(Site::new("")).with(&["--listen", "127.0.0.1:0", "--console"]);
    let daemon = site.start();
    let address = address(&daemon.log()).unwrap();
    let ask = |id: usize| {
        let id = id.to_string();
        json!({ "worker": "w", "kinds": ["a"], "claim_id": id, "wait_ms": 2_000 })
    };
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let (address, ask) = (&address, &ask);
        let one = |id| scope.spawn(move || post(address, "/claims", &ask(id)).0);
        let waiting: Vec<_> = (0..100).map(one).collect();
        waiting.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|status| *status == 204), "{answers:?}");
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 "));
    daemon.stop_well();
}

#[test]
fn a_key_that_others_can_read_or_that_is_short_is_refused() {
    let site = Site::new("");
    let args = ["--listen", "127.0.0.1:0", "--workers", "--workers-key", "key"];
    let refused = |says: &str| {
        let args = [&["run", "jobs"], &args[..]].concat();
        let said = site.allora(&args).refused(2);
        assert!(said.contains("--workers-key key: ") && said.contains(says), "{said}");
    };
    refused("No such file");
    fs::write(site.path("key"), "short").unwrap();
    fs::set_permissions(site.path("key"), fs::Permissions::from_mode(0o640)).unwrap();
    refused("chmod 600 key");
    fs::set_permissions(site.path("key"), fs::Permissions::from_mode(0o600)).unwrap();
    refused("allora token key");
}

#[test]
fn without_a_key_the_log_says_what_is_refused() {
    let site = Site::new("").with(&["--listen", "127.0.0.1:0", "--workers"]);
    let daemon = site.start();
    daemon.says("without --workers-key");
    daemon.stop_well();
}
