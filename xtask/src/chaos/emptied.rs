//! Empties a store under its workers: what an operator does by mistake.

use crate::{Failure, Outcome, services::Arena};
use std::process::Command;

/// The tables of `prove` with records, in one row.
const POSTGRES: &str = "DO $$ DECLARE t text; BEGIN \
    SELECT string_agg(tablename, ', ') INTO STRICT t FROM pg_tables WHERE tablename LIKE 'allora_prove_%' AND tablename NOT LIKE '%_meta'; \
    EXECUTE 'TRUNCATE ' || t; END $$";
const MYSQL: &str = "SELECT concat('DELETE FROM ', table_name, ';') FROM information_schema.tables \
    WHERE table_schema = 'allora' AND table_name LIKE 'allora_prove_%' AND table_name NOT LIKE '%_meta'";

/// Removes every record; tries again where a transaction is in the way.
pub(super) fn empty(store: &str, arena: &Arena) -> Outcome {
    match (0..20).any(|_| is_emptied(store, arena)) {
        true => Ok(()),
        false => Err(Failure::Check(format!("{store} was not emptied"))),
    }
}

fn is_emptied(store: &str, arena: &Arena) -> bool {
    let said = match store {
        "postgres" => postgres(arena.port(0)),
        "pgbouncer" => postgres(arena.port(1)),
        "mysql" => {
            let port = arena.port(0);
            mysql(port, &format!("BEGIN; {} COMMIT; SELECT 'gone'", mysql(port, MYSQL)))
        }
        "etcd" | "etcd-cluster" => {
            let mut etcdctl = Command::new("etcdctl");
            etcdctl.arg(format!("--endpoints=http://127.0.0.1:{}", arena.port(0)));
            output(etcdctl.args(["del", "", "--prefix"]))
        }
        // Each node of a cluster. Anything else is an error.
        _ => {
            let servers = if store == "redis-cluster" { arena.len() } else { 1 };
            let said: String = (0..servers)
                .map(|number| asked(arena.port(number), &["FLUSHALL"]).trim().to_owned())
                .collect();
            if said == "OK".repeat(servers) { "gone".into() } else { String::new() }
        }
    };
    let said = said.trim();
    !(said.is_empty() || said == "0" || said.contains(' '))
}

fn postgres(port: u16) -> String {
    let mut psql = Command::new("psql");
    psql.args([
        "-h",
        "127.0.0.1",
        "-p",
        &port.to_string(),
        "-U",
        "allora",
        "postgres",
        "-c",
        POSTGRES,
    ]);
    output(psql.env("PGPASSWORD", "allora"))
}

fn mysql(port: u16, text: &str) -> String {
    let mut mysql = Command::new("mariadb");
    mysql.args(["--no-defaults", "-h", "127.0.0.1", "-P", &port.to_string(), "-u", "allora"]);
    output(mysql.args(["-pallora", "-D", "allora", "-Ne", text]))
}

/// Nothing if it failed.
fn output(command: &mut Command) -> String {
    match command.output() {
        Ok(said) if said.status.success() => String::from_utf8_lossy(&said.stdout).into_owned(),
        _ => String::new(),
    }
}

/// The store's own time in whole seconds since 1970, where it is asked for it.
pub(super) fn time(store: &str, arena: &Arena) -> Option<i64> {
    let said = match store {
        "mysql" => mysql(arena.port(0), "SELECT floor(unix_timestamp(now(6)))"),
        _ => {
            let port = arena.port(usize::from(store == "pgbouncer"));
            return number(port, "SELECT floor(extract(epoch FROM clock_timestamp()))");
        }
    };
    said.trim().parse().ok()
}

/// The number that a PostgreSQL server returns for a query.
pub(super) fn number(port: u16, query: &str) -> Option<i64> {
    let mut psql = Command::new("psql");
    psql.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "allora", "postgres"]);
    output(psql.args(["-Atc", query]).env("PGPASSWORD", "allora")).trim().parse().ok()
}

/// The answer of a Redis server.
pub(super) fn asked(port: u16, words: &[&str]) -> String {
    let mut client = Command::new("redis-cli");
    client.args(["-h", "127.0.0.1", "-p", &port.to_string()]).args(words);
    client
        .output()
        .map(|said| String::from_utf8_lossy(&said.stdout).into_owned())
        .unwrap_or_default()
}
