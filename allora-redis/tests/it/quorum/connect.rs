//! What is refused when a quorum is opened, and what the refusal says.

use super::{look, register, runtime, server::Server, servers, urls};
use allora_core::{Error, Kind};
use allora_redis::quorum::RedisQuorum;

async fn refused(urls: &[&str], kind: Kind, says: &str) {
    let error: Error = RedisQuorum::builder().connect(urls).await.unwrap_err();
    assert!(error.kind() == kind && error.to_string().contains(says), "{error}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn three_or_five_different_servers_make_a_quorum() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let urls = urls(&servers);
        let [a, b, c] = [&urls[0][..], &urls[1], &urls[2]];
        refused(&[], Kind::Invalid, "give 3 or 5").await;
        refused(&[a], Kind::Invalid, "give 3 or 5").await;
        refused(&[a, b, c, a], Kind::Invalid, "give 3 or 5").await;
        refused(&[a, b, a], Kind::Invalid, "given twice").await;
        let again = a.replace("127.0.0.1", "localhost");
        refused(&[a, b, &again], Kind::Invalid, "are the same server").await;
        refused(&[a, b, "http://:hunter2@x"], Kind::Invalid, "URL of server 3").await;
        let secret = a.replace("//", "//:hunter2@");
        refused(&[&secret, b, c], Kind::Invalid, "refused the user").await;
        let nobody = "redis://:hunter2@127.0.0.1:1";
        refused(&[a, nobody, "redis://127.0.0.1:2"], Kind::Unavailable, "1 of 3 servers").await;
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
        let plan = [allora_core::backend::Plan::new("j", allora_core::backend::Act::Look)];
        let error = super::ask(&node, "n", &plan, super::t(0)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
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
        let plan = [allora_core::backend::Plan::new("j", allora_core::backend::Act::Look)];
        let early = super::ask(&node, "n", &plan, super::t(0)).await.unwrap_err();
        assert!(early.to_string().contains("call `init` once"), "{early}");
        own[2].kill();
        assert_eq!(node.init().await.unwrap_err().kind(), Kind::Unavailable);
        own[2].serve();
        let other = super::join(&urls, "allora").await;
        other.init().await.unwrap();
        assert_eq!(other.init().await.unwrap_err().kind(), Kind::AlreadyExists);
        let seen = register(&node, "j", 60).await;
        assert_eq!(look(&other, "j").await, seen);
    });
}
