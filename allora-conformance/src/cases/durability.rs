//! The writes that a store keeps when every process that uses it has ended.

use crate::cluster::*;
use allora_core::backend::{Action, NewSchedule, Reply};

pub(super) async fn acknowledged_writes_outlive_every_process(w: &Cluster) {
    let fresh = w.beside().await;
    let node = fresh.node().clone();
    let seen = node.register(t(0), "ended", t(60)).await;
    let claimed = won(node.claim(t(60), "ended", once(&seen, 1, Some(t(120).into()))).await);
    let over = node.end(t(61), "ended", claimed.fence, ran_and_stay()).await;
    assert_eq!(over, Reply::Accepted);
    node.register(t(0), "active", t(60)).await;
    let active = won(node.lease(t(60), "active", 2).await);
    let new = NewSchedule::new("mail", "every 1m", Some(t(60).into())).data(b"\0 data");
    fine(node.add_one(t(0), "stored", new).await);
    node.pause(t(1), "stored").await;
    node.register(t(0), "deleted", t(60)).await;
    node.delete(t(1), "deleted").await;
    let (ended, stored) = (node.read("ended").await, node.read("stored").await);
    drop(node);

    let fresh = fresh.reopen().await;
    let node = fresh.node();
    assert_eq!(node.read("ended").await, ended);
    assert_eq!(node.read("stored").await, stored);
    let deleted = node.act(t(2), "deleted", Action::Read).await;
    assert_eq!(deleted, Reply::Deleted);
    let over = node.end(t(70), "active", active.fence, ran(t(120))).await;
    assert_eq!(over, Reply::Accepted, "the run goes on while the store is opened again");
    assert_eq!(node.read("active").await.next, Some(t(120).into()));
    fine(fresh.tear_down().await);
}
