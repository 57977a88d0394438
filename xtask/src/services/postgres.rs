//! PostgreSQL.

use super::{Prepared, Service, Site, failed, says_yes};
use crate::Outcome;
use std::{fs, path::PathBuf, process::Command};

pub(super) const SERVICE: Service = Service {
    store: "postgres",
    name: "postgres",
    variables: &["ALLORA_TEST_POSTGRES_URL"],
    package: "postgresql",
    user: "postgres",
    program: "postgres",
    places,
    ports: 1,
    prepare,
    answers,
};

/// Debian keeps the programs of each version apart; the newest goes first.
fn places() -> Vec<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let number = entry.file_name().to_string_lossy().parse().ok()?;
            Some((number, entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, folder)| folder).collect()
}

fn prepare(site: &Site) -> Outcome<Prepared> {
    // A password that is asked for, so that a wrong one can be tested.
    let secret = site.folder.join("password");
    fs::write(&secret, "allora\n").map_err(|cause| failed(&secret, &cause))?;
    let data = site.folder.join("data");
    let mut init = site.command(site.beside("initdb"));
    init.args(["-U", "allora", "-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "--no-sync"]);
    init.arg("--pwfile").arg(&secret).arg("-D").arg(&data);
    site.run(init)?;
    let port = site.ports[0].to_string();
    let mut server = site.command(&site.program);
    server.arg("-D").arg(&data).args(["-p", &port, "-h", "127.0.0.1"]).arg("-k").arg(&site.folder);
    server.args(["-c", "max_connections=300"]);
    Ok(Prepared::one(server, format!("postgres://allora:allora@127.0.0.1:{port}/postgres")))
}

fn answers(site: &Site) -> bool {
    let mut asked = Command::new(site.beside("pg_isready"));
    asked.args(["-q", "-h", "127.0.0.1", "-p", &site.ports[0].to_string()]);
    says_yes(asked)
}
