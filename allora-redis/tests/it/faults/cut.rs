//! A connection that is cut when the server has answered and the node has not heard it.

use super::node::Settings;
use crate::{
    server::{ON_DISK, Server},
    stores::{Place, runtime, send},
};
use allora_conformance::faults::{self, Proxy, cut_connections};
use allora_core::{
    backend::{Action, Operation, TimeSource},
    time::from_millis,
};
use allora_redis::Redis;
use std::time::Duration;

/// A line to the server, and the place at its end.
fn through(server: &Server) -> (Proxy, Place) {
    let proxy = Proxy::new(format!("127.0.0.1:{}", server.port), Proxy::NEVER).unwrap();
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let place = Place { urls: vec![url], ..server.place() };
    (proxy, place)
}

/// A claim and a completion, each cut off after every number of replies that it may consist of.
fn lost_replies(history: u64) {
    let Some(server) = Server::start(ON_DISK) else { return };
    let (proxy, place) = through(&server);
    let builder = Redis::builder().history(history).timeout(Duration::from_secs(5));
    let lost = runtime().block_on(async {
        let direct = builder.clone().connect(server.url()).await.unwrap();
        let node = builder.connect(&*place.urls[0]).await.unwrap();
        // The last ones with the scripts loaded, so that the first reply is that of the call.
        let cut_after = |replies| proxy.cut_after(replies);
        faults::lost_replies(&direct, &node, "job", &[3, 2, 1, 0, 0], cut_after).await
    });
    assert!(lost.claims > 0 && lost.completions > 0, "{lost:?}");
}

#[test]
fn a_lost_reply_is_resolved_by_claim_id_and_fence() {
    lost_replies(0);
}

#[test]
fn a_lost_reply_is_resolved_with_a_history_too() {
    lost_replies(1_000);
}

/// Each new connection needs three times as long as a request may take.
#[test]
fn a_connection_that_takes_longer_than_a_request_is_there_for_a_later_one() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let (proxy, place) = through(&server);
    let builder = Redis::builder().timeout(Duration::from_secs(1));
    runtime().block_on(async {
        let node = builder.connect(&*place.urls[0]).await.unwrap();
        proxy.fall_silent();
        proxy.delay_first(Duration::from_secs(3));
        let mut failed = 0;
        let read = || Operation::new("a", Action::Read);
        let store = TimeSource::Store { fallback: from_millis(1).unwrap() };
        while let Err(error) = send(&node, store, read()).await {
            failed += 1;
            assert!(failed < 60, "{failed} requests in a row have failed: {error}");
        }
        assert!(failed > 1, "a new connection was there within one request");
    });
}

#[test]
fn nodes_work_over_connections_that_are_cut() {
    let Some(server) = Server::start(ON_DISK) else { return };
    let (proxy, place) = through(&server);
    cut_connections(Settings::of(place).at_work(), &proxy);
}
