//! Servers that are set up to forget, or so that their clock stands still.

use super::server::Server;
use crate::{
    connect::run,
    stores::{Db, patiently_opened, pause, runtime},
};
use allora_core::{Backend, ErrorKind};
use sqlx::Connection;

/// The store's durability warning for the server's present settings.
async fn durability_warning(server: &Server) -> String {
    let place = server.place();
    let sql = patiently_opened(place.builder(), &place.url).await;
    let warning = sql.durability_warning().unwrap_or_default().to_owned();
    sql.close().await;
    warning
}

#[test]
fn a_postgres_that_may_lose_commits_has_a_durability_warning() {
    let Some(server) = Server::start(Db::Postgres) else { return };
    runtime().block_on(async {
        assert_eq!(durability_warning(&server).await, "");
        let place = server.place();
        let set = async |text: &str| {
            run(&place, &format!("ALTER SYSTEM SET {text}")).await.unwrap();
            run(&place, "SELECT pg_reload_conf()").await.unwrap();
        };
        // The server takes it up a moment later.
        let told = async |word: &str| {
            for _ in 0..600 {
                if durability_warning(&server).await.contains(word) {
                    return;
                }
                pause(100).await;
            }
            panic!("no warning has {word:?}");
        };
        set("fsync = off").await;
        told("`fsync = on`").await;
        set("full_page_writes = off").await;
        told("`full_page_writes = on`").await;
        let both = durability_warning(&server).await;
        assert!(both.contains("fsync") && both.contains("; a power cut"), "{both}");
        // Sessions of ours commit durably all the same.
        for text in ["fsync = on", "full_page_writes = on", "synchronous_commit = off"] {
            set(text).await;
        }
        told("").await;
        let mut conn = sqlx::PgConnection::connect(&place.url).await.unwrap();
        for _ in 0..600 {
            let commit: String =
                sqlx::query_scalar("SHOW synchronous_commit").fetch_one(&mut conn).await.unwrap();
            if commit == "off" && durability_warning(&server).await.is_empty() {
                return;
            }
            pause(100).await;
        }
        panic!("the warning stays although the setting is corrected");
    });
}

#[test]
fn a_mariadb_that_may_lose_commits_has_a_durability_warning_and_a_fixed_clock_is_refused() {
    let Some(mut server) = Server::start(Db::MySql) else { return };
    let told = |server: &mut Server, arguments: &[&str]| {
        server.restart(arguments);
        runtime().block_on(durability_warning(server))
    };
    assert_eq!(runtime().block_on(durability_warning(&server)), "");
    // A new log each time: the server was killed.
    assert_eq!(told(&mut server, &["--log-bin=one", "--sync-binlog=1"]), "");
    let forgets = ["--log-bin=two", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"];
    let said = told(&mut server, &forgets);
    for name in ["`sync_binlog = 1`", "`innodb_flush_log_at_trx_commit = 1`"] {
        assert!(said.contains(name), "{name}: {said}");
    }

    server.restart(&["--sysdate-is-now"]);
    runtime().block_on(async {
        let place = server.place();
        loop {
            let error = place.builder().connect(&place.url).await.unwrap_err();
            if error.kind() == ErrorKind::Invalid {
                assert!(error.to_string().contains("sysdate-is-now"), "{error}");
                break;
            }
        }
    });

    let provider = "/usr/lib/galera/libgalera_smm.so";
    if std::path::Path::new(provider).exists() {
        let said = told(
            &mut server,
            &[
                "--wsrep-on=ON",
                &format!("--wsrep-provider={provider}"),
                "--wsrep-cluster-address=gcomm://",
                "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:0",
                "--binlog-format=ROW",
                "--innodb-autoinc-lock-mode=2",
            ],
        );
        assert!(said.contains("Galera"), "{said}");
    }
}
