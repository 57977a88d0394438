//! A store that was emptied while its nodes are connected.

use crate::cluster::*;
use allora_core::backend::{Action, Operation, Reply};
use std::time::Duration;

/// An absent record below whose fence the store has removed no tombstone was not deleted: nodes
/// register its job again.
pub(super) async fn a_record_of_an_emptied_store_is_absent_and_not_deleted(w: &Cluster) {
    let fresh = w.beside().await;
    let node = fresh.node().clone();
    node.register(t(0), "job", t(60)).await;
    let active = won(node.lease(t(60), "job", 1).await);
    if fresh.empty().await {
        let applied = node.apply(t(70), &[Operation::read("job")]).await;
        let min_fence = applied.min_fence;
        assert_eq!(fine(applied.single()), Reply::Absent);
        assert!(min_fence < active.fence, "{min_fence} says that the job was deleted");
        let extend = Action::Extend { fence: active.fence, duration: Duration::from_secs(60) };
        assert_eq!(node.act(t(71), "job", extend).await, Reply::Absent);
    }
    fine(fresh.tear_down().await);
}

pub(super) async fn what_is_registered_in_an_emptied_store_is_above_what_was(w: &Cluster) {
    let fresh = w.beside().await;
    let node = fresh.node().clone();
    let before = node.register(t(0), "job", t(60)).await;
    let active = won(node.lease(t(60), "job", 1).await);
    if fresh.empty().await {
        let again = node.register(t(80), "job", t(90)).await;
        assert!(again.incarnation > before.incarnation, "{again:?}");
        let claimed = won(node.lease(t(90), "job", 2).await);
        assert!(claimed.fence > active.fence, "{} after {}", claimed.fence, active.fence);
        let late = node.end(t(91), "job", active.fence, ran(t(120))).await;
        assert_eq!(late, Reply::LeaseLost);
        let end = node.end(t(92), "job", claimed.fence, ran(t(150))).await;
        assert_eq!(end, Reply::Accepted);
    }
    fine(fresh.tear_down().await);
}

pub(super) async fn the_records_of_nodes_that_left_do_not_make_a_job_look_deleted(w: &Cluster) {
    let seen = w.node().register(t(0), "job", t(60)).await;
    for name in ["allora:node:a", "allora:node:b"] {
        let node = w.node().register(t(3_600), name, t(60)).await;
        assert!(node.fence > seen.fence);
        assert_eq!(w.node().act(t(3_601), name, Action::Delete).await, Reply::Deleted);
    }
    w.node().prune(t(30 * 86_400)).await;
    let applied = w.node().apply(t(30 * 86_400), &[Operation::read("another job")]).await;
    let min_fence = applied.min_fence;
    assert_eq!(fine(applied.single()), Reply::Absent);
    assert!(min_fence < seen.fence, "{min_fence} says that every older record was deleted");
}
