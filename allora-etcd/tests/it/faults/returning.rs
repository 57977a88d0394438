//! A node that comes back while another one forgets it.

use super::{members::Members, patiently, proxy::Proxy};
use crate::stores::{patient, runtime};
use allora_core::{
    Backend, Time,
    backend::{Action, Batch, Claim, DueQuery, NewSchedule, Operation, Reply, TimeSource},
    time::from_millis,
};
use allora_etcd::Etcd;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

fn at(seconds: i64) -> Time {
    from_millis(1_893_456_000_000 + seconds * 1_000).unwrap()
}

async fn apply(store: &Etcd, node: &str, name: &str, action: Action<'_>) -> Reply {
    let operations = [Operation::new(name, action)];
    let time = TimeSource::Store { fallback: at(60) };
    store.reschedule(Batch::new(node, time, &operations)).await.unwrap().single().unwrap()
}

/// The names of what another node finds due.
async fn found(store: &Etcd) -> Vec<String> {
    let query = DueQuery::new(&["mail"], at(61), 9).node("other");
    let time = TimeSource::Store { fallback: at(60) };
    let found = store.queries().unwrap().find_due(query, time).await.unwrap().found;
    found.into_iter().map(|state| state.name).collect()
}

/// Claims a schedule as `node`, and has the node die.
async fn claim_and_die(members: &Members, store: &Etcd, node: &str, name: &str) {
    let new = NewSchedule::new("mail", "x", Some(at(60).into()));
    let created = apply(store, node, name, Action::Create(new)).await.state().unwrap();
    let claim = Claim::at_least_once(1, created.fence, at(60).into(), LEASE);
    let claimed = apply(store, node, name, Action::Claim(claim)).await;
    assert!(matches!(claimed, Reply::Claimed(_)), "{claimed:?}");
    let session = format!("allora/session/{node}");
    let deleted = members.client(0).await.delete(session, None).await.unwrap();
    assert_eq!(deleted.deleted(), 1, "it had a session");
}

#[test]
fn a_node_that_claims_and_dies_while_it_is_forgotten_is_not_forgotten() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let proxy = Proxy::to(members.port(0)).await;
        let direct = patient(Etcd::builder()).connect(members.urls()).await.unwrap();
        let other = patient(Etcd::builder()).connect([proxy.url()]).await.unwrap();
        // The first query learns the distance by which the second one searches ahead.
        for _ in 0..2 {
            assert_eq!(found(&other).await, [""; 0]);
        }
        // A node that died without a run.
        members.client(0).await.put("allora/nodes/one", "", None).await.unwrap();
        let before = members.transactions(0);
        proxy.delay_replies(2_000);
        let forgetting = async {
            assert_eq!(found(&other).await, [""; 0]);
        };
        let returning = async {
            // The dead nodes are read, then what each of them has left, then one is forgotten.
            let sent = || members.transactions(0) - before;
            patiently("what is left is read", async || sent() >= 2).await;
            proxy.hold_replies(true);
            claim_and_die(&members, &direct, "one", "job").await;
            proxy.delay_replies(0);
            proxy.hold_replies(false);
        };
        futures::join!(forgetting, returning);
        assert_eq!(found(&other).await, ["job"], "its run is taken over");
    });
}

#[test]
fn a_dead_node_without_a_run_is_forgotten() {
    runtime().block_on(async {
        let Some(members) = Members::start(1, &[]).await else { return };
        let store = patient(Etcd::builder()).connect(members.urls()).await.unwrap();
        claim_and_die(&members, &store, "one", "job").await;
        assert_eq!(found(&store).await, ["job"]);
        let mut client = members.client(0).await;
        let mut count = async || client.get("allora/nodes/one", None).await.unwrap().count();
        assert_eq!(count().await, 1, "it has left a run");
        apply(&store, "two", "job", Action::Delete).await;
        assert_eq!(found(&store).await, [""; 0]);
        assert_eq!(count().await, 0);
    });
}
