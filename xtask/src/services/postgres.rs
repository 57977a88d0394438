//! PostgreSQL, and PgBouncer before another one.

use super::{Prepared, Service, Site, failed, says_yes};
use crate::Outcome;
use std::{fs, net::TcpStream, path::PathBuf, process::Command};

pub(super) const SERVICE: Service = Service {
    store: "postgres",
    name: "postgres",
    variables: &["ALLORA_TEST_POSTGRES_URL"],
    packages: &["postgresql"],
    user: "postgres",
    programs: &["postgres"],
    places,
    ports: 1,
    prepare,
    answers,
};

/// A pooler that lends connections for one transaction, and as the database `session` for a session.
pub(super) const POOLED: Service = Service {
    name: "pgbouncer",
    variables: &["ALLORA_TEST_PGBOUNCER_URL"],
    packages: &["pgbouncer"],
    programs: &["pgbouncer"],
    places: || vec!["/usr/sbin".into(), "/usr/local/sbin".into()],
    ports: 2,
    prepare: prepare_pooled,
    answers: answers_pooled,
    ..SERVICE
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

fn prepare_pooled(site: &Site) -> Outcome<Prepared> {
    let [pooler, server] = [0, 1].map(|i| site.ports[i]);
    let behind = behind(site);
    let Prepared { mut servers, .. } = prepare(&behind)?;
    let users = site.folder.join("users");
    fs::write(&users, "\"allora\" \"allora\"\n").map_err(|cause| failed(&users, &cause))?;
    let settings = site.folder.join("pgbouncer.ini");
    // As the crate's first page recommends: places for all nodes, and no 15 s of refusals after a restart.
    let text = format!(
        "[databases]\n\
         postgres = host=127.0.0.1 port={server} dbname=postgres pool_mode=transaction\n\
         session = host=127.0.0.1 port={server} dbname=postgres pool_mode=session\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {pooler}\n\
         unix_socket_dir =\n\
         auth_type = plain\n\
         auth_file = {}\n\
         ignore_startup_parameters = extra_float_digits\n\
         server_login_retry = 1\n\
         default_pool_size = 100\n\
         max_client_conn = 1000\n",
        users.display()
    );
    fs::write(&settings, text).map_err(|cause| failed(&settings, &cause))?;
    let mut command = site.command(&site.program);
    command.arg("-q").arg(&settings);
    servers.push(command);
    let told = vec![format!("postgres://allora:allora@127.0.0.1:{pooler}/postgres")];
    Ok(Prepared { servers, told })
}

/// The server behind the pooler.
fn behind(site: &Site) -> Site {
    let folders = places().into_iter().map(|folder| folder.join(SERVICE.programs[0]));
    let program = folders.into_iter().find(|path| path.exists());
    Site {
        program: program.unwrap_or_else(|| SERVICE.programs[0].into()),
        folder: site.folder.clone(),
        ports: vec![site.ports[1]],
        owner: site.owner,
    }
}

fn answers_pooled(site: &Site) -> bool {
    answers(&behind(site)) && TcpStream::connect(("127.0.0.1", site.ports[0])).is_ok()
}

fn answers(site: &Site) -> bool {
    let mut asked = Command::new(site.beside("pg_isready"));
    asked.args(["-q", "-h", "127.0.0.1", "-p", &site.ports[0].to_string()]);
    says_yes(asked)
}
