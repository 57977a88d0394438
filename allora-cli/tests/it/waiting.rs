//! A daemon whose store does not answer when it is started.

use crate::site::{Daemon, Site};
use sqlx::{Connection, SqliteConnection};
use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    thread,
};

const TICKS: &str = "@every 1s echo tick >> DIR/ticks\n";

/// A site whose store is at this address; without one, in an SQLite file.
fn site(url: Option<&str>) -> Site {
    let mut site = Site::new(TICKS);
    if let Some(url) = url {
        url.clone_into(&mut site.args[1]);
    }
    site.with(&["--prefix", &format!("w{:x}", std::process::id())])
}

/// An address on which no process listens, as long as no other program of this machine takes it.
fn unused_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// It waits, has said so on one line, and lives.
#[track_caller]
fn waits(daemon: &Daemon) {
    daemon.says("waiting for the store");
    // Some attempts later.
    crate::site::pause(std::time::Duration::from_millis(1_500));
    let log = daemon.log();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("ERROR") && !log.contains("s3ntinel"), "{log}");
}

/// It has reached its store, and works.
#[track_caller]
fn works(site: &Site, daemon: Daemon) {
    daemon.says("has reached its store");
    site.more_lines("ticks", 2);
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn it_waits_until_a_signal_stops_it() {
    let unreachable = ["postgres://u:s3ntinel@HOST/d", "mysql://u:s3ntinel@HOST/d"];
    let mut urls = unreachable.to_vec();
    if cfg!(feature = "redis") {
        urls.push("redis://u:s3ntinel@HOST");
    }
    let host = unused_address();
    for url in urls {
        let site = site(Some(&url.replace("HOST", &host)));
        let daemon = site.begin(&[]);
        waits(&daemon);
        daemon.signal("-HUP");
        daemon.signal("-TERM");
        assert_eq!(daemon.end(), 0, "nothing was killed: {url}");
    }
}

#[test]
fn without_a_wait_it_fails_at_once() {
    let site = site(Some(&format!("postgres://u:s3ntinel@{}/d", unused_address())));
    for store_wait in ["0", "1s"] {
        let output = site.command(&["--store-wait", store_wait]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let last = said.lines().last().unwrap();
        assert!(last.starts_with("error: ") && last.contains("is the server running?"), "{said}");
        assert!(!last.contains("is the store up"), "one question is enough: {said}");
        assert!(!said.contains("s3ntinel"));
    }
}

#[test]
fn an_error_that_waiting_does_not_resolve_ends_it_at_once() {
    for (url, code, says) in [
        ("oracle://u:s3ntinel@h/d", 2, "begins with `oracle:`"),
        ("postgres://h", 2, "database"),
        ("sqlite:none/store.db", 1, "is its folder there?"),
        ("sqlite:jobs", 1, "not an SQLite database"),
    ] {
        let site = site(Some(url));
        // Longer than the smallest database.
        site.write("jobs", &"# a comment\n".repeat(100));
        let output = site.command(&[]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "{url}: {said}");
        assert!(said.contains(says) && !said.contains("s3ntinel"), "{url}: {said}");
    }
}

/// Runs this on a connection to the site's SQLite file.
async fn sqlite(site: &Site) -> SqliteConnection {
    let url = format!("sqlite:{}", site.path("store.db").display());
    SqliteConnection::connect(&url).await.unwrap()
}

async fn run(connection: &mut SqliteConnection, statement: &'static str) {
    sqlx::Executor::execute(connection, sqlx::raw_sql(statement)).await.unwrap();
}

fn block_on(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

#[test]
fn tables_of_a_newer_version_end_it_at_once() {
    let site = site(None);
    assert_eq!(site.start().stop(), 0);
    let prefix = format!("w{:x}", std::process::id());
    block_on(async {
        let mut connection = sqlite(&site).await;
        let newer = format!("UPDATE {prefix}_meta SET value = value + 1000");
        sqlx::Executor::execute(&mut connection, sqlx::raw_sql(sqlx::AssertSqlSafe(newer)))
            .await
            .unwrap();
        connection.close().await.unwrap();
    });
    let output = site.command(&[]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("update this program"), "{said}");
}

#[test]
fn it_waits_for_a_file_that_another_process_has_locked() {
    let site = site(None);
    assert_eq!(site.start().stop(), 0);
    block_on(async {
        let mut connection = sqlite(&site).await;
        run(&mut connection, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").await;
        let daemon = site.begin(&[]);
        daemon.says("waiting for the store");
        run(&mut connection, "COMMIT").await;
        connection.close().await.unwrap();
        works(&site, daemon);
    });
}

#[test]
fn a_file_that_another_process_writes_for_a_while_is_not_a_store_that_is_away() {
    let site = site(None);
    let daemon = site.start();
    let (url, prefix) = (site.args[1].clone(), format!("w{:x}", std::process::id()));
    block_on(async {
        let mut connection = sqlite(&site).await;
        run(&mut connection, "BEGIN IMMEDIATE").await;
        daemon.says("requests to the store fail; trying again");
        let add = ["add", "a", "t", "@every 1h", "{}", "--url", &url, "--prefix", &prefix];
        let said = site.allora(&add).refused(1);
        assert!(said.contains("another process keeps the write lock"), "{said}");
        assert!(!said.contains("is the store up"), "{said}");
        run(&mut connection, "COMMIT").await;
        connection.close().await.unwrap();
    });
    daemon.says("requests to the store succeed again");
    assert!(!daemon.log().contains("does not answer"), "{}", daemon.log());
    works(&site, daemon);
}

/// Lets through to a server what comes to a listener, from now on.
fn open_the_way(listener: TcpListener, server: String) {
    thread::spawn(move || {
        for client in listener.incoming() {
            let Ok((client, server)) = client.and_then(|c| Ok((c, TcpStream::connect(&server)?)))
            else {
                continue;
            };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                thread::spawn(move || {
                    // Either side may go whenever it likes.
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
}

/// A daemon is started, and its store after it.
fn it_waits_for(store: &str, variable: &str) {
    let Some(url) = crate::site::server(store, variable) else { return };
    let (front, rest) = url.split_once("://").unwrap();
    let (place, path) = rest
        .split_once('/')
        .map_or((rest, String::new()), |(place, path)| (place, format!("/{path}")));
    let (login, server) = match place.rsplit_once('@') {
        Some((login, server)) => (format!("{login}@"), server),
        None => (String::new(), place),
    };
    let front = if store == "etcd" { "etcd" } else { front };
    let host = unused_address();
    let site = site(Some(&format!("{front}://{login}{host}{path}")));
    let daemon = site.begin(&[]);
    waits(&daemon);
    site.write("jobs", &format!("{TICKS}@every 1s echo more >> DIR/more\n"));
    open_the_way(TcpListener::bind(host).unwrap(), server.to_owned());
    // What was written meanwhile is in force from the start.
    daemon.says("has reached its store");
    site.more_lines("more", 1);
    works(&site, daemon);
}

mod it_goes_on_when_its_store_is_there {
    #[test]
    fn postgres() {
        super::it_waits_for("postgres", "ALLORA_TEST_POSTGRES_URL");
    }
    #[test]
    fn mysql() {
        super::it_waits_for("mysql", "ALLORA_TEST_MYSQL_URL");
    }
    #[cfg(feature = "redis")]
    #[test]
    fn redis() {
        super::it_waits_for("redis", "ALLORA_TEST_REDIS_URL");
    }
    #[cfg(feature = "etcd")]
    #[test]
    fn etcd() {
        super::it_waits_for("etcd", "ALLORA_TEST_ETCD_URL");
    }
}

#[test]
fn a_login_that_is_refused_ends_it_at_once() {
    let Some(url) = crate::site::server("postgres", "ALLORA_TEST_POSTGRES_URL") else { return };
    let (_, host) = url.rsplit_once('@').unwrap();
    let site = site(Some(&format!("postgres://nobody:s3ntinel@{host}")));
    let output = site.command(&[]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("refused the user or the password"), "{said}");
    assert!(!said.contains("s3ntinel"));
}
