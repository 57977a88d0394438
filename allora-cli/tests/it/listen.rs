//! The pages for probes and metrics.

use crate::site::{Site, patiently};
use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    time::Duration,
};

/// The address that a daemon has said that it listens on.
pub(crate) fn address(log: &str) -> Option<String> {
    let (_, after) = log.split_once("listening for /healthz, /readyz and /metrics address=")?;
    let (address, _) = after.split_once('\n')?;
    Some(address.to_owned())
}

/// Sends these bytes; answers with what comes until the end.
pub(crate) fn send(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // The daemon may close with bytes unread.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

pub(crate) fn get(address: &str, path: &str) -> String {
    send(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
}

/// The daemon's table has its metrics, with their types, and no other; the guide's has the library's.
#[track_caller]
fn are_documented(page: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = |file: &str| -> BTreeSet<String> {
        let text = fs::read_to_string(here.join(file)).unwrap();
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `allora_"));
        let rows = rows.filter_map(|row| {
            let (name, rest) = row.split_once("` | ")?;
            Some(format!("allora_{name} {}", rest.split(' ').next()?))
        });
        rows.collect()
    };
    let own = table("docs/from-crontab.md");
    let library = table("../src/guide/monitoring.md");
    assert!(own.len() >= 5 && library.len() >= 10 && own.is_disjoint(&library));
    let shown: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(str::to_owned).collect();
    assert!(own.is_subset(&shown), "not on the page: {:?}", own.difference(&shown));
    let unknown: Vec<&String> =
        shown.iter().filter(|name| !own.contains(*name) && !library.contains(*name)).collect();
    assert!(unknown.is_empty(), "in no table: {unknown:?}");
}

#[test]
fn a_daemon_answers_probes_and_shows_its_counters() {
    let site = Site::new("@every 1s exit 3\n").with(&[
        "--listen",
        "127.0.0.1:0",
        "--on-failure",
        "exit 1",
    ]);
    let daemon = site.start();
    let address = address(&daemon.log()).unwrap();
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    patiently("it is ready", || get(&address, "/readyz").starts_with("HTTP/1.1 200 OK\r\n"));
    let failed = || {
        let page = get(&address, "/metrics");
        let is_failed = |line: &&str| {
            line.starts_with("allora_occurrences_total{job=\"jobs:exit")
                && line.contains("outcome=\"failed\"")
        };
        let value = page.lines().find(is_failed)?.rsplit_once(' ')?.1.parse::<u64>();
        value.ok()
    };
    patiently("two runs are counted", || failed() >= Some(2));
    let metrics = get(&address, "/metrics");
    for line in ["allora_jobs 1", "allora_store_reached 1", "allora_healthy 1"] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    assert!(metrics.contains("allora_run_duration_seconds_bucket{job=\"jobs:exit"), "{metrics}");
    are_documented(&metrics);
    let version = env!("CARGO_PKG_VERSION");
    for begins in [
        &*format!("allora_build_info{{version=\"{version}\"}} 1"),
        "allora_crontab_loads_total{result=\"good\"} 0",
        "allora_crontab_loads_total{result=\"bad\"} 0",
        "allora_alerts_total{outcome=\"sent\"} 0",
        "allora_runs_lapsed_total{outcome=\"lost\"} 0",
        "allora_claims_failed_total{reason=\"rejected\"} 0",
    ] {
        assert!(metrics.lines().any(|line| line == begins), "{begins}: {metrics}");
    }
    let counts = |line: &str| get(&address, "/metrics").lines().any(|found| found == line);
    let dead = metrics.lines().find(|line| line.starts_with("allora_dead_letters_total{"));
    assert!(dead.is_some_and(|line| line.ends_with(" 0")), "{dead:?}");
    patiently("alerts fail", || !counts("allora_alerts_total{outcome=\"failed\"} 0"));
    site.write("jobs", "@every 1s exit 3\n61 * * * * never\n");
    daemon.signal("-HUP");
    patiently("the edit is refused", || counts("allora_crontab_errors 1"));
    assert!(!counts("allora_crontab_loads_total{result=\"bad\"} 0"));
    // Slow and bad clients delay no other client.
    let slow: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(&address).unwrap()).collect();
    assert!(get(&address, "/healthz").contains("200 OK"));
    drop(slow);
    let large = [b"GET / HTTP/1.1\r\nA: ".as_slice(), &[b'x'; 16 * 1024]].concat();
    let refused = send(&address, &large);
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 431 "), "{refused}");
    assert!(send(&address, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(get(&address, "/metrics").contains("200 OK"));
    daemon.stop_well();
}

#[test]
fn half_open_connections_keep_nobody_from_an_answer() {
    let site = Site::new("@daily true\n").with(&["--listen", "127.0.0.1:0"]);
    let daemon = site.start();
    let address = address(&daemon.log()).unwrap();
    let half_open = |_| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\n").unwrap();
        stream
    };
    let open: Vec<TcpStream> = (0..200).map(half_open).collect();
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    // The newest ones have time left for the rest of their heads: nobody has waited for that.
    let mut newest = open.last().unwrap();
    newest.write_all(b"Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    newest.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    daemon.stop_well();
}

#[test]
fn the_console_is_for_browsers_on_this_machine() {
    let site = Site::new("@daily true\n").with(&["--listen", "127.0.0.1:0", "--console"]);
    let daemon = site.start();
    let address = address(&daemon.log()).unwrap();
    daemon.says(&format!("the console is at http://{address}/"));
    let ask = |path: &str, host: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        send(&address, head.as_bytes())
    };
    patiently("the line is in the store", || ask("/jobs", &address).contains("jobs:true"));
    for host in [&*address, "localhost:9117"] {
        let page = ask("/jobs", host);
        assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("jobs:true"), "{page}");
    }
    assert!(ask("/nodes", &address).contains("This node"));
    let foreign = ask("/jobs", "evil.example");
    assert!(foreign.starts_with("HTTP/1.1 421 ") && !foreign.contains("jobs:true"), "{foreign}");
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 "), "a probe has any name");
    daemon.stop_well();
}

#[test]
fn without_the_console_there_are_the_probes_alone() {
    let site = Site::new("@daily true\n").with(&["--listen", "0.0.0.0:0"]);
    let daemon = site.start();
    let address = address(&daemon.log()).unwrap().replace("0.0.0.0", "127.0.0.1");
    for path in ["/healthz", "/metrics"] {
        assert!(get(&address, path).starts_with("HTTP/1.1 200 "), "{path}");
    }
    let refused = get(&address, "/jobs");
    assert!(refused.starts_with("HTTP/1.1 403 ") && refused.contains("--console"), "{refused}");
    assert!(!daemon.log().contains("the console is at"));
    daemon.stop_well();
    for (more, says) in [
        (&["--listen", "0.0.0.0:0", "--console"][..], "without access tokens"),
        (
            &["--listen", "127.0.0.1:0", "--tokens", "tokens"],
            "--tokens is an option of the console",
        ),
        (
            &["--listen", "127.0.0.1:0", "--console", "--tokens", "none"],
            "--tokens none: No such file",
        ),
    ] {
        let args = [&["run", "jobs", "--url", "sqlite:store.db"], more].concat();
        let refused = site.allora(&args).refused(2);
        assert!(refused.contains(says), "{refused}");
    }
}

#[test]
fn with_tokens_the_console_is_for_those_who_have_one_and_the_probes_are_for_all() {
    let site = Site::new("@daily true\n");
    let (ann, ann_token) = site.token(&["ann"]);
    let (ben, ben_token) = site.token(&["ben", "--scope", "run"]);
    site.write("tokens", &ann);
    let path = site.path("tokens").to_str().unwrap().to_owned();
    let options = ["--listen", "0.0.0.0:0", "--console", "--tokens", &path, "--allow-actions"];
    let site = site.with(&options);
    let daemon = site.start();
    daemon.says("with actions, for those with a token");
    let address = address(&daemon.log()).unwrap().replace("0.0.0.0", "127.0.0.1");
    let ask = |token: &str| {
        let token = format!("Authorization: Bearer {token}\r\nConnection: close\r\n");
        send(&address, format!("GET /jobs HTTP/1.1\r\nHost: {address}\r\n{token}\r\n").as_bytes())
    };
    patiently("the line is in the store", || ask(&ann_token).contains("jobs:true"));
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 "));
    assert!(ask("").starts_with("HTTP/1.1 401 ") && ask(&ben_token).starts_with("HTTP/1.1 401 "));
    // A bad file changes nothing, and is a condition.
    site.write("tokens", "ann hunter2 read");
    daemon.signal("-HUP");
    daemon.says("the tokens that were read before stay in force");
    assert!(ask(&ann_token).starts_with("HTTP/1.1 200 ") && !daemon.log().contains("hunter2"));
    patiently("health has it", || get(&address, "/readyz").contains("line 1: "));
    site.write("tokens", &ben);
    daemon.signal("-HUP");
    patiently("the new tokens are in force", || ask(&ben_token).contains("jobs:true"));
    assert!(ask(&ann_token).starts_with("HTTP/1.1 401 "));
    daemon.stop_well();
}

#[test]
fn a_daemon_that_waits_for_its_store_lives_and_is_not_ready() {
    let mut site = Site::new("@daily true\n").with(&["--listen", "127.0.0.1:0"]);
    site.args[1] = "postgres://nobody@127.0.0.1:1/nothing".into();
    let daemon = site.begin(&[]);
    daemon.says("waiting for the store");
    let address = address(&daemon.log()).unwrap();
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    let ready = get(&address, "/readyz");
    assert!(
        ready.starts_with("HTTP/1.1 503 ") && ready.ends_with("waiting for the store\n"),
        "{ready}"
    );
    daemon.stop_well();
}

#[test]
fn an_address_that_is_not_free_is_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let site = Site::new("@daily true\n").with(&["--listen", &address]);
    let daemon = site.begin(&[]);
    patiently("it says so", || daemon.errors().contains(&format!("--listen {address}: ")));
    assert_eq!(daemon.end(), 1);
}
