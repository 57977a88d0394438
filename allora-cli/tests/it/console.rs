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
        assert!(rest.contains("store.db, read-only"), "{said}");
        Self { child, address: address.to_owned() }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
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
