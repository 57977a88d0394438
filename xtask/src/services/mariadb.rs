//! MariaDB, for MySQL.

use super::{Prepared, Service, Site, failed, says_yes};
use crate::Outcome;
use std::{fs, path::PathBuf, process::Command};

pub(super) const SERVICE: Service = Service {
    store: "mysql",
    name: "mysql",
    variables: &["ALLORA_TEST_MYSQL_URL"],
    packages: &["mariadb-server"],
    user: "mysql",
    programs: &["mariadbd"],
    places,
    ports: 1,
    prepare,
    answers,
};

/// One statement a line; run by the server itself when it starts.
const USERS: &str = "CREATE DATABASE IF NOT EXISTS allora;
CREATE USER IF NOT EXISTS allora@'127.0.0.1' IDENTIFIED BY 'allora';
GRANT ALL ON *.* TO allora@'127.0.0.1' WITH GRANT OPTION;
";

fn places() -> Vec<PathBuf> {
    vec!["/usr/sbin".into(), "/usr/local/sbin".into()]
}

fn prepare(site: &Site) -> Outcome<Prepared> {
    let users = site.folder.join("users.sql");
    fs::write(&users, USERS).map_err(|cause| failed(&users, &cause))?;
    let path = |name: &str, file: &str| format!("--{name}={}", site.folder.join(file).display());
    let data = path("datadir", "data");
    let mut init = site.command("mariadb-install-db");
    init.args(["--no-defaults", &data, "--skip-test-db"]);
    init.arg("--auth-root-authentication-method=normal");
    site.run(init)?;
    let port = site.ports[0].to_string();
    let mut server = site.command(&site.program);
    server.args(["--no-defaults", "--bind-address=127.0.0.1", "--max-connections=300"]);
    server.args([&data, &path("socket", "socket"), &path("pid-file", "pid")]);
    server.args([&path("init-file", "users.sql"), &format!("--port={port}")]);
    Ok(Prepared::one(server, format!("mysql://allora:allora@127.0.0.1:{port}/allora")))
}

fn answers(site: &Site) -> bool {
    let mut asked = Command::new("mariadb-admin");
    asked.args(["--no-defaults", "-h", "127.0.0.1", "-P", &site.ports[0].to_string()]);
    asked.args(["-u", "allora", "-pallora", "ping"]);
    says_yes(asked)
}
