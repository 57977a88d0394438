//! `cargo xtask versions`: the servers that the tests run on, as the guide of the stores names them.
//!
//! The table is printed from the programs that the tests start. A table in the guide that differs is an
//! error; a server that is not installed is not compared.

use crate::{Failure, Outcome, command::root, services};
use std::{fs, process::Command};

/// The names of services, and what the guide calls their servers.
const SERVERS: [(&str, &str); 5] = [
    ("postgres", "PostgreSQL"),
    ("pgbouncer", "PgBouncer"),
    ("mysql", "MariaDB"),
    ("redis", "Redis"),
    ("etcd", "etcd"),
];

const PAGE: &str = "src/guide/choosing_a_store.md";

pub(crate) fn run() -> Outcome {
    let page = root().join(PAGE);
    let text = fs::read_to_string(&page)
        .map_err(|cause| Failure::Check(format!("{}: {cause}", page.display())))?;
    let mut wrong = Vec::new();
    for (service, server) in SERVERS {
        let Some(version) = installed(service) else {
            println!("# {server} is not installed");
            continue;
        };
        let row = row(server, &version);
        println!("{row}");
        if !text.lines().any(|line| line == row) {
            wrong.push(row);
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let rows = wrong.join("\n");
    Err(Failure::Check(format!("{PAGE} names other servers than the tests run on; write:\n{rows}")))
}

fn row(server: &str, version: &str) -> String {
    format!("| {server} | {version} |")
}

/// The version of the server of this service, if it is installed.
pub(crate) fn installed(service: &str) -> Option<String> {
    let said = Command::new(services::program(service)?).arg("--version").output().ok()?;
    version_in(&String::from_utf8_lossy(&said.stdout))
}

/// The first word that is a version: numbers with a dot between them, and what a distribution adds.
fn version_in(text: &str) -> Option<String> {
    let mut words = text.split_whitespace().map(|word| word.trim_start_matches("v="));
    let word = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let end = word.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(word.len());
    Some(word[..end].to_owned()).filter(|version| version.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_what_each_server_prints() {
        for (text, version) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15.18"),
            ("PgBouncer 1.18.0\nlibevent 2.1.12-stable", "1.18.0"),
            ("mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu", "10.11.19"),
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0", "7.0.15"),
            ("etcd Version: 3.4.23\nGit SHA: Not provided", "3.4.23"),
        ] {
            assert_eq!(version_in(text).as_deref(), Some(version));
        }
        assert_eq!(version_in("no version"), None);
    }

    #[test]
    fn every_server_of_the_table_is_a_service() {
        for (service, server) in SERVERS {
            assert!(services::is_known(service), "{server}");
        }
    }
}
