//! Connecting: what can be wrong with the address, the settings and the server.

use crate::{
    server::{IN_MEMORY, ON_DISK, Server},
    stores::{Kind, create, runtime},
};
use allora_conformance::{
    a_days_work,
    environment::{free_ports, patiently},
};
use allora_core::{
    Backend, Error,
    backend::{NewSchedule, TimeSource},
    time::from_millis,
};
use allora_redis::{Client, Redis, RedisBuilder};
use redis::AsyncCommands;
use std::{io::Write, net::TcpListener, thread, time::Duration};

/// A password that must never be seen again.
const SECRET: &str = "s3ntinel";

/// The error of an attempt that must fail, with its causes.
fn refused(result: allora_core::Result<Redis>) -> (allora_core::ErrorKind, String) {
    let error: Error = result.map(|store| format!("{store:?}")).unwrap_err();
    let mut all = format!("{error} {error:?}");
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        all = format!("{all} {error} {error:?}");
        cause = error.source();
    }
    assert!(!all.contains(SECRET), "{all}");
    (error.kind(), error.to_string())
}

fn connect(builder: RedisBuilder, url: &str) -> allora_core::Result<Redis> {
    runtime().block_on(builder.timeout(Duration::from_secs(20)).connect(url))
}

fn is_refused(builder: RedisBuilder, url: &str, kind: allora_core::ErrorKind, why: &str) {
    let is_reached = kind != allora_core::ErrorKind::Unavailable;
    let timeout = Duration::from_secs(if is_reached { 20 } else { 2 });
    let (was, said) = refused(runtime().block_on(builder.timeout(timeout).connect(url)));
    assert!(said.contains(why), "{url}: {said}");
    assert_eq!(was, kind, "{url}: {said}");
}

#[test]
fn a_bad_address_is_refused_without_its_password() {
    for url in [
        "",
        "redis",
        "http://u:s3ntinel@h/0",
        "redis://u:s3ntinel@h/x",
        "redis://u:s3ntinel@h:99999/0",
        "redis://u:s3ntinel@/0",
        "redis://u:s3ntinel%zz@h:1:2",
        "u:s3ntinel@h",
        "redis://:s3ntinel@h/0?protocol=s3ntinel",
    ] {
        is_refused(Redis::builder(), url, allora_core::ErrorKind::Invalid, "the address");
    }
}

#[test]
fn bad_settings_are_refused_before_anything_is_asked() {
    let nowhere = "redis://127.0.0.1:1";
    let invalid = allora_core::ErrorKind::Invalid;
    for prefix in ["", "A", "1a", "a-b", "a b", "a{b}", "a:b", &"a".repeat(41)] {
        is_refused(Redis::builder().prefix(prefix), nowhere, invalid, "the prefix");
    }
    is_refused(Redis::builder().shards(0), nowhere, invalid, "shards");
    is_refused(Redis::builder().shards(1_025), nowhere, invalid, "shards");
    is_refused(Redis::builder().history(u64::MAX), nowhere, invalid, "history");
    is_refused(Redis::builder().wait_replicas(101), nowhere, invalid, "replicas");
    for timeout in [Duration::ZERO, Duration::from_secs(3_600)] {
        let builder = Redis::builder().timeout(timeout);
        let (kind, said) = refused(runtime().block_on(builder.connect(nowhere)));
        assert_eq!(kind, invalid, "{said}");
    }
    let none: [&str; 0] = [];
    let (kind, _) = refused(runtime().block_on(Redis::builder().connect_cluster(none)));
    assert_eq!(kind, invalid);
    let (kind, _) = refused(runtime().block_on(Redis::builder().connect_sentinel(none, "m")));
    assert_eq!(kind, invalid);
    let databases = ["redis://127.0.0.1:1/3"];
    let (kind, said) = refused(runtime().block_on(Redis::builder().connect_cluster(databases)));
    assert!(kind == invalid && said.contains("one database"), "{said}");
}

#[test]
fn an_unreachable_server_has_an_error_of_its_own() {
    let unavailable = allora_core::ErrorKind::Unavailable;
    let [port] = free_ports();
    let closed = format!("redis://u:{SECRET}@127.0.0.1:{port}");
    is_refused(Redis::builder(), &closed, unavailable, "cannot be reached");
    // It takes connections and never says a word.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("redis://127.0.0.1:{}", silent.local_addr().unwrap().port());
    is_refused(Redis::builder(), &url, unavailable, "did not answer");
    let nodes = [&*closed];
    let (kind, said) = refused(runtime().block_on(Redis::builder().connect_cluster(nodes)));
    assert_eq!(kind, unavailable, "{said}");
}

#[test]
fn a_server_that_is_no_redis_has_an_error_of_its_own() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        for client in listener.incoming() {
            let _ = client.and_then(|mut client| {
                client.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            });
        }
    });
    is_refused(Redis::builder(), &url, allora_core::ErrorKind::Invalid, "is it a Redis?");
}

#[test]
fn a_password_is_asked_for_and_never_shown() {
    let arguments = [ON_DISK, &["--requirepass", "right"]].concat();
    let Some(server) = Server::start(&arguments) else { return };
    let invalid = allora_core::ErrorKind::Invalid;
    let url = |login: &str| format!("redis://{login}127.0.0.1:{}", server.port);
    for login in ["", &format!(":{SECRET}@"), &format!("nobody:{SECRET}@")] {
        is_refused(Redis::builder(), &url(login), invalid, "refused the user or the password");
    }
    let right = url(":right@");
    let store = connect(Redis::builder(), &right).unwrap();
    assert!(!format!("{store:?} {:?}", Redis::builder()).contains("right"));
    // One who may log in and no more.
    let mut connection = Client::open(right).unwrap().get_connection().unwrap();
    let mut user = redis::cmd("ACL");
    user.arg(&["SETUSER", "reader", "on", ">pw", "~*", "+@read", "+@connection", "+info"]);
    user.exec(&mut connection).unwrap();
    is_refused(Redis::builder(), &url("reader:pw@"), invalid, "does not permit");
}

/// In one shard and in several.
#[test]
fn a_user_with_the_rights_that_the_store_names_works_and_sees_nothing_else() {
    let Some(server) = Server::start(ON_DISK) else { return };
    for shards in [1, 3] {
        let builder = || Redis::builder().shards(shards).prefix(format!("mine{shards}"));
        let owner = connect(builder(), &server.url()).unwrap();
        let [grant] = owner.grants("jobs").unwrap().try_into().unwrap();
        let grant = grant.replace("PASSWORD", "pw");
        server.ask::<()>(&grant.split(' ').collect::<Vec<_>>()).unwrap();
        let url = format!("redis://jobs:pw@127.0.0.1:{}", server.port);
        let store = connect(builder().history(10), &url).unwrap();
        runtime().block_on(a_days_work(store));
        let other = Redis::builder().shards(shards).prefix("other");
        is_refused(other, &url, allora_core::ErrorKind::Invalid, "does not permit");
        server.ask::<()>(&["ACL", "DELUSER", "jobs"]).unwrap();
    }
}

#[test]
fn a_missing_database_has_an_error_of_its_own() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let invalid = allora_core::ErrorKind::Invalid;
    is_refused(Redis::builder(), &format!("{}/99", server.url()), invalid, "no such database");
    connect(Redis::builder(), &format!("{}/15", server.url())).unwrap();
}

#[test]
fn a_server_that_forgets_is_refused_unless_that_is_asked_for() {
    let Some(server) = Server::start(IN_MEMORY) else { return };
    let invalid = allora_core::ErrorKind::Invalid;
    is_refused(Redis::builder(), &server.url(), invalid, "keeps nothing on disk");
    connect(Redis::builder().ephemeral(), &server.url()).unwrap();
    server.ask::<()>(&["CONFIG", "SET", "save", "3600 1"]).unwrap();
    connect(Redis::builder(), &server.url()).unwrap();
}

#[test]
fn a_server_that_evicts_jobs_is_refused() {
    let arguments = [ON_DISK, &["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]];
    let Some(server) = Server::start(&arguments.concat()) else { return };
    is_refused(Redis::builder(), &server.url(), allora_core::ErrorKind::Invalid, "allkeys-lru");
    server.ask::<()>(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]).unwrap();
    connect(Redis::builder(), &server.url()).unwrap();
}

#[test]
fn a_replica_is_refused() {
    let Some(primary) = Server::start(ON_DISK) else { return };
    let port = primary.port.to_string();
    let arguments = [ON_DISK, &["--replicaof", "127.0.0.1", &port]].concat();
    let replica = Server::start(&arguments).unwrap();
    patiently("the replica follows", || {
        let told: String = replica.ask(&["INFO", "replication"]).unwrap();
        told.contains("master_link_status:up")
    });
    is_refused(Redis::builder(), &replica.url(), allora_core::ErrorKind::Invalid, "is a replica");
}

#[test]
fn a_server_of_another_topology_is_refused() {
    let invalid = allora_core::ErrorKind::Invalid;
    if let Some(place) = Kind::Cluster.place() {
        is_refused(Redis::builder(), &place.urls[0], invalid, "node of a cluster");
    }
    if let Some(place) = Kind::One.place() {
        let connecting = Redis::builder().connect_cluster([&*place.urls[0]]);
        let (kind, said) = refused(runtime().block_on(connecting));
        assert_ne!(said, "", "{kind:?}");
    }
    if let Some(place) = Kind::Sentinel.place() {
        is_refused(Redis::builder(), &place.urls[0], invalid, "");
        let urls = place.urls.iter().map(String::as_str);
        let connecting = Redis::builder().connect_sentinel(urls, "nobody");
        let (kind, said) = refused(runtime().block_on(connecting));
        assert!(kind == invalid && said.contains("no sentinel"), "{said}");
    }
}

#[test]
fn another_number_of_shards_is_refused() {
    let Some(mut place) = Kind::One.place() else { return };
    runtime().block_on(async {
        place.open().await;
        place.shards = 2;
        let (kind, said) = refused(place.connect(Redis::builder()).await);
        assert!(
            kind == allora_core::ErrorKind::Invalid && said.contains("has 1 shards, not 2"),
            "{said}"
        );
        place.clear().await;
    });
}

#[test]
fn keys_of_a_newer_version_are_used_only_if_they_allow_it() {
    let Some(place) = Kind::One.place() else { return };
    runtime().block_on(async {
        let key = format!("{{{}}}:meta", place.prefix);
        for (found, is_used, then) in
            [("0", true, "1"), ("2 1", true, "2 1"), ("3 2", false, "3 2"), ("x", false, "x")]
        {
            let mut raw = place.raw().await.remove(0);
            let () = raw.hset(&key, "version", found).await.unwrap();
            let opened = place.connect(Redis::builder()).await;
            assert_eq!(opened.is_ok(), is_used, "{found}");
            if found == "3 2" {
                let (kind, said) = refused(opened);
                assert_eq!(kind, allora_core::ErrorKind::Invalid);
                assert!(said.contains("version 3") && said.contains("knows version 1"), "{said}");
            }
            let after: String = raw.hget(&key, "version").await.unwrap();
            assert_eq!(after, then);
        }
        place.clear().await;
    });
}

#[test]
fn every_way_to_name_a_server_works() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock").display().to_string();
    let Some(server) = Server::start(&[ON_DISK, &["--unixsocket", &socket]].concat()) else {
        return;
    };
    let client = || Client::open(server.url()).unwrap();
    runtime().block_on(async {
        let builder = || Redis::builder().timeout(Duration::from_secs(20));
        let stores = [
            builder().connect(server.url()).await.unwrap(),
            builder().connect(("127.0.0.1", server.port)).await.unwrap(),
            builder().connect(format!("redis+unix://{socket}")).await.unwrap(),
            builder().connect(client().get_connection_info().clone()).await.unwrap(),
            builder().connect_client(client()).await.unwrap(),
        ];
        let now = TimeSource::Fixed(from_millis(5_000).unwrap());
        create(&stores[0], now, "a", NewSchedule::new("mail", "def", None)).await;
        for store in &stores {
            assert_eq!(store.queries().unwrap().get("a").await.unwrap().kind, "mail");
        }
        let elsewhere = builder().connect(format!("{}/1", server.url())).await.unwrap();
        let nothing = elsewhere.queries().unwrap().get("a").await.unwrap_err();
        assert_eq!(nothing.kind(), allora_core::ErrorKind::NotFound);
    });
}
