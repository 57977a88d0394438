//! Connections on which nothing passes any more, without an error.

#![expect(clippy::disallowed_methods, reason = "these tests wait for other processes")]

use super::{members::Members, node::fleet, proxy::Proxy};
use crate::stores::runtime;
use allora_core::{
    Backend, Error, ErrorKind, Time,
    backend::{Batch, Operation, TimeSource},
};
use allora_etcd::Etcd;
use std::time::{Duration, Instant};

async fn read(store: &Etcd) -> Result<(), Error> {
    let operations = [Operation::read("missing")];
    let batch = Batch::new("n", TimeSource::Fixed(Time::UNIX_EPOCH), &operations);
    store.reschedule(batch).await.map(drop)
}

#[test]
fn a_silent_connection_is_replaced_when_a_call_has_timed_out() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let proxy = Proxy::to(members.port(0)).await;
        let (timeout, patience) = (Duration::from_secs(2), Duration::from_secs(20));
        let builder = Etcd::builder().timeout(timeout).connect_timeout(patience);
        let store = builder.connect([proxy.url()]).await.unwrap();
        for _ in 0..2 {
            read(&store).await.unwrap();
            proxy.lose_connections();
            // Calls at the same time share the one connection.
            let both = futures::join!(read(&store), read(&store));
            let kind = |read: Result<(), Error>| read.unwrap_err().kind();
            assert_eq!(
                (kind(both.0), kind(both.1)),
                (ErrorKind::Unavailable, ErrorKind::Unavailable)
            );
            read(&store).await.unwrap();
        }
    });
}

#[test]
fn one_member_answers_again_soon_after_a_silence() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let proxy = Proxy::to(members.port(0)).await;
        let store = Etcd::builder().connect([proxy.url()]).await.unwrap();
        read(&store).await.unwrap();
        proxy.lose_everything(true);
        let begun = Instant::now();
        // Shorter than the time of connecting: a connection that was opened meanwhile counts as new.
        while begun.elapsed() < Duration::from_secs(2) {
            read(&store).await.unwrap_err();
        }
        proxy.lose_everything(false);
        let over = Instant::now();
        while let Err(error) = read(&store).await {
            assert!(over.elapsed() < Duration::from_secs(60), "{error}");
        }
        let waited = over.elapsed();
        assert!(waited < Duration::from_millis(2_500), "it answers after {waited:?}");
    });
}

#[test]
fn nodes_continue_when_their_connections_are_lost() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let proxy = Proxy::to(members.port(0)).await;
        let fleet = fleet(vec![proxy.url()]).at_work();
        for _ in 0..3 {
            proxy.lose_connections();
            fleet.more_ends(5);
        }
        fleet.judge();
    });
}
