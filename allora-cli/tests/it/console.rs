//! `allora console`: pages of a store for browsers on this machine.

use crate::{
    allora::{allora, command},
    site::{Site, patiently},
};
use std::{
    fs::File,
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
};

const URL: [&str; 2] = ["--url", "sqlite:store.db"];

/// A console, which is killed when it is dropped, and its address.
struct Console {
    child: Child,
    address: String,
}

impl Console {
    fn of(site: &Site, more: &[&str]) -> Self {
        let mut command =
            command(&[&["console", "--listen", "127.0.0.1:0"], &URL[..], more].concat());
        let said = File::create(site.path("said")).unwrap();
        command.current_dir(site.path("")).stdin(Stdio::null()).stdout(said);
        let child = command.spawn().unwrap();
        patiently("it says its address", || site.read("said").ends_with('\n'));
        let said = site.read("said");
        let (address, rest) = said.strip_prefix("http://").unwrap().split_once('/').unwrap();
        assert!(rest.contains("store.db, "), "{said}");
        Self { child, address: address.to_owned() }
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1"), "")
    }

    /// The answer to a request with these further lines of its head, and its body.
    fn ask(&self, request: &str, rest: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        let rest = if rest.contains("\r\n\r\n") { rest.to_owned() } else { format!("{rest}\r\n") };
        let head = format!("{request}\r\nHost: {host}\r\nConnection: close\r\n{rest}");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn site() -> Site {
    let site = Site::new("");
    site.allora(&[&["init"], &URL[..]].concat()).fine();
    let data = r#"{"command": ["true"], "env": {"KEY": "hunter2"}}"#;
    site.allora(&[&["add", "acme/report", "command", "@daily", data], &URL[..]].concat()).fine();
    site
}

#[test]
fn the_pages_of_a_store_are_served_and_data_only_if_asked_for() {
    let site = site();
    let console = Console::of(&site, &[]);
    let jobs = console.get("/jobs");
    assert!(jobs.starts_with("HTTP/1.1 200 ") && jobs.contains("acme/report"), "{jobs}");
    let job = console.get("/job?name=acme%2Freport");
    assert!(job.contains("hidden") && !job.contains("hunter2"), "{job}");
    assert!(console.get("/console.css").contains("content-security-policy"));
    assert!(
        Console::of(&site, &["--show-data"]).get("/job?name=acme%2Freport").contains("hunter2")
    );
}

#[test]
fn an_address_that_other_machines_reach_is_refused_before_the_store_is_opened() {
    let place = ["--url", "sqlite:/nowhere/store.db"];
    let said = allora(&[&["console", "--listen", "0.0.0.0:0"], &place[..]].concat()).refused(2);
    assert!(
        said.contains("--listen 0.0.0.0:0: ") && said.contains("without access tokens"),
        "{said}"
    );
}

/// The line that `allora token` makes, and the token.
fn token(site: &Site, args: &[&str]) -> (String, String) {
    let made = command(&[&["token"], args].concat()).current_dir(site.path("")).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(made.stdout), text(made.stderr).trim().to_owned())
}

#[test]
fn with_tokens_it_listens_anywhere_and_shows_each_reader_what_it_may_see() {
    let site = site();
    let (ann, ann_token) = token(&site, &["ann", "--scope", "data,run"]);
    let (ben, ben_token) = token(&site, &["ben", "--prefix", "beta/"]);
    assert!(!ann.contains(&ann_token) && !ben.contains(&ben_token));
    std::fs::write(site.path("tokens"), ann + &ben).unwrap();
    let console = Console::of(&site, &["--tokens", "tokens", "--allow-actions"]);
    let unknown = console.get("/jobs");
    assert!(unknown.starts_with("HTTP/1.1 401 ") && unknown.contains("www-authenticate: Basic"));
    let of = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let job = "GET /job?name=acme%2Freport HTTP/1.1";
    assert!(console.ask(job, &of(&ann_token)).contains("hunter2"));
    assert!(console.ask(job, &of(&ben_token)).starts_with("HTTP/1.1 404 "));
    let body = "do=trigger&name=acme%2Freport&id=7";
    let form = format!(
        "{}Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        of(&ann_token),
        body.len()
    );
    let done = console.ask("POST /act HTTP/1.1", &form);
    assert!(done.starts_with("HTTP/1.1 303 ") && done.contains("done=trigger"), "{done}");
    let forged = form.replace("Authorization: Bearer ", "Sec-Fetch-Site: cross-site\r\nX: ");
    assert!(console.ask("POST /act HTTP/1.1", &forged).starts_with("HTTP/1.1 403 "));
}

#[test]
fn a_file_of_tokens_that_cannot_be_read_is_named_before_the_store_is_opened() {
    let site = site();
    let place = ["--listen", "127.0.0.1:0", "--url", "sqlite:/nowhere/store.db"];
    for (text, says) in [("ann hunter2 read", "line 1: "), ("# nobody\n", "no line")] {
        std::fs::write(site.path("tokens"), text).unwrap();
        let path = site.path("tokens");
        let args = [&["console", "--tokens", path.to_str().unwrap()], &place[..]].concat();
        let said = allora(&args).refused(2);
        assert!(
            said.contains(says) && said.contains("--tokens") && !said.contains("hunter2"),
            "{said}"
        );
    }
}
