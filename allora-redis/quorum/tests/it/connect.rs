//! Refusals when a quorum is opened, and their messages.

use super::{read, register, runtime, server::Server, servers, urls};
use allora_core::{Error, ErrorKind, backend::Operation};
use allora_redis_quorum::RedisQuorum;
use std::time::{Duration, Instant};

/// A busy machine may let a majority answer before the server that is at fault does.
async fn refused(urls: &[&str], kind: ErrorKind, says: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    let error: Error = loop {
        let builder = RedisQuorum::builder().deadline(Duration::from_secs(1));
        match builder.connect(urls).await {
            Err(error) if error.kind() == kind => break error,
            other => assert!(Instant::now() < end, "{other:?}"),
        }
    };
    assert!(error.to_string().contains(says), "{error}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn three_or_five_different_servers_make_a_quorum() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let urls = urls(&servers);
        let [a, b, c] = [&urls[0][..], &urls[1], &urls[2]];
        refused(&[], ErrorKind::Invalid, "give 3 or 5").await;
        refused(&[a], ErrorKind::Invalid, "give 3 or 5").await;
        refused(&[a, b, c, a], ErrorKind::Invalid, "give 3 or 5").await;
        refused(&[a, b, a], ErrorKind::Invalid, "given twice").await;
        let again = a.replace("127.0.0.1", "localhost");
        refused(&[a, b, &again], ErrorKind::Invalid, "are the same server").await;
        refused(&[a, b, "http://:hunter2@x"], ErrorKind::Invalid, "URL of server 3").await;
        let secret = a.replace("//", "//:hunter2@");
        refused(&[&secret, b, c], ErrorKind::Invalid, "refused the user").await;
        let unreachable = "redis://:hunter2@127.0.0.1:1";
        refused(&[a, unreachable, "redis://127.0.0.1:2"], ErrorKind::Unavailable, "1 of 3 servers")
            .await;
    });
}

#[test]
fn servers_in_another_order_are_refused() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let mut urls = urls(&servers);
        urls.swap(0, 2);
        let node = super::join(&urls, "allora").await;
        let error = super::ask(&node, "n", &[], super::t(0)).await;
        assert!(error.is_ok(), "nothing was asked for");
        let read = [Operation::read("j")];
        let error = super::ask(&node, "n", &read, super::t(0)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("in the same order"), "{error}");
    });
}

#[test]
fn a_quorum_is_initialised_once_and_all_servers_must_answer() {
    runtime().block_on(async {
        let Some(mut own) = (0..3).map(|_| Server::start()).collect::<Option<Vec<_>>>() else {
            return;
        };
        let urls = urls(&own);
        let node = super::join(&urls, "allora").await;
        let operations = [Operation::read("j")];
        let early = super::ask(&node, "n", &operations, super::t(0)).await.unwrap_err();
        assert!(early.to_string().contains("call `RedisQuorum::init`, once"), "{early}");
        // A request without operations, by which a node looks if the store answers.
        let early = super::now(&node).await.unwrap_err();
        assert!(early.to_string().contains("call `RedisQuorum::init`, once"), "{early}");
        assert!(!node.is_initialised().await.unwrap());
        own[2].kill();
        assert_eq!(node.init().await.unwrap_err().kind(), ErrorKind::Unavailable);
        own[2].serve();
        let other = super::join(&urls, "allora").await;
        super::patient_init(&other).await.unwrap();
        assert!(other.is_initialised().await.unwrap());
        assert_eq!(other.init().await.unwrap_err().kind(), ErrorKind::AlreadyExists);
        let seen = register(&node, "j", 60).await;
        assert_eq!(read(&other, "j").await, seen);
    });
}

#[test]
fn registers_of_a_newer_version_are_used_only_if_they_allow_it() {
    runtime().block_on(async {
        let Some(mut servers) = servers(3).await else { return };
        let urls = urls(&servers);
        for (found, is_used, then) in
            [("3 2", false, "3 2"), ("x", false, "x"), ("0", true, "1"), ("2 1", true, "2 1")]
        {
            for url in &urls[1..] {
                version(url, &["HSET", found]).await;
            }
            let node = super::join(&urls, "allora").await;
            let read = super::ask(&node, "n", &[Operation::read("j")], super::t(0)).await;
            assert_eq!(read.is_ok(), is_used, "{found}: {read:?}");
            if found == "3 2" {
                let said = read.unwrap_err().to_string();
                assert!(said.contains("version 3") && said.contains("knows version 1"), "{said}");
            }
            for url in &urls[1..] {
                assert_eq!(version(url, &["HGET"]).await.as_deref(), Some(then));
            }
        }
        // A server that lost everything rejoins with the version of the others.
        servers[0].kill();
        servers[0].wipe();
        servers[0].serve();
        let node = super::join(&urls, "allora").await;
        // Only a node that works with the quorum repairs it.
        super::ask(&node, "n", &[Operation::read("j")], super::t(0)).await.unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while version(&urls[0], &["HGET"]).await.as_deref() != Some("2 1") {
            assert!(Instant::now() < end);
            // It asks all servers.
            node.is_initialised().await.unwrap();
        }
    });
}

/// Calls a command on the version of one server.
async fn version(url: &str, words: &[&str]) -> Option<String> {
    let mut command = redis::cmd(words[0]);
    command.arg("allora:quorum").arg("m:version").arg(&words[1..]);
    command.query_async(&mut super::raw(url).await.unwrap()).await.unwrap()
}

#[test]
fn an_init_that_was_interrupted_is_completed_by_the_next_one() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let urls = urls(&servers);
        // As after an `init` that was interrupted behind the first server.
        for url in &urls[1..] {
            super::clear_one(url, "allora").await.unwrap();
        }
        let operator = super::join(&urls, "allora").await;
        super::patient_init(&operator).await.unwrap();
        let seen = register(&operator, "j", 60).await;
        let node = super::join(&urls, "allora").await;
        assert_eq!(read(&node, "j").await, seen);
        // With a job in it, a server is never emptied.
        for url in &urls[1..] {
            super::clear_one(url, "allora").await.unwrap();
        }
        let operator = super::join(&urls, "allora").await;
        let error = super::patient_init(&operator).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    });
}

#[test]
fn a_deletion_names_the_server_that_it_did_not_reach_and_is_repeated() {
    runtime().block_on(async {
        let Some(mut own) = (0..3).map(|_| Server::start()).collect::<Option<Vec<_>>>() else {
            return;
        };
        let urls = urls(&own);
        let node = super::join(&urls, "allora").await;
        super::patient_init(&node).await.unwrap();
        own[2].kill();
        let error = node.clone().delete_keys().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let place = urls[2].trim_start_matches("redis://");
        assert!(error.to_string().contains(place), "{error}");
        own[2].serve();
        let deleted = async || node.clone().delete_keys().await;
        let end = Instant::now() + Duration::from_secs(60);
        while let Err(error) = deleted().await {
            assert!(Instant::now() < end, "{error}");
        }
        let other = super::join(&urls, "allora").await;
        assert!(!other.is_initialised().await.unwrap());
    });
}
