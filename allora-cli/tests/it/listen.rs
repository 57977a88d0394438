//! The pages for probes and metrics.

use crate::site::{Site, patiently};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

/// The address that a daemon has said that it listens on.
fn address(log: &str) -> Option<String> {
    let (_, after) = log.split_once("listening for /healthz, /readyz and /metrics address=")?;
    let (address, _) = after.split_once('\n')?;
    Some(address.to_owned())
}

/// Sends these bytes; answers with what comes until the end.
fn send(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // The daemon may close with bytes unread.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn get(address: &str, path: &str) -> String {
    send(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
}

#[test]
fn a_daemon_answers_probes_and_shows_its_counters() {
    let site = Site::new("@every 1s exit 3\n").with(&["--listen", "127.0.0.1:0"]);
    let daemon = site.start();
    let address = address(&daemon.log()).unwrap();
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    patiently("it is ready", || get(&address, "/readyz").starts_with("HTTP/1.1 200 OK\r\n"));
    let counts = |line: &str| get(&address, "/metrics").lines().any(|found| found == line);
    patiently("a run is counted", || counts("allora_runs_ended_total{outcome=\"failed\"} 2"));
    let metrics = get(&address, "/metrics");
    for line in
        ["# TYPE allora_runs_started_total counter", "allora_jobs 1", "allora_store_reached 1"]
    {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
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
